/**
 * Teachers: models behind an OpenAI-compatible API, asked for greedy answers with log-probabilities.
 *
 * What an API does differently from what a comparison needs is refused by name; what passes (limits of rates, overload, cut
 * answers) is tried again. An answer counts when it is whole, so that nothing is counted twice.
 * @module
 */
import { EvalError } from "../core/errors.ts";
import { pause, reasonOf, Retryable, retryAfterMs } from "../core/retry.ts";
import type { ChatMessage } from "../core/chat/messages.ts";
import type { Prompt } from "./prompts.ts";

/** Where a teacher is and what is asked of it. */
export interface TeacherOptions {
  /** Address of the API: what stands before `/chat/completions`. */
  readonly url: string;
  readonly model: string;
  readonly api: "chat" | "completions";
  readonly apiKey?: string | undefined;
  /** Candidates a position that are asked for. */
  readonly top_k: number;
  /** The most tokens of an answer. */
  readonly max_tokens: number;
  readonly signal?: AbortSignal | undefined;
  /** Waits between attempts; a test's returns at once. */
  readonly sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
  /** What goes wrong and is tried again. */
  readonly onRetry?: (text: string) => void;
}

/** What a teacher is asked. */
export interface Question {
  /** Number in the file of prompts, from 0. */
  readonly index: number;
  readonly set: string;
  readonly messages?: readonly ChatMessage[];
  readonly tools?: readonly unknown[];
  readonly prompt?: string;
}

/** A candidate of a position: its bytes, and its text where the API gives only that. */
export interface TeacherToken {
  readonly text: string;
  /** Bytes of the text; null where the API does not give them. */
  readonly bytes: readonly number[] | null;
  readonly logprob: number;
}

/** A position of an answer. */
export interface TeacherPosition extends TeacherToken {
  /** Best first. */
  readonly top: readonly TeacherToken[];
}

export interface TeacherAnswer {
  readonly positions: readonly TeacherPosition[];
  readonly n_prompt: number;
  readonly n_answer: number;
}

/** Attempts of one question. */
export const ATTEMPTS = 8;
/** Longest wait between two. */
const MAX_WAIT_MS = 120_000;
/** Bytes of an answer that is read. */
const MAX_ANSWER = 64 << 20;
/** Rounding of 32-bit logarithms. */
const SLACK = 1e-3;

/**
 * What prompts ask of a teacher.
 * @throws {EvalError} `eval.teacher_prompt` for lines that ask for no answer, or that an API of this kind cannot take
 */
export function questionsOf(prompts: readonly Prompt[], api: TeacherOptions["api"]): Question[] {
  return prompts.map((p, index) => {
    const refuse = (what: string, hint: string) =>
      new EvalError("eval.teacher_prompt", `Cannot ask ${p.file}, line ${p.line}: ${what}`, {
        at: { file: p.file, line: p.line },
        hint,
      });
    const base = { index, set: p.set };
    if (p.kind === "ids") {
      throw refuse("it has token ids", "give its text: an API takes ids of its own vocabulary only");
    }
    if (p.kind === "chat") {
      if (api === "completions") throw refuse("it is a conversation", "use --api chat");
      const { messages, tools, kwargs } = p.chat;
      if (messages.at(-1)!.role === "assistant") {
        throw refuse("its last message is the assistant's", "leave the answer out: the teacher gives it");
      }
      if (kwargs !== undefined) throw refuse("it has kwargs, which an API does not take", "leave them out");
      return { ...base, messages, ...(tools ? { tools } : {}) };
    }
    if (p.kind === "prompt" && p.completion !== "") {
      throw refuse("it has a completion", "leave the completion out: the teacher gives it");
    }
    const text = p.kind === "text" ? p.text : p.prompt;
    return api === "chat" ? { ...base, messages: [{ role: "user", content: text }] } : { ...base, prompt: text };
  });
}

/** Bytes of a question's text, from which its tokens can be guessed. */
export function questionBytes(q: Question): number {
  return new TextEncoder().encode(q.prompt ?? JSON.stringify([q.messages, q.tools ?? []])).length;
}

type Json = Record<string, any>;

function different(code: "no_logprobs" | "tokens" | "reasoning" | "answer", what: string, hint: string): EvalError {
  return new EvalError(`eval.teacher_${code}`, `Cannot learn from this API: ${what}`, { hint });
}

function readToken(v: Json, what: string): TeacherToken {
  const { token, logprob, bytes } = v ?? {};
  if (typeof token !== "string") throw different("answer", `${what} has no text`, "use an API that follows OpenAI's");
  if (typeof logprob !== "number" || !Number.isFinite(logprob) || logprob > SLACK) {
    throw different(
      "no_logprobs",
      `${what} has the log-probability ${JSON.stringify(logprob)}, expected a finite number of at most 0`,
      "use a model or provider that gives log-probabilities",
    );
  }
  const known = Array.isArray(bytes) && bytes.every((b) => Number.isInteger(b) && b >= 0 && b < 256);
  return { text: token, bytes: known ? bytes : null, logprob: Math.min(0, logprob) };
}

