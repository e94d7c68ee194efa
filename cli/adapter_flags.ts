/**
 * Flags that name low-rank adapters, and the adapters that they name.
 * @module
 */
import type { Adapter } from "../core/arch/adapter.ts";
import { UsageError } from "../core/errors.ts";
import type { Flag, Flags } from "./command.ts";

export const ADAPTER_FLAGS: readonly Flag[] = [
  {
    name: "lora",
    type: "strings",
    separator: ",",
    value: "FILE",
    help: "a LoRA adapter (GGUF) to use, or several with commas between them; may be repeated",
  },
  {
    name: "lora-scaled",
    type: "strings",
    separator: ",",
    value: "FILE:SCALE",
    help: "a LoRA adapter and how much of it to use, 1 = all; may be repeated",
  },
];

/** An adapter and how much of it is used. */
export interface ScaledPath {
  readonly path: string;
  readonly scale: number;
}

/**
 * A path and a number behind its last colon.
 * @throws {UsageError} `usage.value`
 */
export function scaledPath(flag: string, text: string): ScaledPath {
  const at = text.lastIndexOf(":"), number = text.slice(at + 1).trim(), scale = Number(number);
  if (at > 0 && number !== "" && Number.isFinite(scale)) return { path: text.slice(0, at), scale };
  throw new UsageError("usage.value", `Cannot use --${flag} ${text}: expected FILE:SCALE`, {
    at: { flag: `--${flag}`, got: text },
    hint: `such as --${flag} adapter.gguf:0.5`,
  });
}

/** What the flags name, those of `--lora` first. Flags: `ADAPTER_FLAGS`. */
export function adapterPaths(flags: Flags): ScaledPath[] {
  return [
    ...flags.strs("lora").map((path) => ({ path, scale: 1 })),
    ...flags.strs("lora-scaled").map((text) => scaledPath("lora-scaled", text)),
  ];
}

/** Opens them. @throws {ModelError} `model.adapter` */
export async function openAdapters(paths: readonly ScaledPath[]): Promise<Adapter[]> {
  if (paths.length === 0) return [];
  const { Adapter } = await import("../core/arch/adapter.ts");
  const opened: Adapter[] = [];
  try {
    for (const { path } of paths) opened.push(Adapter.open(path));
    return opened;
  } catch (error) {
    for (const a of opened) a[Symbol.dispose]();
    throw error;
  }
}
