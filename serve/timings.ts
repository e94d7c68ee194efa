/**
 * How long an answer took, and how many tokens it had, in the shapes that clients know.
 * @module
 */
import type { Generation } from "./generation.ts";

/** llama-server's `timings`; of a running answer, those so far. */
export function timingsOf(generation: Generation): Record<string, number> {
  const { started, prompted } = generation.times;
  const ended = generation.times.ended || performance.now();
  const prompt_n = generation.prompt.length - generation.n_cached;
  const prompt_ms = prompted > 0 ? prompted - started : 0;
  const predicted_n = generation.n_generated;
  const { n_guesses, n_right } = generation.guesses;
  const predicted_ms = prompted > 0 ? ended - prompted : 0;
  return {
    cache_n: generation.n_cached,
    prompt_n,
    prompt_ms,
    prompt_per_token_ms: ratio(prompt_ms, prompt_n),
    prompt_per_second: ratio(prompt_n * 1000, prompt_ms),
    predicted_n,
    predicted_ms,
    // The prompt's last row gives the first token, so there is one step fewer than tokens.
    predicted_per_token_ms: ratio(predicted_ms, predicted_n - 1),
    predicted_per_second: ratio((predicted_n - 1) * 1000, predicted_ms),
    ...(n_guesses > 0 ? { draft_n: n_guesses, draft_n_accepted: n_right } : {}),
  };
}

/** OpenAI's `usage` over the answers of one request. A prompt that several answers share counts once. */
export function usageOf(generations: readonly Generation[]): Record<string, unknown> {
  const own = generations.filter((g) => g.after === undefined);
  const prompt_tokens = own.reduce((n, g) => n + g.prompt.length, 0);
  const completion_tokens = generations.reduce((n, g) => n + g.n_generated, 0);
  return {
    prompt_tokens,
    completion_tokens,
    total_tokens: prompt_tokens + completion_tokens,
    prompt_tokens_details: { cached_tokens: own.reduce((n, g) => n + g.n_cached, 0) },
    completion_tokens_details: { reasoning_tokens: generations.reduce((n, g) => n + g.n_reasoning, 0) },
  };
}

function ratio(a: number, b: number): number {
  return b > 0 && a > 0 ? a / b : 0;
}
