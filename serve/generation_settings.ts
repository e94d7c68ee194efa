/**
 * The settings of an answer under llama-server's names and in its order, as `generation_settings`, /slots and /props show them.
 * @module
 */
import type { Sampler } from "../core/sampling/mod.ts";
import type { Adapters } from "./adapters.ts";
import type { AnswerDefaults, AnswerRequest } from "./answer_request.ts";
import type { ServedModel } from "./language_model.ts";
import { DRY_BREAKERS } from "./sampling.ts";

/** 2^32 - 1 stands for a fresh seed. */
const FRESH_SEED = 0xffffffff;

/**
 * @param sampler Of the answer.
 * @param seed The one in use; left out, the one that was asked for.
 */
export function generationSettings(
  { model, settings, adapters }: { model: ServedModel; settings: AnswerDefaults; adapters: Adapters },
  request: Partial<AnswerRequest>,
  sampler: Sampler,
  seed?: number,
): Record<string, unknown> {
  const { params } = sampler;
  const n_predict = request.max_completion_tokens ?? request.max_tokens ?? request.n_predict ?? settings.n_predict;
  const format = request.reasoning_format ?? settings.reasoningFormat;
  return {
    seed: seed ?? (params.seed < 0 ? FRESH_SEED : params.seed),
    temperature: params.temperature,
    dynatemp_range: params.dynatemp_range,
    dynatemp_exponent: params.dynatemp_exponent,
    top_k: params.top_k,
    top_p: params.top_p,
    min_p: params.min_p,
    top_n_sigma: params.top_n_sigma,
    xtc_probability: params.xtc_probability,
    xtc_threshold: params.xtc_threshold,
    typical_p: params.typical_p,
    repeat_last_n: params.repeat_last_n,
    repeat_penalty: params.repeat_penalty,
    presence_penalty: params.presence_penalty,
    frequency_penalty: params.frequency_penalty,
    dry_multiplier: params.dry_multiplier,
    dry_base: params.dry_base,
    dry_allowed_length: params.dry_allowed_length,
    dry_penalty_last_n: params.dry_penalty_last_n,
    dry_sequence_breakers: request.dry_sequence_breakers ?? settings.dryBreakers ?? DRY_BREAKERS,
    mirostat: params.mirostat,
    mirostat_tau: params.mirostat_tau,
    mirostat_eta: params.mirostat_eta,
    adaptive_target: params.adaptive_target,
    adaptive_decay: params.adaptive_decay,
    stop: request.stop ?? settings.stop,
    max_tokens: n_predict,
    n_predict,
    n_keep: request.n_keep ?? settings.n_keep,
    n_discard: request.n_discard ?? 0,
    ignore_eos: request.ignore_eos ?? false,
    stream: request.stream ?? false,
    logit_bias: [...params.logit_bias].map(([token, bias]) => ({ bias, token })), // JSON writes -Infinity as null
    n_probs: request.n_probs ?? 0,
    min_keep: params.min_keep,
    grammar: request.grammar ?? "",
    grammar_lazy: request.grammar_lazy ?? false,
    grammar_triggers: request.grammar_triggers ?? [],
    preserved_tokens: [...model.chat.preservedTokens],
    chat_format: model.chat.family,
    reasoning_format: format,
    reasoning_in_content: format === "none" || (format === "deepseek-legacy" && (request.stream ?? false)),
    samplers: params.samplers,
    "speculative.types": "none",
    timings_per_token: request.timings_per_token ?? false,
    post_sampling_probs: request.post_sampling_probs ?? false,
    backend_sampling: false,
    lora: adapters.listed(adapters.of(request.lora)),
  };
}
