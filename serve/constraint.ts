/**
 * Enforces the form that a request asks for, a grammar or a JSON schema, from the answer's first token on or from the end
 * of its reasoning.
 * @module
 */
import type { AnswerTracker } from "../core/chat/tracker.ts";
import { BloomeryError } from "../core/errors.ts";
import {
  compileGbnf,
  compileJsonSchema,
  type Grammar,
  GrammarMatcher,
  type GrammarTrigger,
  TriggerWatch,
  VocabTrie,
} from "../core/sampling/grammar/mod.ts";
import type { AnswerConstraint } from "./answer_constraint.ts";
import { ApiError, badRequest, unsupported } from "./errors.ts";
import type { CallForm } from "./forced_call.ts";
import { CallOpening, LazyConstraint } from "./lazy_constraint.ts";
import type { ServedModel } from "./language_model.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** The fields that ask for a form. */
export interface FormRequest {
  grammar?: string | undefined;
  /** The grammar is in force from one of its triggers on, and nothing before. */
  grammar_lazy?: boolean | undefined;
  grammar_triggers?: readonly TriggerRequest[] | undefined;
  json_schema?: unknown;
  response_format?: ResponseFormat | undefined;
  /** A call that the answer must be. */
  call?: CallForm | undefined;
}

/** A trigger as llama-server's clients write it: type 0 is a token, 1 a word, 2 and 3 are patterns. */
export interface TriggerRequest {
  type: number;
  value?: string | undefined;
  token?: number | undefined;
}

/** OpenAI's `response_format`; llama-server also takes a schema beside `json_object`. */
export interface ResponseFormat {
  type: string;
  schema?: unknown;
  json_schema?: { schema?: unknown; strict?: boolean | null | undefined } | undefined;
}

/** Reasoning that may come before the form does. */
export interface BeforeForm {
  tracker: AnswerTracker;
  /** The prompt has opened it. */
  open: boolean;
  /** The tag by which an answer opens it; undefined where the answer must not. */
  opener: string | undefined;
}

/**
 * The constraint that a request asks for, undefined where it asks for none. A grammar or schema that the request names
 * itself holds from the first token unless the prompt has opened the reasoning; other forms let the model reason first,
 * where it may.
 * @param warn Receives the keywords of a schema that the form does not keep; `strict` schemas are refused for them.
 * @throws ApiError 400 naming the field, for a form that cannot be compiled.
 */
export function constraintOf(
  request: FormRequest,
  model: ServedModel,
  reasoning?: BeforeForm,
  warn: (text: string) => void = () => {},
): AnswerConstraint | undefined {
  const forms = formsOf(request), grammar = grammarOf(forms, warn);
  const triggers = triggersOf(request, model);
  if (grammar === undefined) return undefined;
  if (triggers !== undefined) {
    const { tokenizer } = model, watch = watchFor(triggers);
    return new LazyConstraint({
      begin: () => new GrammarMatcher(grammar, vocabOf(model)),
      opening: {
        bytes: (token) => watch.push(token, tokenizer.pieceBytes(token, true)),
        left: () => {},
      },
      bytesOf: (token) => shownBytes(model, token),
      eogIds: tokenizer.eogIds,
    });
  }
  const named = forms[0].param === "grammar" || forms[0].param === "json_schema";
  return new Constraint(new GrammarMatcher(grammar, vocabOf(model)), model, {
    reasoning: reasoning && named ? { ...reasoning, opener: undefined } : reasoning,
    markers: request.call !== undefined,
  });
}

/** The triggers of a lazy grammar; undefined when the grammar is in force at once. */
function triggersOf(request: FormRequest, { tokenizer }: ServedModel): GrammarTrigger[] | undefined {
  if (!request.grammar_lazy) return undefined;
  if (!request.grammar) throw badRequest("grammar_lazy: needs a grammar", "grammar_lazy");
  const given = request.grammar_triggers ?? [];
  if (given.length === 0) {
    throw badRequest("grammar_lazy: needs grammar_triggers, and there are none", "grammar_triggers");
  }
  return given.map(({ type, value, token }, i) => {
    const param = `grammar_triggers[${i}]`;
    if (type === 1 && value) return { word: value };
    if ((type === 2 || type === 3) && value) return { pattern: value, whole: type === 3 };
    if (type !== 0) {
      const wanted = 'type 0 (a token), 1 (a word), 2 (a pattern) or 3 (a pattern of the whole text), with a "value"';
      throw badRequest(`${param}: expected ${wanted}, found ${JSON.stringify(given[i])}`, param);
    }
    const ids = token === undefined
      ? tokenizer.encode(value ?? "", { addSpecial: false, parseSpecial: true })
      : Int32Array.of(token);
    if (ids.length !== 1 || ids[0] < 0 || ids[0] >= tokenizer.n_vocab) {
      throw badRequest(`${param}: expected one token of the vocabulary, found ${JSON.stringify(given[i])}`, param);
    }
    return { token: ids[0] };
  });
}

