/**
 * What the flags say of an answer: the sampler's settings, its length, its reasoning.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { type SamplerName, samplerNames, type SamplingParams } from "../core/sampling/mod.ts";
import type { Flags } from "./command.ts";
import { SAMPLING } from "./flags.ts";
import { nearest } from "./nearest.ts";

/** Stages by name, `typical_p` among them as requests may call it. @throws {UsageError} `usage.value` */
export function parseSamplers(text: string): SamplerName[] {
  return text.split(/[;,]/).map((part) => part.trim()).filter((part) => part !== "").map((word) => {
    const name = (word === "typical_p" ? "typ_p" : word) as SamplerName;
    if (samplerNames.includes(name)) return name;
    const meant = nearest(word, samplerNames);
    throw new UsageError("usage.value", `Cannot use --samplers ${text}: there is no stage "${word}"`, {
      at: { flag: "--samplers", got: word },
      hint: meant === undefined ? `the stages are ${samplerNames.join(", ")}` : `did you mean ${meant}?`,
    });
  });
}

/** One `--logit-bias`: an id with the bias behind its sign. @throws {UsageError} `usage.value` */
function parseBias(text: string, n_vocab: number): [number, number] {
  const m = /^(\d+)([+-](?:\d+(?:\.\d+)?|inf))$/i.exec(text.trim());
  const bias = m ? Number(m[2].replace(/inf/i, "Infinity")) : NaN;
  if (m && !Number.isNaN(bias) && bias !== Infinity && Number(m[1]) < n_vocab) return [Number(m[1]), bias];
  throw new UsageError(
    "usage.value",
    `Cannot use --logit-bias ${text}: expected a token from 0 to ${n_vocab - 1} and a bias, such as 42+1 or 42-inf`,
    { at: { flag: "--logit-bias", got: text, n_vocab } },
  );
}

/**
 * Settings of the sampler chain that the flags give; everything else is left to the model.
 * @param vocabulary Of the model: its size, and the tokens that end an answer.
 */
export function samplingOf(
  flags: Flags,
  vocabulary: { readonly n_vocab: number; readonly eogIds: Iterable<number> },
): Partial<SamplingParams> {
  const params: Partial<SamplingParams> = {};
  for (const { param, flag } of SAMPLING) {
    const n = flags.num(flag.name);
    if (n !== undefined) (params as Record<string, number>)[param] = n;
  }
  const samplers = flags.str("samplers");
  if (samplers !== undefined) params.samplers = parseSamplers(samplers);
  const biases = new Map(flags.strs("logit-bias").map((text) => parseBias(text, vocabulary.n_vocab)));
  if (flags.bool("ignore-eos")) { for (const id of vocabulary.eogIds) biases.set(id, -Infinity); }
  if (biases.size > 0) params.logit_bias = biases;
  return params;
}

/** The most tokens of an answer, or undefined where only the context limits it. Flag: `PREDICT`. */
export function maxTokensOf(flags: Flags): number | undefined {
  const n = flags.num("predict") ?? -1;
  return n < 0 ? undefined : n;
}

/** Template variables of the flags `REASONING_FLAGS`. */
export function reasoningKwargs(flags: Flags): Record<string, unknown> {
  const mode = flags.str("reasoning") ?? "auto", effort = flags.str("reasoning-effort") ?? "default";
  return {
    ...(mode === "auto" ? {} : { enable_thinking: mode === "on" }),
    ...(effort === "default" ? {} : { reasoning_effort: effort }),
  };
}
