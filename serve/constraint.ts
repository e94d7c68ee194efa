/**
 * What an answer must look like, when the request says so: a grammar or a JSON schema, in force from the answer's first
 * character on, or from the end of its reasoning.
 * @module
 */
import { BloomeryError } from "../core/errors.ts";
import {
  compileGbnf,
  compileJsonSchema,
  type Grammar,
  GrammarMatcher,
  VocabTrie,
} from "../core/sampling/grammar/mod.ts";
import { ApiError, badRequest, unsupported } from "./errors.ts";
import type { CallForm } from "./forced_call.ts";
import { LazyConstraint } from "./lazy_constraint.ts";
import type { ServedModel, Tokenizer } from "./model.ts";

/** The fields that ask for a form. */
export interface FormRequest {
  grammar?: string | undefined;
  json_schema?: unknown;
  response_format?: ResponseFormat | undefined;
  /** A call that the answer must be. */
  call?: CallForm | undefined;
}

/** OpenAI's `response_format`; llama-server also takes a schema beside `json_object`. */
export interface ResponseFormat {
  type: string;
  schema?: unknown;
  json_schema?: { schema?: unknown; strict?: boolean | null | undefined } | undefined;
}

/** Reasoning that may come before the form does. */
export interface ReasoningBlock {
  start: string;
  end: string;
  /** The prompt opened it already. */
  open: boolean;
}

/**
 * The constraint that a request asks for, undefined where it asks for none.
 * @param warn Told of keywords of a schema that are not kept; `strict` schemas are refused for them.
 * @throws ApiError 400 naming the field, for a form that cannot be compiled.
 */
export function constraintOf(
  request: FormRequest,
  model: ServedModel,
  reasoning?: ReasoningBlock,
  warn: (text: string) => void = () => {},
): Constraint | undefined {
  const grammar = grammarOf(formsOf(request), warn);
  return grammar && new Constraint(new GrammarMatcher(grammar, vocabOf(model)), model, {
    reasoning,
    markers: request.call !== undefined,
  });
}

/** A form: the field that asks for it, its text, and how to compile it. */
interface Form {
  param: string;
  key: string;
  /** Every keyword of its schema is to be kept. */
  strict?: boolean;
  compile: () => Grammar;
}

function formsOf({ grammar, json_schema, response_format: format, call }: FormRequest): Form[] {
  return [
    ...(grammar ? [{ param: "grammar", key: grammar, compile: () => compileGbnf(grammar) }] : []),
    ...(json_schema === undefined ? [] : [schemaForm("json_schema", json_schema)]),
    ...(format === undefined ? [] : formOf(format)),
    ...(call === undefined ? [] : [call]),
  ];
}

function grammarOf(given: Form[], warn: (text: string) => void): Grammar | undefined {
  if (given.length > 1) throw unsupported(given[1].param, `cannot be combined with ${given[0].param}`);
  if (given.length === 0) return undefined;
  const [{ param, key, compile, strict }] = given;
  try {
    const known = recent.has(key);
    const grammar = compiled(key, compile);
    if (grammar.ignored.length > 0) {
      const what = notKept(grammar);
      if (strict) throw badRequest(`${param}: strict is true, and this is ${what}`, param, "unsupported_parameter");
      if (!known) warn(`${param}: ${what}`);
    }
    return grammar;
  } catch (cause) {
    if (!(cause instanceof BloomeryError) || cause instanceof ApiError) throw cause;
    throw new ApiError(400, "invalid_request_error", "invalid_form", `${param}: ${cause.message}`, {
      param,
      apiCode: cause.code,
      cause,
    });
  }
}

function schemaForm(param: string, schema: unknown, strict = false): Form {
  return { param, strict, key: `\0${JSON.stringify(schema)}`, compile: () => compileJsonSchema(schema) };
}

function formOf(format: ResponseFormat): Form[] {
  switch (format.type) {
    case "text":
      return [];
    case "json_object":
      return [schemaForm("response_format", format.schema ?? { type: "object" })];
    case "json_schema":
      return [
        schemaForm(
          "response_format.json_schema",
          format.json_schema?.schema ?? format.schema ?? {},
          format.json_schema?.strict ?? false,
        ),
      ];
    default:
      throw unsupported("response_format.type", `expected text, json_object or json_schema, found "${format.type}"`);
  }
}

/** Grammars by their text: answers of one form share what a grammar learns of the vocabulary. */
const recent = new Map<string, Grammar>();
const MAX_RECENT = 16;

function compiled(key: string, compile: () => Grammar): Grammar {
  const grammar = recent.get(key) ?? compile();
  recent.delete(key); // and in again, as the latest
  recent.set(key, grammar);
  if (recent.size > MAX_RECENT) recent.delete(recent.keys().next().value!);
  return grammar;
}

/** Forms of tools that could not be compiled, which is told once. */
const failed = new Set<string>();

const vocabs = new WeakMap<Tokenizer, VocabTrie>();

/** Arranges a vocabulary for grammars, which takes some tenths of a second: when a server starts, not when it answers. */
export function prepareVocabulary(model: ServedModel): void {
  vocabOf(model);
}

function vocabOf(model: ServedModel): VocabTrie {
  const { tokenizer } = model;
  let vocab = vocabs.get(tokenizer);
  if (vocab === undefined) {
    vocabs.set(tokenizer, vocab = new VocabTrie(tokenizer.n_vocab, (id) => shownBytes(model, id)));
  }
  return vocab;
}

