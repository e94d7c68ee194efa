/**
 * What the flags say of an answer: the sampler's settings, its length, its reasoning.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import { type SamplerName, samplerNames, type SamplingParams } from "../core/sampling/mod.ts";
import type { Grammar } from "../core/sampling/grammar/mod.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import { breakers, SAMPLER_LETTERS } from "../serve/sampling.ts";
import type { Flags } from "./command.ts";
import { SAMPLING } from "./flags.ts";
import type { Io } from "./io.ts";
import { nearest } from "./nearest.ts";
import { readText } from "./text_file.ts";

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

/** Stages by letters. @throws {UsageError} `usage.value` */
function parseLetters(text: string): SamplerName[] {
  return Array.from(text, (letter) => {
    const name = SAMPLER_LETTERS[letter];
    if (name !== undefined) return name;
    const known = Object.entries(SAMPLER_LETTERS).map(([l, n]) => `${l} = ${n}`).join(", ");
    throw new UsageError("usage.value", `Cannot use --sampler-seq ${text}: no stage has the letter "${letter}"`, {
      at: { flag: "--sampler-seq", got: letter },
      hint: known,
    });
  });
}

/**
 * The form that the flags ask for.
 * @throws {UsageError} `usage.value` for several forms, or a schema that is not JSON; `usage.file`
 */
export function formOf(flags: Flags): { grammar?: string; json_schema?: unknown } {
  const file = (name: string) => {
    const path = flags.str(name);
    return path === undefined ? undefined : readText(path, name);
  };
  const grammar = flags.str("grammar") ?? file("grammar-file");
  const schema = flags.str("json-schema") ?? file("json-schema-file");
  if (grammar !== undefined && schema !== undefined) {
    throw new UsageError("usage.value", "Cannot use a grammar and a JSON schema: expected one form of the answer", {
      hint: "give one of --grammar, --grammar-file, --json-schema and --json-schema-file",
    });
  }
  if (schema === undefined) return grammar === undefined ? {} : { grammar };
  try {
    return { json_schema: parseJson(schema) };
  } catch (cause) {
    throw new UsageError("usage.value", `Cannot use --json-schema: ${(cause as Error).message}`, {
      at: { flag: "--json-schema" },
      cause,
    });
  }
}

/**
 * The grammar of the form that the flags ask for.
 * @throws {TextError} for a form that cannot be compiled
 */
export async function grammarOf(flags: Flags, io: Pick<Io, "warn">): Promise<Grammar | undefined> {
  const { grammar, json_schema } = formOf(flags);
  if (grammar === undefined && json_schema === undefined) return undefined;
  const { compileGbnf, compileJsonSchema } = await import("../core/sampling/grammar/mod.ts");
  const compiled = grammar === undefined ? compileJsonSchema(json_schema) : compileGbnf(grammar);
  if (compiled.ignored.length > 0) io.warn(`the JSON schema is not enforced at ${compiled.ignored.join(", ")}`);
  return compiled;
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

/** What settings need of a model's tokenizer. */
export type Vocabulary = Pick<Tokenizer, "n_vocab" | "eogIds" | "pieceBytes">;

/** Texts at which the penalty on repeated sequences begins anew, where the flags give some. */
export function dryBreakersOf(flags: Flags): string[] | undefined {
  const given = flags.strs("dry-sequence-breaker");
  return given.length === 0 ? undefined : given.filter((text) => text !== "none");
}

/**
 * Settings of the sampler chain that the flags give; everything else is left to the model.
 * @param vocabulary Of the model.
 * @param options `changing`: the settings may be changed later, so that all of them are needed.
 */
export function samplingOf(
  flags: Flags,
  vocabulary: Vocabulary,
  options: { changing?: boolean } = {},
): Partial<SamplingParams> {
  const params: Partial<SamplingParams> = {};
  for (const { param, flag } of SAMPLING) {
    const n = flags.num(flag.name);
    if (n !== undefined) (params as Record<string, number>)[param] = n;
  }
  const samplers = flags.str("samplers");
  const letters = flags.str("sampler-seq");
  if (samplers !== undefined) params.samplers = parseSamplers(samplers);
  else if (letters !== undefined) params.samplers = parseLetters(letters);
  const biases = new Map(flags.strs("logit-bias").map((text) => parseBias(text, vocabulary.n_vocab)));
  if (flags.bool("ignore-eos")) { for (const id of vocabulary.eogIds) biases.set(id, -Infinity); }
  if (biases.size > 0) params.logit_bias = biases;
  const dry = (params.dry_multiplier ?? 0) > 0 || flags.has("dry-sequence-breaker");
  if (dry || options.changing) params.dry_breakers = breakers(dryBreakersOf(flags), vocabulary);
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
