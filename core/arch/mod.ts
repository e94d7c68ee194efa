/**
 * The architectures, by `general.architecture`.
 * @module
 */
import { ModelError } from "../errors.ts";
import { apertus } from "./apertus.ts";
import type { Architecture } from "./architecture.ts";
import { commandR } from "./command_r.ts";
import { deepseek2 } from "./deepseek2.ts";
import { deepseek32 } from "./deepseek32.ts";
import { deepseek4 } from "./deepseek4.ts";
import { deepseek41 } from "./deepseek41.ts";
import { falconH1 } from "./falcon_h1.ts";
import type { ModelFile } from "./keys.ts";
import { gemma3 } from "./gemma3.ts";
import { glm4moe } from "./glm4moe.ts";
import { glm5Next } from "./glm5_next.ts";
import { gptOss } from "./gpt_oss.ts";
import { granitehybrid } from "./granitehybrid.ts";
import { jamba } from "./jamba.ts";
import { kimiK3 } from "./kimi_k3.ts";
import { kimiLinear } from "./kimi_linear.ts";
import { lfm2 } from "./lfm2.ts";
import { llama } from "./llama.ts";
import { llama4 } from "./llama4.ts";
import { mamba } from "./mamba.ts";
import { mimo2 } from "./mimo2.ts";
import { minicpm3 } from "./minicpm3.ts";
import { minimaxM2 } from "./minimax_m2.ts";
import { nemotron } from "./nemotron.ts";
import { nemotronH } from "./nemotron_h.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3next } from "./qwen3next.ts";
import { qwen4exp } from "./qwen4exp.ts";

export type { Architecture, Spec } from "./architecture.ts";
export type { ModelFile } from "./keys.ts";

/** All architectures this version runs. */
// deno-lint-ignore no-explicit-any
export const ARCHITECTURES: readonly Architecture<any>[] = [
  llama,
  qwen2,
  qwen3,
  gemma3,
  gptOss,
  glm4moe,
  minimaxM2,
  mimo2,
  deepseek2,
  deepseek32,
  kimiLinear,
  kimiK3,
  glm5Next,
  deepseek4,
  deepseek41,
  qwen4exp,
  qwen3next,
  nemotron,
  nemotronH,
  lfm2,
  granitehybrid,
  falconH1,
  mamba,
  jamba,
  apertus,
  commandR,
  llama4,
  minicpm3,
];

/** Families that are known and cannot run yet, and why. */
const REFUSED: Readonly<Record<string, string>> = {};

/** @throws {ModelError} `model.architecture` when the file's architecture is not known */
export function architectureOf(file: ModelFile): Architecture {
  const name = file.metadata.str("general.architecture");
  const found = ARCHITECTURES.find((a) => a.names.includes(name));
  if (found) return found;
  const names = ARCHITECTURES.flatMap((a) => a.names);
  throw new ModelError(
    "model.architecture",
    REFUSED[name]
      ? `Cannot run ${file.name}: general.architecture is "${name}": ${REFUSED[name]}`
      : `Cannot run ${file.name}: general.architecture is "${name}", expected one of ${names.join(", ")}`,
    { at: { file: file.name, got: name, expected: names } },
  );
}