/** The bytes of a token: given, or those of its text. */
export function tokenBytes(t: TeacherToken): Uint8Array {
  return t.bytes === null ? new TextEncoder().encode(t.text) : Uint8Array.from(t.bytes);
}

function checkTop(top: readonly TeacherToken[], i: number): TeacherToken[] {
  if (top.length === 0) {
    throw different(
      "no_logprobs",
      `position ${i} has no candidates`,
      "use a model or provider that gives top_logprobs, or ask for fewer with --top",
    );
  }
  return [...top].sort((a, b) => b.logprob - a.logprob);
}

/** The whole answer as one text, to be compared with what the tokens join to. */
function joined(positions: readonly TeacherToken[]): string {
  return new TextDecoder().decode(Uint8Array.from(positions.flatMap((t) => [...tokenBytes(t)])));
}

/** Of an answer that was cut inside of a character, what comes before it. */
const withoutCut = (text: string) => text.replace(/\uFFFD+$/, "");

/**
 * Reads an answer of either API.
 * @throws {EvalError} `eval.teacher_no_logprobs`, `eval.teacher_tokens`, `eval.teacher_reasoning`, `eval.teacher_answer`
 */
export function readAnswer(body: unknown, api: TeacherOptions["api"]): TeacherAnswer {
  const choice = (body as Json)?.choices?.[0];
  if (typeof choice !== "object" || choice === null) {
    throw different("answer", "its answer has no choices", "use an API that follows OpenAI's");
  }
  const read = withoutEnd(api === "chat" ? readChat(choice) : readCompletion(choice), choice.finish_reason);
  const usage = (body as Json).usage ?? {};
  const count = (v: unknown, otherwise: number) => Number.isInteger(v) && (v as number) >= 0 ? v as number : otherwise;
  const hidden = count(usage.completion_tokens_details?.reasoning_tokens, 0);
  const text = joined(read.positions);
  if (read.reasoning !== "") {
    // What was thought has to be among the tokens: the answer depends on it.
    const at = text.indexOf(read.reasoning);
    if (at < 0 || text.indexOf(read.content, at + read.reasoning.length) < 0) throw hiddenReasoning();
  } else {
    if (hidden > 0 && read.positions.length + hidden <= count(usage.completion_tokens, Infinity)) {
      throw hiddenReasoning();
    }
    if (withoutCut(text) !== withoutCut(read.content)) {
      throw different(
        "tokens",
        `its tokens join to ${JSON.stringify(text.slice(0, 60))}, and its answer is ${
          JSON.stringify(read.content.slice(0, 60))
        }`,
        "use a provider whose log-probabilities are of the tokens that it sends",
      );
    }
  }
  return {
    positions: read.positions,
    n_prompt: count(usage.prompt_tokens, 0),
    n_answer: count(usage.completion_tokens, read.positions.length),
  };
}

/** Some servers count the end of the answer as a token, which the answer's text does not have: it is left out. */
function withoutEnd(read: Read, finish: unknown): Read {
  const positions = read.positions.slice(0, -1);
  const isEnd = finish === "stop" && read.positions.length > 0 && joined(read.positions) !== read.content &&
    read.reasoning === "" && joined(positions) === read.content;
  return isEnd ? { ...read, positions } : read;
}

function hiddenReasoning(): EvalError {
  return different(
    "reasoning",
    "it hides the reasoning that its answer depends on",
    "turn the model's reasoning off, or use a provider that shows its tokens",
  );
}

interface Read {
  readonly positions: TeacherPosition[];
  readonly content: string;
  readonly reasoning: string;
}

const noLogprobs = () =>
  different(
    "no_logprobs",
    "its answer has no logprobs",
    "use a model or provider that gives them; some take the request and leave them out",
  );

function readChat(choice: Json): Read {
  const { content, reasoning_content, reasoning, tool_calls } = choice.message ?? {};
  if (Array.isArray(tool_calls) && tool_calls.length > 0) {
    throw different("answer", "it answers with calls of tools", "leave the tools out of the prompts");
  }
  const list = choice.logprobs?.content;
  if (!Array.isArray(list) || (list.length === 0 && content)) throw noLogprobs();
  return {
    positions: list.map((v, i) => ({
      ...readToken(v, `position ${i}`),
      top: checkTop(
        (Array.isArray(v?.top_logprobs) ? v.top_logprobs : []).map((t: Json) =>
          readToken(t, `a candidate of position ${i}`)
        ),
        i,
      ),
    })),
    content: typeof content === "string" ? content : "",
    reasoning: [reasoning_content, reasoning].find((r) => typeof r === "string") ?? "",
  };
}

