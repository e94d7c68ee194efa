/**
 * All families that `prepare` knows, by class name and by architecture.
 * @module
 */
import { unpublished } from "../../../core/arch/unpublished.ts";
import { ModelError } from "../../../core/errors.ts";
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { BERT, MODERN_BERT, NOMIC_BERT, NOMIC_BERT_MOE, ROBERTA } from "./bert.ts";
import { DEEPSEEK2, DEEPSEEK32 } from "./deepseek.ts";
import { DEEPSEEK4 } from "./deepseek4.ts";
import { DEEPSEEK41 } from "./deepseek41.ts";
import { ERNIE4_5, ERNIE4_5_MOE } from "./ernie.ts";
import { COHERE2, DOTS1, NEMOTRON, PHI3, SEED_OSS, SMOLLM3, STABLELM, STARCODER2 } from "./everyday.ts";
import { EXAONE4 } from "./exaone.ts";
import { FALCON_H1 } from "./falcon.ts";
import { GEMMA2, GEMMA3, GEMMA_EMBEDDING } from "./gemma.ts";
import { GEMMA3N, GEMMA4 } from "./gemma4.ts";
import { GLM4, GLM4MOE, GLM4MOE_LITE, GLM5_NEXT, GLM_DSA } from "./glm.ts";
import { GPT_OSS } from "./gpt_oss.ts";
import { GRANITE, GRANITE_HYBRID, GRANITE_MOE } from "./granite.ts";
import { HUNYUAN_DENSE, HUNYUAN_MOE } from "./hunyuan.ts";
import { KIMI_K3, KIMI_LINEAR } from "./kimi.ts";
import { LFM2, LFM2MOE } from "./lfm2.ts";
import { LLAMA } from "./llama.ts";
import { MIMO2 } from "./mimo.ts";
import { MINIMAX_M2 } from "./minimax.ts";
import { MISTRAL3, MISTRAL4, MISTRAL_LARGE3 } from "./mistral.ts";
import { NEMOTRON_H, NEMOTRON_H_MOE } from "./nemotron_h.ts";
import { OLMO2, OLMOE } from "./olmo.ts";
import { QWEN4EXP } from "./qwen4exp.ts";
import { QWEN35, QWEN35MOE, QWEN3NEXT } from "./qwen_next.ts";
import { QWEN2, QWEN2MOE, QWEN3, QWEN3_RERANKER, QWEN3MOE, QWEN3VL } from "./qwen.ts";

export const FAMILIES: readonly Family[] = [
  LLAMA,
  QWEN2,
  QWEN2MOE,
  QWEN3_RERANKER,
  QWEN3,
  QWEN3MOE,
  QWEN3NEXT,
  QWEN35,
  QWEN35MOE,
  QWEN4EXP,
  MISTRAL3,
  MISTRAL4,
  MISTRAL_LARGE3,
  GEMMA3,
  GPT_OSS,
  DEEPSEEK2,
  DEEPSEEK32,
  DEEPSEEK4,
  DEEPSEEK41,
  GLM4MOE,
  GLM4MOE_LITE,
  GLM_DSA,
  GLM5_NEXT,
  KIMI_LINEAR,
  KIMI_K3,
  MINIMAX_M2,
  MIMO2,
  QWEN3VL,
  GLM4,
  GEMMA2,
  SMOLLM3,
  SEED_OSS,
  PHI3,
  STABLELM,
  STARCODER2,
  NEMOTRON,
  COHERE2,
  DOTS1,
  GRANITE,
  GRANITE_MOE,
  GRANITE_HYBRID,
  OLMO2,
  OLMOE,
  EXAONE4,
  HUNYUAN_DENSE,
  HUNYUAN_MOE,
  ERNIE4_5,
  ERNIE4_5_MOE,
  LFM2,
  LFM2MOE,
  FALCON_H1,
  GEMMA3N,
  GEMMA4,
  NEMOTRON_H,
  NEMOTRON_H_MOE,
  BERT,
  ROBERTA,
  NOMIC_BERT,
  NOMIC_BERT_MOE,
  MODERN_BERT,
  GEMMA_EMBEDDING,
];

/**
 * The family of a checkpoint: the one named, or the one whose class config.json names.
 * @throws {ModelError} `model.unknown_architecture`
 */
export function familyOf(
  c: Config,
  arch?: string,
  text: (file: string) => string | undefined = () => undefined,
): Family {
  const wanted = arch ?? c.architecture;
  const named = FAMILIES.filter((f) => arch === undefined ? f.classes.includes(wanted ?? "") : f.arch === arch);
  // Who names an architecture gets it, whatever the checkpoint says of itself.
  const family = named.find((f) => f.accepts?.(c, text) !== false) ?? (arch === undefined ? undefined : named[0]);
  if (family) return family;
  const known = arch === undefined ? FAMILIES.flatMap((f) => f.classes) : [...new Set(FAMILIES.map((f) => f.arch))];
  const why = unpublished(`${wanted} ${c.raw("model_type")}`);
  const found = wanted === undefined ? `${c.file} names no architecture` : `architecture "${wanted}" is not known`;
  if (why) {
    throw new ModelError("model.unknown_architecture", `Cannot prepare the checkpoint of ${c.file}: ${found}: ${why}`, {
      at: { file: c.file, got: wanted ?? null, expected: known },
    });
  }
  throw new ModelError("model.unknown_architecture", `Cannot prepare the checkpoint of ${c.file}: ${found}`, {
    at: { file: c.file, got: wanted ?? null, expected: known },
    hint: `known are ${known.join(", ")}; --arch names one that fits`,
  });
}
