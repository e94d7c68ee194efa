/**
 * Choosing the next token: the sampler chain and log probabilities.
 * @module
 */
export { topLogprobs } from "./logprobs.ts";
export type { TokenLogprob } from "./logprobs.ts";
export { defaultSampling, samplerNames } from "./params.ts";
export type { SamplerName, SamplingParams } from "./params.ts";
export { Sampler, type TokenProb } from "./sampler.ts";