/** A token's bytes as the parser sees them: those of markers too. */
function shownBytes({ tokenizer, chat }: ServedModel, id: number): Uint8Array {
  return tokenizer.pieceBytes(id, chat.preservedTokens.has(id) && !tokenizer.eogIds.has(id));
}

/** What may come next in an answer, as a generation asks. */
export interface AnswerConstraint {
  /** Whole rows of logits are wanted, for `apply` to mask: it leaves them as they are where no form is in force yet. */
  readonly active: boolean;
  /** The form is complete and nothing can follow. */
  readonly finished: boolean;
  /**
   * Forbids in a row of logits what may not come next.
   * @throws TextError `text.no_candidate` where the vocabulary cannot write what the form asks for.
   */
  apply(logits: Float32Array): void;
  /** Goes on by the chosen token. */
  accept(token: number): void;
}

/**
 * The constraint of an answer that may call tools: none until a call begins. Undefined where the family has no form, or
 * the tools' parameters cannot be compiled, of which `warn` is told.
 */
export function lazyConstraint(
  call: Form,
  model: ServedModel,
  reasoning: ReasoningBlock | undefined,
  warn: (text: string) => void,
): AnswerConstraint | undefined {
  const { chat, tokenizer } = model;
  if (chat.callTriggers.length === 0 || failed.has(call.key)) return undefined;
  const known = recent.has(call.key);
  let grammar: Grammar;
  try {
    grammar = compiled(call.key, call.compile);
  } catch (error) {
    if (!(error instanceof BloomeryError)) throw error;
    failed.add(call.key);
    if (failed.size > MAX_RECENT) failed.delete(failed.keys().next().value!);
    warn(`tools: calls are not held to the tools' parameters: ${error.message}`);
    return undefined;
  }
  if (!known && grammar.ignored.length > 0) warn(`tools: ${notKept(grammar)}`);
  return new LazyConstraint({
    matcher: new GrammarMatcher(grammar, vocabOf(model)),
    triggers: chat.callTriggers,
    bytesOf: (token) => shownBytes(model, token),
    eogIds: tokenizer.eogIds,
    reasoning,
    callEndsReasoning: chat.callEndsReasoning,
  });
}

function notKept({ ignored }: Grammar): string {
  return `not kept of the schema: ${ignored.slice(0, 10).join(", ")}${ignored.length > 10 ? ", …" : ""}`;
}

export class Constraint implements AnswerConstraint {
  readonly active = true;
  readonly #matcher: GrammarMatcher;
  readonly #tokenizer: Tokenizer;
  readonly #reasoning: ReasoningBlock | undefined;
  /** The one token that opens a reasoning block; without one, only the prompt can open it. */
  readonly #opener: number | undefined;
  #phase: "start" | "reasoning" | "form";
  #thought = "";
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #model: ServedModel;
  /** Control tokens, which only calls are written with. */
  readonly #forbidden: readonly number[];

  /** @param markers The form has control tokens in it, by their text. */
  constructor(
    matcher: GrammarMatcher,
    model: ServedModel,
    { reasoning, markers }: { reasoning: ReasoningBlock | undefined; markers: boolean },
  ) {
    const { tokenizer } = model;
    this.#model = model;
    this.#matcher = matcher;
    this.#tokenizer = tokenizer;
    this.#reasoning = reasoning;
    this.#forbidden = markers ? [] : [...model.chat.preservedTokens].filter((id) => tokenizer.isControl(id));
    if (reasoning !== undefined) {
      const ids = tokenizer.encode(reasoning.start, { addSpecial: false, parseSpecial: true });
      this.#opener = ids.length === 1 ? ids[0] : undefined;
    }
    this.#phase = reasoning?.open ? "reasoning" : this.#opener === undefined ? "form" : "start";
  }

  get finished(): boolean {
    return this.#phase === "form" && this.#matcher.finished;
  }

  apply(logits: Float32Array): void {
    if (this.#phase === "reasoning") return;
    const opener = this.#phase === "start" ? this.#opener! : -1;
    const logit = logits[opener];
    this.#matcher.apply(logits, this.#tokenizer.eogIds);
    for (const id of this.#forbidden) if (!this.#tokenizer.eogIds.has(id)) logits[id] = -Infinity;
    if (opener >= 0) logits[opener] = logit;
  }

  accept(token: number): void {
    if (this.#phase === "start") {
      this.#phase = token === this.#opener ? "reasoning" : "form";
      if (this.#phase === "reasoning") return;
    }
    if (this.#phase === "form") {
      this.#matcher.accept(shownBytes(this.#model, token));
      return;
    }
    this.#thought += this.#decoder.decode(this.#tokenizer.pieceBytes(token, true), { stream: true });
    const { end } = this.#reasoning!;
    const at = this.#thought.indexOf(end);
    if (at >= 0) {
      this.#phase = "form";
      // A token may hold the tag's end and the beginning of the answer.
      const rest = this.#thought.slice(at + end.length).trimStart();
      if (rest !== "") this.#matcher.accept(new TextEncoder().encode(rest));
    } else {
      this.#thought = this.#thought.slice(-end.length);
    }
  }
}
