/**
 * The request bodies, checked by zod. Unknown fields are ignored, because clients send many. A known field of a wrong type or
 * range is a 400 that names it, and so is a known field that would change the answer and is not supported.
 * @module
 */
import { z } from "zod";
import { parseJson } from "../core/json.ts";
import { ApiError, badRequest, unsupported } from "./errors.ts";
import { REASONING_FORMATS } from "./chat_format.ts";

/** Most answers to one prompt. */
const MAX_CHOICES = 128;

/** Optional, and null counts as absent: typed clients send null for what they leave out. */
export function opt<T extends z.ZodType>(schema: T) {
  return schema.nullish().transform((v) => v ?? undefined);
}

/**
 * Any JSON object, as it is: a schema that copies it would lose what parseJson() kept of its source, which templates print.
 */
export const jsonObject = z.custom<Record<string, unknown>>(
  (v) => typeof v === "object" && v !== null && !Array.isArray(v),
  { error: "expected an object" },
).meta({ type: "object" });
const jsonSchema = z.union([jsonObject, z.boolean()]);
const number = z.number();
/** JSON has one kind of number: 1.0 is an integer, 1e300 is one that gets clamped. */
const integer = z.number().refine(Number.isInteger, { error: "expected an integer" }).meta({ type: "integer" });
const count = integer.refine((n) => n >= -1, { error: "expected -1 (no limit) or a number of tokens" })
  .meta({ type: "integer", minimum: -1 });
const whole = integer.refine((n) => n >= 0, { error: "expected 0 or more" }).meta({ type: "integer", minimum: 0 });
const tokenId = integer.refine((n) => n >= 0 && n < 2 ** 31, { error: "expected a token id" })
  .meta({ type: "integer", minimum: 0 });

/** The settings of a sampler, llama-server's names; every route takes them. */
export const samplingSchema = z.object({
  temperature: opt(number.min(0)),
  top_k: opt(integer),
  top_p: opt(number.min(0).max(1)),
  min_p: opt(number.min(0).max(1)),
  typical_p: opt(number.min(0).max(1)),
  top_n_sigma: opt(number),
  xtc_probability: opt(number.min(0).max(1)),
  xtc_threshold: opt(number.min(0).max(1)),
  dynatemp_range: opt(number.min(0)),
  dynatemp_exponent: opt(number),
  repeat_penalty: opt(number.positive()),
  repeat_last_n: opt(integer.refine((n) => n >= -1, { error: "expected -1 or more" })),
  presence_penalty: opt(number),
  frequency_penalty: opt(number),
  dry_multiplier: opt(number.min(0)),
  dry_base: opt(number),
  dry_allowed_length: opt(integer),
  dry_penalty_last_n: opt(integer),
  dry_sequence_breakers: opt(z.array(z.string())),
  mirostat: opt(integer.min(0).max(2)),
  mirostat_tau: opt(number),
  mirostat_eta: opt(number),
  adaptive_target: opt(number),
  adaptive_decay: opt(number.min(0).max(0.99)),
  samplers: opt(z.union([z.array(z.string()), z.string()])),
  min_keep: opt(integer.min(0)),
  seed: opt(integer),
  ignore_eos: opt(z.boolean()),
  logit_bias: opt(
    z.union([
      z.record(z.string(), z.union([number, z.literal(false)])),
      z.array(z.tuple([z.union([tokenId, z.string()]), z.union([number, z.literal(false)])])),
    ]),
  ),
});

/** Sampling settings of a request, as the client wrote them. */
export type SamplingRequest = z.output<typeof samplingSchema>;

const stop = opt(z.union([z.string(), z.array(z.string()).max(64)]).transform((v) => typeof v === "string" ? [v] : v));

/** What every generation shares besides its sampler. */
const generationShape = {
  stream: opt(z.boolean()),
  stream_options: opt(z.object({ include_usage: opt(z.boolean()) })),
  sse_ping_interval: opt(
    integer.refine((n) => n >= -1, { error: "expected -1 or more" }).meta({ type: "integer", minimum: -1 }),
  ),
  stop,
  cache_prompt: opt(z.boolean()),
  speculative: opt(z.boolean()),
  lora: opt(z.array(z.looseObject({ id: integer, scale: number }))),
  id_slot: opt(integer.refine((n) => n >= -1, { error: "expected -1 (any) or a slot's number" })),
  grammar: opt(z.string()),
  grammar_lazy: opt(z.boolean()),
  grammar_triggers: opt(z.array(z.looseObject({ type: integer, value: opt(z.string()), token: opt(integer) }))),
  json_schema: opt(jsonSchema),
  response_format: opt(z.looseObject({
    type: z.string(),
    schema: opt(jsonSchema),
    json_schema: opt(z.looseObject({ schema: opt(jsonSchema), strict: opt(z.boolean()) })),
  })),
  n_predict: opt(count),
  max_tokens: opt(count),
  max_completion_tokens: opt(count),
  n_keep: opt(
    integer.refine((n) => n >= -1, { error: "expected -1 (the whole prompt) or a number of tokens" })
      .meta({ type: "integer", minimum: -1 }),
  ),
  n_discard: opt(whole),
  n_indent: opt(whole),
  t_max_predict_ms: opt(
    integer.refine((n) => n >= -1, { error: "expected -1 (no limit) or milliseconds" })
      .meta({ type: "integer", minimum: -1 }),
  ),
  timings_per_token: opt(z.boolean()),
  return_progress: opt(z.boolean()),
  post_sampling_probs: opt(z.boolean()),
  verbose: opt(z.boolean()),
};

