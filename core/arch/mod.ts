/**
 * The architectures, by `general.architecture`.
 * @module
 */
import { apertus } from "./apertus.ts";
import type { Architecture } from "./architecture.ts";
import { bert } from "./bert.ts";
import { cohere2 } from "./cohere2.ts";
import { commandR } from "./command_r.ts";
import { dbrx } from "./dbrx.ts";
import { deepseek2 } from "./deepseek2.ts";
import { deepseek32 } from "./deepseek32.ts";
import { deepseek4 } from "./deepseek4.ts";
import { deepseek41 } from "./deepseek41.ts";
import { falconH1 } from "./falcon_h1.ts";
import { gemma3, gemmaEmbedding } from "./gemma3.ts";
import { gemma3n } from "./gemma3n.ts";
import { gemma4 } from "./gemma4.ts";
import { glm4 } from "./glm4.ts";
import { glm4moe } from "./glm4moe.ts";
import { glm5Next } from "./glm5_next.ts";
import { gptOss } from "./gpt_oss.ts";
import { granite } from "./granite.ts";
import { granitehybrid } from "./granitehybrid.ts";
import { grok } from "./grok.ts";
import { hunyuan } from "./hunyuan.ts";
import { jamba } from "./jamba.ts";
import type { ModelFile } from "./keys.ts";
import { kimiK3 } from "./kimi_k3.ts";
import { kimiLinear } from "./kimi_linear.ts";
import { lfm2 } from "./lfm2.ts";
import { llama } from "./llama.ts";
import { llama4 } from "./llama4.ts";
import { mamba } from "./mamba.ts";
import { minimaxM3 } from "./minimax_m3.ts";
import { mimo2 } from "./mimo2.ts";
import { minicpm3 } from "./minicpm3.ts";
import { minimaxM2 } from "./minimax_m2.ts";
import { modernBert } from "./modern_bert.ts";
import { nemotron } from "./nemotron.ts";
import { nemotronH } from "./nemotron_h.ts";
import { olmo2 } from "./olmo2.ts";
import { phi3 } from "./phi3.ts";
import { phimoe } from "./phimoe.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen3 } from "./qwen3.ts";
import { qwen3next } from "./qwen3next.ts";
import { qwen4exp } from "./qwen4exp.ts";
import { stablelm } from "./stablelm.ts";
import { starcoder2 } from "./starcoder2.ts";
import { unpublished } from "./unpublished.ts";
import { ModelError } from "../errors.ts";

export type { Architecture, Spec } from "./architecture.ts";
export type { AdapterInfo, ModelFile, ModelSource, ModelTensor } from "./keys.ts";

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
  cohere2,
  glm4,
  granite,
  hunyuan,
  olmo2,
  phi3,
  stablelm,
  starcoder2,
  gemma4,
  gemma3n,
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
  dbrx,
  grok,
  bert,
  modernBert,
  gemmaEmbedding,
  phimoe,
  minimaxM3,
];

/** @throws {ModelError} `model.architecture` when the file's architecture is not known */
export function architectureOf(file: ModelFile): Architecture {
  const name = file.metadata.str("general.architecture");
  const found = ARCHITECTURES.find((a) => a.names.includes(name));
  if (found) return found;
  const names = ARCHITECTURES.flatMap((a) => a.names), why = unpublished(name);
  throw new ModelError(
    "model.architecture",
    why
      ? `Cannot run ${file.name}: general.architecture is "${name}": ${why}`
      : `Cannot run ${file.name}: general.architecture is "${name}", expected one of ${names.join(", ")}`,
    { at: { file: file.name, got: name, expected: names } },
  );
}
