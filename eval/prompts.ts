/**
 * Prompts as JSONL, one a line, and the windows that score and eval run of them:
 *
 * - `{"prompt": "…", "completion": "…"}`: the completion's tokens are scored;
 * - `{"prompt": "…"}`: all of its tokens;
 * - `{"messages": […], "tools"?: […], "kwargs"?: {…}}`: a conversation through the chat template; a last message of the assistant is
 *   what is scored, otherwise all is;
 * - `{"text": "…"}`: markers of special tokens in it are plain text;
 * - `{"ids": […], "skip"?: n}`: token ids as they are.
 *
 * `"set"` names the set that a line belongs to (a language, a task): results are given for each. Other fields are left alone.
 * @module
 */
import type { ChatFormat } from "../core/chat/format.ts";
import type { ChatMessage } from "../core/chat/messages.ts";
import { EvalError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import { scoredPositions, useBos, type Window } from "./windows.ts";

/** A conversation of a line. */
export interface PromptChat {
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly unknown[];
  readonly kwargs?: Readonly<Record<string, unknown>>;
}

/** A line of a file of prompts. */
export type Prompt =
  & { readonly file: string; readonly line: number; readonly set: string }
  & (
    | { readonly kind: "prompt"; readonly prompt: string; readonly completion: string }
    | { readonly kind: "chat"; readonly chat: PromptChat }
    | { readonly kind: "text"; readonly text: string }
    | { readonly kind: "ids"; readonly ids: readonly number[]; readonly skip: number }
  );

/** What makes tokens of prompts: a model, or the parts of one. */
export interface PromptModel {
  readonly tokenizer: Tokenizer;
  readonly format: ChatFormat | undefined;
  encodeChat(prompt: string): Int32Array;
}

const KINDS = ["prompt", "messages", "text", "ids"] as const;

type Json = Record<string, unknown>;

const isObject = (v: unknown): v is Json => typeof v === "object" && v !== null && !Array.isArray(v);

function wrong(file: string, line: number, what: string, cause?: unknown): EvalError {
  return new EvalError("eval.prompts", `Cannot read ${file}, line ${line}: ${what}`, {
    at: { file, line },
    hint: 'give one object a line: {"prompt": …, "completion": …}, {"messages": […]}, {"text": …} or {"ids": […]}',
    ...(cause === undefined ? {} : { cause }),
  });
}

function readPrompt(value: unknown, file: string, line: number, name: string): Prompt {
  const refuse = (what: string) => wrong(file, line, what);
  if (!isObject(value)) throw refuse("found no JSON object");
  const kinds = KINDS.filter((k) => value[k] !== undefined);
  if (kinds.length !== 1) {
    throw refuse(`found ${kinds.length === 0 ? "none" : kinds.join(" and ")} of ${KINDS.join(", ")}, expected one`);
  }
  const text = (field: string, v: unknown): string => {
    if (typeof v === "string") return v;
    throw refuse(`${field} is no text`);
  };
  const place = { file, line, set: value.set === undefined ? name : text("set", value.set) };
  const { prompt, completion, messages, tools, kwargs, ids, skip } = value;
  if (kinds[0] === "prompt") {
    return {
      ...place,
      kind: "prompt",
      prompt: text("prompt", prompt),
      completion: completion === undefined ? "" : text("completion", completion),
    };
  }
  if (kinds[0] === "text") return { ...place, kind: "text", text: text("text", value.text) };
  if (kinds[0] === "ids") {
    if (!Array.isArray(ids) || !ids.every((id) => Number.isInteger(id) && id >= 0)) {
      throw refuse("ids is no list of whole numbers from 0");
    }
    if (skip !== undefined && !(Number.isInteger(skip) && (skip as number) >= 0)) {
      throw refuse("skip is no whole number from 0");
    }
    return { ...place, kind: "ids", ids, skip: (skip ?? 0) as number };
  }
  if (
    !Array.isArray(messages) || messages.length === 0 ||
    !messages.every((m) => isObject(m) && typeof m.role === "string")
  ) throw refuse("messages is no list of objects with a role");
  if (tools !== undefined && !Array.isArray(tools)) throw refuse("tools is no list");
  if (kwargs !== undefined && !isObject(kwargs)) throw refuse("kwargs is no object");
  return {
    ...place,
    kind: "chat",
    chat: { messages, ...(tools === undefined ? {} : { tools }), ...(kwargs === undefined ? {} : { kwargs }) },
  };
}

/**
 * Reads a file of prompts; empty lines do not count.
 * @param name The set of lines that name none.
 * @throws {EvalError} `eval.prompts` naming file and line
 */
export function parsePrompts(text: string, file: string, name: string): Prompt[] {
  const prompts: Prompt[] = [];
  for (const [i, row] of text.split("\n").entries()) {
    if (row.trim() === "") continue;
    let value: unknown;
    try {
      value = parseJson(row);
    } catch (cause) {
      throw wrong(file, i + 1, (cause as Error).message, cause);
    }
    prompts.push(readPrompt(value, file, i + 1, name));
  }
  if (prompts.length === 0) throw wrong(file, 1, "found no prompt");
  return prompts;
}

/** Tokens that two lists begin with. */
function commonStart(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

/** A conversation's prompt and whole as text; equal where the last message is not the assistant's. */
function renderChat(p: Prompt & { kind: "chat" }, format: ChatFormat | undefined): { prompt: string; whole: string } {
  if (format === undefined) {
    throw new EvalError("eval.no_template", `Cannot use ${p.file}, line ${p.line}: the model has no chat template`, {
      at: { file: p.file, line: p.line },
      hint: "give prompts as text, or a model with tokenizer.chat_template",
    });
  }
  const { messages, tools, kwargs } = p.chat;
  const render = (messages: readonly ChatMessage[], addGenerationPrompt: boolean) =>
    format.renderText({
      messages: [...messages],
      addGenerationPrompt,
      ...(tools ? { tools: [...tools] } : {}),
      ...(kwargs ? { kwargs: { ...kwargs } } : {}),
    });
  if (messages.at(-1)!.role === "assistant") {
    return { prompt: render(messages.slice(0, -1), true), whole: render(messages, false) };
  }
  const whole = render(messages, true);
  return { prompt: "", whole };
}

/** Tokens of a prompt, and how many of them are given and not scored: none where all is to be scored. */
function tokensOf(p: Prompt, model: PromptModel): { ids: Int32Array; given: number } {
  const { tokenizer } = model;
  const encode = (text: string) => tokenizer.encode(text, { addSpecial: true, parseSpecial: true });
  if (p.kind === "ids") return { ids: Int32Array.from(p.ids), given: p.skip + 1 };
  if (p.kind === "text") return { ids: tokenizer.encode(p.text, { addSpecial: true }), given: 0 };
  if (p.kind === "chat") {
    const { prompt, whole } = renderChat(p, model.format);
    const ids = model.encodeChat(whole);
    return { ids, given: prompt === "" ? 0 : commonStart(ids, model.encodeChat(prompt)) };
  }
  // A token that spans the border belongs to the completion: it is the model's choice that is scored.
  const ids = encode(p.prompt + p.completion);
  return { ids, given: p.completion === "" ? 0 : commonStart(ids, encode(p.prompt)) };
}

/**
 * The windows of prompts, one each. What is scored begins after the tokens that the prompt alone has too; the first token of all
 * is never scored.
 * @param n_ctx The most tokens of one.
 * @throws {EvalError} `eval.prompt_too_long`, `eval.text_too_short`, `eval.token_id`, `eval.no_template`, `eval.no_bos`
 */
export function promptWindows(
  prompts: readonly Prompt[],
  model: PromptModel,
  options: { readonly n_ctx: number; readonly bos?: boolean },
): Window[] {
  const { tokenizer } = model;
  const bos = useBos(tokenizer, options.bos);
  const counts = new Map<string, number>();
  return prompts.map((p) => {
    const at = { file: p.file, line: p.line };
    const where = `Cannot score ${p.file}, line ${p.line}`;
    let { ids, given } = tokensOf(p, model);
    if (bos && p.kind !== "ids" && ids[0] !== tokenizer.bos) {
      ids = Int32Array.from([tokenizer.bos!, ...ids]);
      given++;
    }
    const skip = Math.max(1, given) - 1;
    const outside = ids.findIndex((id) => id >= tokenizer.n_vocab);
    if (outside >= 0) {
      throw new EvalError("eval.token_id", `${where}: token ${ids[outside]}, expected 0 to ${tokenizer.n_vocab - 1}`, {
        at: { ...at, index: outside, got: ids[outside], n_vocab: tokenizer.n_vocab },
      });
    }
    if (scoredPositions(ids.length, skip) < 1) {
      throw new EvalError(
        "eval.text_too_short",
        `${where}: it has ${ids.length} tokens, expected at least ${skip + 2}`,
        {
          at: { ...at, got: ids.length, expected: skip + 2 },
          hint: "the first token is context and predicted by nothing: give more text",
        },
      );
    }
    if (ids.length > options.n_ctx) {
      throw new EvalError(
        "eval.prompt_too_long",
        `${where}: it has ${ids.length} tokens, expected at most ${options.n_ctx}`,
        {
          at: { ...at, got: ids.length, expected: options.n_ctx },
          hint: `give --ctx-size ${ids.length} or more`,
        },
      );
    }
    const index = counts.get(p.set) ?? 0;
    counts.set(p.set, index + 1);
    return { source: p.set, index, ids, skip };
  });
}
