/**
 * Parameters of the sampler chain, under llama-server's names and with its defaults.
 * @module
 */

/** Stages of the chain by name; `samplers` orders them. */
export const samplerNames = [
  "penalties",
  "dry",
  "top_n_sigma",
  "top_k",
  "typ_p",
  "top_p",
  "min_p",
  "xtc",
  "temperature",
] as const;

/** A stage of the chain of samplers. */
export type SamplerName = typeof samplerNames[number];

/** How the next token is chosen. Names and meanings are llama.cpp's. */
export interface SamplingParams {
  /** At or below 0: the best candidate, ties to the lower id. */
  temperature: number;
  /** Half width of the temperature's range, which grows with the entropy of the candidates; 0 is off. */
  dynatemp_range: number;
  /** Exponent on the entropy in it. */
  dynatemp_exponent: number;
  /** Candidates kept; 0 or less keeps all. */
  top_k: number;
  /** Least probability mass kept; 1 keeps all. */
  top_p: number;
  /** Probability relative to the best below which candidates fall; 0 keeps all. */
  min_p: number;
  /** Mass of locally typical candidates kept; 1 keeps all. */
  typical_p: number;
  /** Candidates within this many standard deviations of the best logit stay; 0 or less keeps all. */
  top_n_sigma: number;
  /** Fewest candidates that any stage leaves. */
  min_keep: number;
  /** Divides positive logits of seen tokens, multiplies negative ones; 1 is off. */
  repeat_penalty: number;
  /** Tokens looked back at by the three penalties: 0 none, -1 all. */
  repeat_last_n: number;
  /** Taken off the logits of tokens that were seen. */
  presence_penalty: number;
  /** Taken off once per time that a token was seen. */
  frequency_penalty: number;
  /** Chance that the top choices above `xtc_threshold` are removed but for the last of them. */
  xtc_probability: number;
  /** Probability from which a choice is a top one. */
  xtc_threshold: number;
  /** Strength of the penalty on repeating a sequence; 0 is off. */
  dry_multiplier: number;
  /** Base of the penalty, to the power of the repetition's length. Below 1 it is the default. */
  dry_base: number;
  /** Longest repetition that is free. */
  dry_allowed_length: number;
  /** Tokens looked back at: 0 none, -1 all. */
  dry_penalty_last_n: number;
  /** Ids of tokens at which a repetition ends; whoever knows the vocabulary finds them from strings. */
  dry_breakers: ReadonlySet<number>;
  /** 0 off, 1 or 2: keeps surprise near `mirostat_tau`; replaces every stage but penalties and temperature. */
  mirostat: 0 | 1 | 2;
  /** Wanted surprise, in nats. */
  mirostat_tau: number;
  /** How fast it is approached. */
  mirostat_eta: number;
  /** Probability that the chosen tokens have on average, by a draw that favours candidates near it; negative is off. */
  adaptive_target: number;
  /** How slowly that average forgets, 0 to 0.99. */
  adaptive_decay: number;
  /** Added to the logits of tokens before everything else; -Infinity forbids one. */
  logit_bias: ReadonlyMap<number, number>;
  /** Stages in their order. */
  samplers: readonly SamplerName[];
  /** 32 bits; negative or 0xFFFFFFFF draws one. */
  seed: number;
}

/** What applies where nothing else is said: llama.cpp's defaults. */
export const defaultSampling: Readonly<SamplingParams> = {
  temperature: 0.8,
  dynatemp_range: 0,
  dynatemp_exponent: 1,
  top_k: 40,
  top_p: 0.95,
  min_p: 0.05,
  typical_p: 1,
  top_n_sigma: -1,
  min_keep: 0,
  repeat_penalty: 1,
  repeat_last_n: 64,
  presence_penalty: 0,
  frequency_penalty: 0,
  xtc_probability: 0,
  xtc_threshold: 0.1,
  dry_multiplier: 0,
  dry_base: 1.75,
  dry_allowed_length: 2,
  dry_penalty_last_n: 64,
  dry_breakers: new Set(),
  mirostat: 0,
  mirostat_tau: 5,
  mirostat_eta: 0.1,
  adaptive_target: -1,
  adaptive_decay: 0.9,
  logit_bias: new Map(),
  samplers: samplerNames,
  seed: -1,
};
