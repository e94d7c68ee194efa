/**
 * Flags that name low-rank adapters and control vectors, and what they name.
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
  {
    name: "control-vector",
    type: "strings",
    separator: ",",
    value: "FILE",
    help: "a control vector (GGUF) to add behind the layers, or several with commas between them; may be repeated",
  },
  {
    name: "control-vector-scaled",
    type: "strings",
    separator: ",",
    value: "FILE:SCALE",
    help: "a control vector and how much of it to add; may be repeated",
  },
  {
    name: "control-vector-layer-range",
    type: "string",
    pair: true,
    value: "FIRST LAST",
    help: "the layers that control vectors are added behind, the last included; default: all from 1 on",
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

/**
 * What control vectors add, by layer. Flags: `ADAPTER_FLAGS`.
 * @throws {UsageError} `usage.value` @throws {ModelError} `model.control_vector`
 */
export async function controlOf(flags: Flags): Promise<ReadonlyMap<number, Float32Array>> {
  const files = [
    ...flags.strs("control-vector").map((path) => ({ path, scale: 1 })),
    ...flags.strs("control-vector-scaled").map((text) => scaledPath("control-vector-scaled", text)),
  ];
  const range = layerRange(flags.str("control-vector-layer-range"));
  if (files.length === 0) return new Map();
  const { readControlVectors } = await import("../core/arch/control_vector.ts");
  return readControlVectors(files, range);
}

/** As llama.cpp has it, 0 and less stand for the first layer, or the last. */
function layerRange(text: string | undefined): { first: number; last: number } | undefined {
  if (text === undefined) return undefined;
  const m = /^\s*(-?\d{1,6})\s*,\s*(-?\d{1,6})\s*$/.exec(text);
  const first = Math.max(1, Number(m?.[1])), end = Number(m?.[2]), last = end <= 0 ? Infinity : end;
  if (m !== null && first <= last) return { first, last };
  const flag = "--control-vector-layer-range", found = text.replace(",", " ");
  throw new UsageError(
    "usage.value",
    `Cannot use ${flag} ${found}: expected two layers, the first not above the last`,
    {
      at: { flag, got: found },
      hint: `such as ${flag} 8 24`,
    },
  );
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