const choices = opt(integer.min(1).max(MAX_CHOICES));
/** How many answers to return, of how many. */
const choicesShape = { n: choices, best_of: choices };

/**
 * How many answers to return, and of how many the likeliest are chosen.
 * @throws ApiError 400 when `best_of` is less than `n`, and in streams, which would send answers before the best is known.
 */
export function choicesOf(request: {
  n?: number | undefined;
  best_of?: number | undefined;
  stream?: boolean | undefined;
}): { n: number; best_of: number } {
  const n = request.n ?? 1, best_of = request.best_of ?? n;
  if (best_of < n) throw badRequest(`best_of: expected at least n = ${n}, found ${best_of}`, "best_of");
  if (best_of > n && request.stream) throw unsupported("best_of", "the best of several answers cannot be streamed");
  return { n, best_of };
}

/** A text as llama-server's clients wrap it where pictures may come with it. */
const wrappedPrompt = z.looseObject({ prompt_string: z.string(), multimodal_data: opt(z.array(z.unknown())) });
const promptPieces = z.array(z.union([z.string(), tokenId]));
/** A text, token ids, a mix, or several of them. */
export const promptSchema = z.union([
  z.string(),
  wrappedPrompt,
  z.array(z.union([z.string(), tokenId, wrappedPrompt, promptPieces])),
], { error: "expected a string, an array of token ids and strings, or an array of prompts" });

/** /completion */
export const completionSchema = samplingSchema.extend({
  ...generationShape,
  prompt: promptSchema,
  n_probs: opt(integer.min(0)),
  return_tokens: opt(z.boolean()),
  n: choices,
  n_cmpl: choices,
  response_fields: opt(z.array(z.string())),
});
export type CompletionRequest = z.output<typeof completionSchema>;

/** /v1/completions */
export const openaiCompletionSchema = samplingSchema.extend({
  ...generationShape,
  model: opt(z.string()),
  prompt: promptSchema,
  echo: opt(z.boolean()),
  logprobs: opt(z.union([integer.min(0), z.boolean()])),
  ...choicesShape,
  suffix: opt(z.string()),
});
export type OpenaiCompletionRequest = z.output<typeof openaiCompletionSchema>;

const contentPart = z.looseObject({ type: z.string(), text: opt(z.string()) });

const toolCall = z.looseObject({
  id: opt(z.string()),
  type: opt(z.string()),
  function: z.looseObject({
    name: z.string(),
    arguments: z.union([z.string(), jsonObject]).nullish(),
  }),
});

const message = z.looseObject({
  role: z.string().min(1),
  content: z.union([z.string(), z.array(contentPart)], { error: "expected a string or an array of parts" }).nullish(),
  reasoning_content: z.string().nullish(),
  name: opt(z.string()),
  tool_call_id: opt(z.string()),
  tool_calls: z.array(toolCall).nullish(),
});

const tool = z.looseObject({
  type: z.literal("function"),
  function: z.looseObject({
    name: z.string().min(1),
    description: z.string().nullish(),
    parameters: jsonObject.nullish(),
    strict: opt(z.boolean()),
  }),
});

/** What a template needs; /apply-template takes just this. */
const conversationShape = {
  messages: z.array(message).min(1),
  tools: opt(z.array(tool)),
  tool_choice: opt(z.union([
    z.enum(["none", "auto", "required"]),
    z.looseObject({ type: z.literal("function"), function: z.looseObject({ name: z.string() }) }),
  ])),
  parallel_tool_calls: opt(z.boolean()),
  chat_template_kwargs: opt(jsonObject),
  reasoning_effort: opt(z.string()),
  add_generation_prompt: opt(z.boolean()),
  continue_final_message: opt(z.boolean()),
};

export const conversationSchema = z.object(conversationShape);
export type Conversation = z.output<typeof conversationSchema>;
export type ChatRequestMessage = Conversation["messages"][number];