/** Completions name a token that is no text by its bytes: `bytes:\xe2\x80`. */
function completionToken(token: unknown, logprob: unknown, what: string): TeacherToken {
  const escaped = typeof token === "string" && /^bytes:(\\x[0-9a-f]{2})+$/i.test(token);
  const bytes = escaped ? [...(token as string).matchAll(/\\x(..)/g)].map((m) => parseInt(m[1], 16)) : undefined;
  return readToken({ token, logprob, bytes }, what);
}

function readCompletion(choice: Json): Read {
  const { tokens, token_logprobs, top_logprobs } = choice.logprobs ?? {};
  if (!Array.isArray(tokens) || !Array.isArray(token_logprobs) || !Array.isArray(top_logprobs)) throw noLogprobs();
  return {
    positions: tokens.map((token, i) => ({
      ...completionToken(token, token_logprobs[i], `position ${i}`),
      top: checkTop(
        Object.entries(top_logprobs[i] ?? {}).map(([t, lp]) => completionToken(t, lp, `a candidate of position ${i}`)),
        i,
      ),
    })),
    content: typeof choice.text === "string" ? choice.text : "",
    reasoning: "",
  };
}

/** The text of an answer, which must not be endless. @throws {Retryable} when it is cut */
async function bodyText(response: Response): Promise<string> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const body: AsyncIterable<Uint8Array<ArrayBuffer>> | [] = response.body ?? [];
  try {
    for await (const part of body) {
      if ((size += part.length) > MAX_ANSWER) break;
      parts.push(part);
    }
  } catch (error) {
    throw new Retryable(`the answer was cut (${reasonOf(error)})`);
  }
  if (size > MAX_ANSWER) {
    throw different("answer", `an answer is larger than ${MAX_ANSWER} bytes`, "ask for fewer tokens with --max-tokens");
  }
  return await new Blob(parts).text();
}

async function post(q: Question, options: TeacherOptions): Promise<unknown> {
  const { api, signal } = options;
  const url = `${options.url.replace(/\/+$/, "")}/${api === "chat" ? "chat/completions" : "completions"}`;
  const { model, top_k, max_tokens } = options;
  const common = { model, max_tokens, temperature: 0, n: 1, stream: false };
  const request = api === "chat"
    ? { ...common, messages: q.messages, ...(q.tools ? { tools: q.tools } : {}), logprobs: true, top_logprobs: top_k }
    : { ...common, prompt: q.prompt, logprobs: top_k };
  let response: Response;
  try {
    response = await fetch(url, {
      method: "POST",
      // A key goes to where the user sent it, and to no other place that the answer names.
      redirect: "manual",
      headers: {
        "content-type": "application/json",
        ...(options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` }),
      },
      body: JSON.stringify(request),
      ...(signal ? { signal } : {}),
    });
  } catch (cause) {
    signal?.throwIfAborted();
    throw new Retryable(`no answer (${reasonOf(cause)})`);
  }
  const { status } = response;
  const text = await bodyText(response);
  signal?.throwIfAborted();
  if (status === 408 || status === 409 || status === 425 || status === 429 || status >= 500) {
    throw new Retryable(`the API answers ${status}`, retryAfterMs(response.headers.get("retry-after")));
  }
  if (status !== 200) {
    throw new EvalError(
      "eval.teacher_refused",
      `Cannot ask ${model} at ${url}: the API answers ${status}${text === "" ? "" : `, ${text.trim().slice(0, 300)}`}`,
      {
        at: { url, model, status },
        hint: status === 401 || status === 403
          ? "check the key in the variable that --api-key-env names"
          : "check --url, --teacher, --api, --top and --max-tokens against what the API takes",
      },
    );
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Retryable("the answer was cut: it is not whole JSON");
  }
}

/**
 * Asks one question, again where it fails for a while.
 * @throws {EvalError} `eval.teacher_unreachable` after {@link ATTEMPTS} attempts, `eval.teacher_refused`, and what
 *   {@link readAnswer} refuses
 */
export async function askTeacher(q: Question, options: TeacherOptions): Promise<TeacherAnswer> {
  for (let failures = 1;; failures++) {
    try {
      return readAnswer(await post(q, options), options.api);
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof Retryable)) throw error;
      if (failures >= ATTEMPTS) {
        throw new EvalError(
          "eval.teacher_unreachable",
          `Cannot get an answer for prompt ${q.index + 1}: ${error.message}, ${ATTEMPTS} times in a row`,
          {
            at: { index: q.index, url: options.url },
            hint: "what was answered is saved: run the same command again to continue",
            cause: error,
          },
        );
      }
      const ms = Math.min(error.retryAfterMs ?? 500 * 2 ** failures, MAX_WAIT_MS);
      options.onRetry?.(`prompt ${q.index + 1}: ${error.message}; trying again in ${(ms / 1000).toFixed(1)} s`);
      await (options.sleep ?? pause)(ms, options.signal);
    }
  }
}
