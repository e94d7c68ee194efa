/**
 * All families that `prepare` knows, by class name and by architecture.
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { DEEPSEEK2, DEEPSEEK32 } from "./deepseek.ts";
import { DEEPSEEK4 } from "./deepseek4.ts";
import { DEEPSEEK41 } from "./deepseek41.ts";
import { GEMMA3 } from "./gemma.ts";
import { GLM4MOE, GLM4MOE_LITE, GLM5_NEXT, GLM_DSA } from "./glm.ts";
import { GPT_OSS } from "./gpt_oss.ts";
import { KIMI_K3, KIMI_LINEAR } from "./kimi.ts";
import { LLAMA } from "./llama.ts";
import { MIMO2 } from "./mimo.ts";
import { MINIMAX_M2 } from "./minimax.ts";
import { MISTRAL3, MISTRAL4, MISTRAL_LARGE3 } from "./mistral.ts";
import { QWEN4EXP } from "./qwen4exp.ts";
import { QWEN35, QWEN35MOE, QWEN3NEXT } from "./qwen_next.ts";
import { QWEN2, QWEN2MOE, QWEN3, QWEN3MOE } from "./qwen.ts";

export const FAMILIES: readonly Family[] = [
  LLAMA,
  QWEN2,
  QWEN2MOE,
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
];

/**
 * The family of a checkpoint: the one named, or the one whose class config.json names.
 * @throws {ModelError} `model.unknown_architecture`
 */
export function familyOf(c: Config, arch?: string): Family {
  const wanted = arch ?? c.architecture;
  const family = FAMILIES.find((f) =>
    arch === undefined ? f.classes.includes(wanted ?? "") && f.accepts?.(c) !== false : f.arch === arch
  );
  if (family) return family;
  const known = arch === undefined ? FAMILIES.flatMap((f) => f.classes) : [...new Set(FAMILIES.map((f) => f.arch))];
  const found = wanted === undefined ? `${c.file} names no architecture` : `architecture "${wanted}" is not known`;
  throw new ModelError("model.unknown_architecture", `Cannot prepare the checkpoint of ${c.file}: ${found}`, {
    at: { file: c.file, got: wanted ?? null, expected: known },
    hint: `known are ${known.join(", ")}; --arch names one that fits`,
  });
}
