/**
 * All families that `prepare` knows, by class name and by architecture.
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { LLAMA } from "./llama.ts";
import { QWEN2, QWEN2MOE, QWEN3, QWEN3MOE } from "./qwen.ts";

export const FAMILIES: readonly Family[] = [LLAMA, QWEN2, QWEN2MOE, QWEN3, QWEN3MOE];

/**
 * The family of a checkpoint: the one named, or the one whose class config.json names.
 * @throws {ModelError} `model.unknown_architecture`
 */
export function familyOf(c: Config, arch?: string): Family {
  const wanted = arch ?? c.architecture;
  const family = FAMILIES.find((f) => arch === undefined ? f.classes.includes(wanted ?? "") : f.arch === arch);
  if (family) return family;
  const known = arch === undefined ? FAMILIES.flatMap((f) => f.classes) : [...new Set(FAMILIES.map((f) => f.arch))];
  const found = wanted === undefined ? `${c.file} names no architecture` : `architecture "${wanted}" is not known`;
  throw new ModelError("model.unknown_architecture", `Cannot prepare the checkpoint of ${c.file}: ${found}`, {
    at: { file: c.file, got: wanted ?? null, expected: known },
    hint: `known are ${known.join(", ")}; --arch names one that fits`,
  });
}
