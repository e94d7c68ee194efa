/**
 * The architectures, by `general.architecture`.
 * @module
 */
import { ModelError } from "../errors.ts";
import type { Architecture, ModelFile } from "./architecture.ts";
import { llama } from "./llama.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3moe } from "./qwen3moe.ts";

export type { Architecture, BoundTensor, ModelFile, Spec, TensorWant } from "./architecture.ts";

/** All architectures this version runs. */
// deno-lint-ignore no-explicit-any
export const ARCHITECTURES: readonly Architecture<any>[] = [llama, qwen3, qwen3moe];

/** @throws {ModelError} `model.architecture` when the file's architecture is not known */
export function architectureOf(file: ModelFile): Architecture {
  const name = file.metadata.str("general.architecture");
  const found = ARCHITECTURES.find((a) => a.name === name);
  if (found) return found;
  throw new ModelError(
    "model.architecture",
    `Cannot run ${file.name}: general.architecture is "${name}", expected one of ${
      ARCHITECTURES.map((a) => a.name).join(", ")
    }`,
    { at: { file: file.name, got: name, expected: ARCHITECTURES.map((a) => a.name) } },
  );
}
