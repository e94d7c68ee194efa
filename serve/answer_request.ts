/**
 * What the bodies of all generating routes share, and what the server answers where a body leaves it open.
 * @module
 */
import type { ReasoningFormat } from "../core/chat/reasoning.ts";
import type { AdapterScale } from "./adapters.ts";
import type { FormRequest } from "./constraint.ts";
import type { SamplingRequest } from "./schemas.ts";

/** How many tokens a request may generate, in the names that clients use for it. */
export interface Limits {
  n_predict?: number | undefined;
  max_tokens?: number | undefined;
  max_completion_tokens?: number | undefined;
}

/** What the bodies of all generating routes share. */
export interface AnswerRequest extends SamplingRequest, Limits, FormRequest {
  stop?: string[] | undefined;
  stream?: boolean | undefined;
  /** Of chats; the form of an answer that may be a call is the call's. */
  tools?: readonly unknown[] | undefined;
  cache_prompt?: boolean | undefined;
  speculative?: boolean | undefined;
  lora?: readonly AdapterScale[] | undefined;
  id_slot?: number | undefined;
  n_keep?: number | undefined;
  n_discard?: number | undefined;
  n_indent?: number | undefined;
  t_max_predict_ms?: number | undefined;
  n_probs?: number | undefined;
  timings_per_token?: boolean | undefined;
  return_progress?: boolean | undefined;
  post_sampling_probs?: boolean | undefined;
  reasoning_format?: ReasoningFormat | undefined;
}

/** What holds for an answer where its request does not say. */
export interface AnswerDefaults {
  /** What becomes of reasoning in answers. */
  reasoningFormat: ReasoningFormat;
  /** Most tokens of an answer; -1 without limit. */
  n_predict: number;
  /** Tokens that stay at the beginning of a context that is shifted; -1 = the prompt. */
  n_keep: number;
  /** Texts that end an answer. */
  stop: readonly string[];
  /** Sequence breakers of the sampler's DRY stage where the server was started with its own. */
  dryBreakers?: readonly string[] | undefined;
}