/** /v1/chat/completions */
export const chatSchema = samplingSchema.extend({
  ...conversationShape,
  ...generationShape,
  model: opt(z.string()),
  ...choicesShape,
  logprobs: opt(z.boolean()),
  top_logprobs: opt(integer.min(0).max(20)),
  reasoning_format: opt(z.enum(REASONING_FORMATS)),
  reasoning_budget_tokens: opt(count),
  thinking_budget_tokens: opt(count),
  reasoning_budget_message: opt(z.string()),
  reasoning_control: opt(z.boolean()),
  functions: opt(z.unknown()),
  function_call: opt(z.unknown()),
  modalities: opt(z.array(z.string())),
});
export type ChatRequest = z.output<typeof chatSchema>;

export const tokenizeSchema = z.object({
  content: opt(z.union([z.string(), z.array(z.union([z.string(), tokenId]))], {
    error: "expected a string, or an array of token ids and strings",
  })),
  add_special: opt(z.boolean()),
  parse_special: opt(z.boolean()),
  with_pieces: opt(z.boolean()),
});

export const detokenizeSchema = z.object({ tokens: z.array(tokenId) });

/** Deeper bodies are refused before anything walks them by recursion. */
const MAX_DEPTH = 256;

/**
 * Parses and checks a body.
 * @throws ApiError 400 with the name of the first wrong field.
 */
export function parseBody<S extends z.ZodType>(schema: S, text: string): z.output<S> {
  const value = parseJsonBody(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw badRequest(`The body is ${kindOf(value)}, expected an object`, undefined, "invalid_type");
  }
  return checkValue(schema, value);
}

/**
 * Parses a body of any kind.
 * @throws ApiError 400
 */
export function parseJsonBody(text: string): unknown {
  if (nestingDepth(text) > MAX_DEPTH) {
    throw badRequest(`The body is nested deeper than ${MAX_DEPTH} levels`, undefined, "body_too_deep");
  }
  try {
    return parseJson(text);
  } catch (cause) {
    const message = `The body is not JSON: ${(cause as Error).message}`;
    throw new ApiError(400, "invalid_request_error", "invalid_json", message, { cause });
  }
}

/**
 * Checks a value.
 * @throws ApiError 400 with the name of the first wrong field.
 */
export function checkValue<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return result.data;
  throw fromIssue(result.error.issues[0]);
}

/** Deepest nesting of brackets outside strings. */
function nestingDepth(text: string): number {
  let depth = 0, deepest = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) { // "
      for (i++; i < text.length && text.charCodeAt(i) !== 0x22; i++) if (text.charCodeAt(i) === 0x5c) i++;
    } else if (c === 0x5b || c === 0x7b) { // [ {
      if (++depth > deepest) deepest = depth;
    } else if (c === 0x5d || c === 0x7d) {
      depth--;
    }
  }
  return deepest;
}

type Issue = z.core.$ZodIssue;

/** Says an issue of zod in our words: the field, what was expected, what was found. */
function fromIssue(issue: Issue): ApiError {
  const deepest = closest(issue);
  const param = fieldName(deepest.path);
  const found = kindOf(deepest.input);
  const missing = deepest.input === undefined;
  const text = missing ? `${param}: required, and missing` : `${param}: ${wanted(deepest)}, found ${found}`;
  return badRequest(text, param, missing ? "missing_required_parameter" : "invalid_value");
}

/** Of a union's alternatives the one that matched furthest; on a tie the union's own message is used. */
function closest(issue: Issue): Issue {
  if (issue.code !== "invalid_union") return issue;
  let best: Issue = issue;
  for (const alternative of issue.errors) {
    for (const inner of alternative) {
      const at = closest({ ...inner, path: [...issue.path, ...inner.path] } as Issue);
      if (at.path.length > best.path.length) best = at;
    }
  }
  return best;
}

function wanted(issue: Issue): string {
  switch (issue.code) {
    case "invalid_type":
      return `expected ${issue.expected === "record" ? "object" : issue.expected}`;
    case "too_small":
      return `expected ${issue.origin === "number" ? "" : "a length of "}at least ${issue.minimum}`;
    case "too_big":
      return `expected ${issue.origin === "number" ? "" : "a length of "}at most ${issue.maximum}`;
    case "invalid_value":
      return `expected ${issue.values.map((v) => JSON.stringify(v)).join(", ")}`;
    case "invalid_union":
      if (issue.message !== "Invalid input") return issue.message;
      return "expected " +
        [...new Set(issue.errors.map(([first]) => wanted(first).replace(/^expected /, "")))].join(" or ");
    default:
      return issue.message;
  }
}

/** `messages[2].content` */
function fieldName(path: readonly PropertyKey[]): string {
  return path.map((p, i) => typeof p === "number" ? `[${p}]` : i === 0 ? String(p) : `.${String(p)}`).join("");
}

/** Describes a value in few words. */
function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "string") return value.length > 40 ? "a string" : JSON.stringify(value);
  if (typeof value === "object") return "an object";
  return String(value);
}