function watchFor(triggers: readonly GrammarTrigger[]): TriggerWatch {
  try {
    return new TriggerWatch(triggers);
  } catch (cause) {
    if (!(cause instanceof BloomeryError)) throw cause;
    const param = "grammar_triggers";
    throw new ApiError(400, "invalid_request_error", "invalid_form", `${param}: ${cause.message}`, {
      param,
      apiCode: cause.code,
      cause,
    });
  }
}

/** A form: the field that asks for it, its text, and how to compile it. */
interface Form {
  param: string;
  key: string;
  /** Whether a keyword must be enforced, by its place: the request is refused where that cannot be. */
  strict?: (ignored: string) => boolean;
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
      const must = grammar.ignored.filter((at) => strict?.(at));
      if (must.length > 0) {
        const message = `${param}: strict is true, and the server cannot enforce ${listOf(must)}`;
        throw badRequest(message, param, "unsupported_parameter");
      }
      if (!known) warn(`${param}: the server does not enforce ${listOf(grammar.ignored)}`);
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
  return { param, strict: () => strict, key: `\0${JSON.stringify(schema)}`, compile: () => compileJsonSchema(schema) };
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

/** Forms of tools that could not be compiled: the server warns once about each. */
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

/**
 * The constraint of an answer that may call tools: it enforces nothing until a call begins. Undefined when the family has no
 * form, or when the tools' parameters cannot be compiled, which `warn` receives.
 */
export function lazyConstraint(
  call: Form,
  model: ServedModel,
  tracker: AnswerTracker,
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
    warn(`tools: the server does not enforce the tools' parameters: ${error.message}`);
    return undefined;
  }
  if (!known && grammar.ignored.length > 0) warn(`tools: the server does not enforce ${listOf(grammar.ignored)}`);
  return new LazyConstraint({
    begin: () => new GrammarMatcher(grammar, vocabOf(model)),
    opening: new CallOpening(tracker, chat.callTriggers),
    bytesOf: (token) => shownBytes(model, token),
    eogIds: tokenizer.eogIds,
  });
}

function listOf(places: readonly string[]): string {
  return `${places.slice(0, 3).join(", ")}${places.length > 3 ? ` and ${places.length - 3} more` : ""}`;
}

export class Constraint implements AnswerConstraint {
  readonly #matcher: GrammarMatcher;
  readonly #model: ServedModel;
  readonly #tracker: AnswerTracker | undefined;
  /** The one token that opens a reasoning block; without one, only the prompt can open it. */
  readonly #opener: number | undefined;
  #phase: "start" | "reasoning" | "form";
  /** Control tokens, which only calls are written with. */
  readonly #forbidden: readonly number[];

  /** @param markers The form has control tokens in it, by their text. */
  constructor(
    matcher: GrammarMatcher,
    model: ServedModel,
    { reasoning, markers }: { reasoning: BeforeForm | undefined; markers: boolean },
  ) {
    const { tokenizer } = model;
    this.#model = model;
    this.#matcher = matcher;
    this.#tracker = reasoning?.tracker;
    this.#forbidden = markers ? [] : [...model.chat.preservedTokens].filter((id) => tokenizer.isControl(id));
    if (reasoning?.opener !== undefined) {
      const ids = tokenizer.encode(reasoning.opener, { addSpecial: false, parseSpecial: true });
      this.#opener = ids.length === 1 ? ids[0] : undefined;
    }
    this.#phase = reasoning?.open ? "reasoning" : this.#opener === undefined ? "form" : "start";
  }

  get active(): boolean {
    return this.#phase !== "reasoning";
  }

  get finished(): boolean {
    return this.#phase === "form" && this.#matcher.finished;
  }

  apply(logits: Float32Array): void {
    const { eogIds } = this.#model.tokenizer;
    const opener = this.#phase === "start" ? this.#opener! : -1;
    const logit = logits[opener];
    this.#matcher.apply(logits, eogIds);
    for (const id of this.#forbidden) if (!eogIds.has(id)) logits[id] = -Infinity;
    if (opener >= 0) logits[opener] = logit;
  }

  accept(token: number): void {
    if (this.#phase === "start") this.#phase = token === this.#opener ? "reasoning" : "form";
    if (this.#phase === "form") {
      this.#matcher.accept(shownBytes(this.#model, token));
      return;
    }
    const from = this.#tracker!.answerFrom;
    if (from === undefined) return;
    this.#phase = "form";
    // A token may hold the tag's end and the beginning of the answer.
    const bytes = this.#tracker!.bytesSince(from);
    const begin = bytes.findIndex((b) => b !== 0x20 && (b < 9 || b > 13));
    if (begin >= 0) this.#matcher.accept(bytes.subarray(begin));
  }
}
