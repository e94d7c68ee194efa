/**
 * Makes a sampler from a request's fields: resolves names, token texts and the server's defaults.
 * @module
 */
import { Sampler, type SamplerName, samplerNames, type SamplingParams } from "../core/sampling/mod.ts";
import { badRequest } from "./errors.ts";
import type { ServedModel } from "./language_model.ts";
import type { Tokenizer } from "./tokenizer.ts";
import type { SamplingRequest } from "./schemas.ts";

/** Numbers that both sides call by the same name. */
const PLAIN = [
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "typical_p",
  "top_n_sigma",
  "xtc_probability",
  "xtc_threshold",
  "dynatemp_range",
  "dynatemp_exponent",
  "repeat_penalty",
  "repeat_last_n",
  "presence_penalty",
  "frequency_penalty",
  "dry_multiplier",
  "dry_base",
  "dry_allowed_length",
  "dry_penalty_last_n",
  "mirostat_tau",
  "mirostat_eta",
  "adaptive_target",
  "adaptive_decay",
  "min_keep",
] as const satisfies readonly (keyof SamplingParams & keyof SamplingRequest)[];

/** llama-server's one-letter names, for `samplers` given as a string. */
export const SAMPLER_LETTERS: Readonly<Record<string, SamplerName>> = {
  e: "penalties",
  d: "dry",
  s: "top_n_sigma",
  k: "top_k",
  y: "typ_p",
  p: "top_p",
  m: "min_p",
  x: "xtc",
  t: "temperature",
};

/** Sequence breakers of the dry stage when the request names none. */
export const DRY_BREAKERS: readonly string[] = ["\n", ":", '"', "*"];

/**
 * The sampler for one answer.
 * @param index Number of the answer within its request: several answers with one seed differ.
 * @throws ApiError 400 naming the field.
 */
export function createSampler(model: ServedModel, request: Partial<SamplingRequest>, index = 0): Sampler {
  const { tokenizer } = model;
  const params: Partial<SamplingParams> = {
    ...model.sampling,
    ...samplingOf(request),
    logit_bias: new Map([...model.sampling.logit_bias ?? [], ...biases(request, tokenizer)]),
  };
  if (params.seed !== undefined && params.seed >= 0) params.seed = (params.seed + index) % 2 ** 32;
  if ((params.dry_multiplier ?? 0) > 0) {
    const asked = request.dry_sequence_breakers;
    params.dry_breakers = asked === undefined && model.sampling.dry_breakers !== undefined
      ? model.sampling.dry_breakers
      : breakers(asked, tokenizer);
  }
  return new Sampler(params, tokenizer.n_vocab);
}

/** The settings that need no vocabulary. */
function samplingOf(request: Partial<SamplingRequest>): Partial<SamplingParams> {
  const params: Partial<SamplingParams> = {};
  for (const name of PLAIN) if (request[name] !== undefined) params[name] = request[name];
  if (request.mirostat !== undefined) params.mirostat = request.mirostat as 0 | 1 | 2;
  if (request.samplers !== undefined) params.samplers = samplerOrder(request.samplers);
  // 2^32 - 1 and everything negative ask for a fresh seed; the sampler has 32 bits.
  if (request.seed !== undefined) params.seed = request.seed < 0 ? -1 : request.seed % 2 ** 32;
  return params;
}

function samplerOrder(given: string | string[]): SamplerName[] {
  if (typeof given === "string") {
    return Array.from(given, (letter) => {
      const name = SAMPLER_LETTERS[letter];
      if (name === undefined) throw badRequest(`samplers: no stage has the letter "${letter}"`, "samplers");
      return name;
    });
  }
  return given.map((word, i) => {
    const name = word === "typical_p" ? "typ_p" : word;
    if (!samplerNames.includes(name as SamplerName)) {
      const field = `samplers[${i}]`;
      throw badRequest(`${field}: expected one of ${samplerNames.join(", ")}, found "${word}"`, field);
    }
    return name as SamplerName;
  });
}

/** Keys are ids or texts; a text biases each of its tokens; false forbids. */
function biases(request: Partial<SamplingRequest>, tokenizer: Tokenizer): Map<number, number> {
  const out = new Map<number, number>();
  const given = request.logit_bias ?? {};
  for (const [key, value] of Array.isArray(given) ? given : Object.entries(given)) {
    const bias = value === false ? -Infinity : value;
    // Keys of an object are always strings: digits mean an id there, as OpenAI has it.
    const isId = typeof key === "number" || (!Array.isArray(given) && /^\d+$/.test(key));
    const ids = isId ? [Number(key)] : tokenizer.encode(String(key), { addSpecial: false, parseSpecial: true });
    for (const id of ids) {
      if (id >= tokenizer.n_vocab) {
        throw badRequest(`logit_bias: token ${id} is outside the vocabulary of ${tokenizer.n_vocab}`, "logit_bias");
      }
      out.set(id, (out.get(id) ?? 0) + bias);
    }
  }
  if (request.ignore_eos) { for (const id of tokenizer.eogIds) out.set(id, -Infinity); }
  return out;
}

/** Ids of all tokens whose text holds one of the strings; undefined stands for the usual ones. */
export function breakers(
  strings: readonly string[] | undefined,
  tokenizer: Pick<Tokenizer, "n_vocab" | "pieceBytes">,
): Set<number> {
  const latin1 = new TextDecoder("latin1");
  const encoder = new TextEncoder();
  // Byte strings as latin1, so that a search is a substring search whatever the bytes.
  const wanted = (strings ?? DRY_BREAKERS).filter((s) => s !== "").map((s) => latin1.decode(encoder.encode(s)));
  const out = new Set<number>();
  for (let id = 0; id < tokenizer.n_vocab; id++) {
    const text = latin1.decode(tokenizer.pieceBytes(id, true));
    if (wanted.some((s) => text.includes(s))) out.add(id);
  }
  return out;
}
