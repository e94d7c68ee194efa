/**
 * Files of teachers' answers: a first line with what was asked, and one line an answer, in the order in which they came.
 * @module
 */
import type { ChatMessage } from "../core/chat/messages.ts";
import { EvalError } from "../core/errors.ts";
import { type Fields, type FieldsOf, parseLines } from "./fields.ts";
import type { Question, TeacherAnswer, TeacherPosition, TeacherToken } from "./teacher.ts";

export const TEACHER_SCHEMA = "bloomery.teacher/1";

/** First line of a file: a later run continues it only with the same. */
export interface TeacherHeader {
  readonly schema: typeof TEACHER_SCHEMA;
  readonly url: string;
  readonly model: string;
  readonly api: "chat" | "completions";
  /** Candidates a position that were asked for; an API may give fewer. */
  readonly top_k: number;
  readonly max_tokens: number;
  readonly n_prompts: number;
  /** SHA-256 of the questions. */
  readonly prompts_sha256: string;
}

/** An answer with its question. */
export interface TeacherLine extends Question, TeacherAnswer {}

export interface TeacherFile {
  readonly header: TeacherHeader;
  /** In the order of the prompts. */
  readonly lines: readonly TeacherLine[];
}

const KIND: FieldsOf = { code: "eval.teacher_file", hint: "give a file that bloomery eval teach wrote" };

/** Whether a text begins as such a file does. */
export function isTeacherFile(text: string): boolean {
  return text.startsWith(`{"schema":"${TEACHER_SCHEMA}"`);
}

/** SHA-256 of what is asked, as hex. */
export async function questionsHash(questions: readonly Question[]): Promise<string> {
  const bytes = new TextEncoder().encode(JSON.stringify(questions));
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
}

/** A line of the file, its end included. A position is `[text, bytes, logprob, candidates]`; bytes are null where not known. */
export function teacherLine(q: Question, a: TeacherAnswer): string {
  const token = (t: TeacherToken) => [t.text, t.bytes, t.logprob];
  return JSON.stringify({
    ...q,
    n_prompt: a.n_prompt,
    n_answer: a.n_answer,
    positions: a.positions.map((p) => [...token(p), p.top.map(token)]),
  }) + "\n";
}

function readHeader(f: Fields): TeacherHeader {
  const schema = f.str("schema");
  if (schema !== TEACHER_SCHEMA) throw f.wrong("schema", schema, JSON.stringify(TEACHER_SCHEMA));
  const api = f.str("api");
  if (api !== "chat" && api !== "completions") throw f.wrong("api", api, "chat or completions");
  return {
    schema,
    url: f.str("url"),
    model: f.str("model"),
    api,
    top_k: f.int("top_k", 1),
    max_tokens: f.int("max_tokens", 1),
    n_prompts: f.int("n_prompts", 1),
    prompts_sha256: f.str("prompts_sha256"),
  };
}

function readToken(f: Fields, field: string, v: unknown): TeacherToken {
  const [text, bytes, logprob] = Array.isArray(v) ? v : [];
  if (typeof text !== "string") throw f.wrong(field, v, "[text, bytes, logprob, …]");
  if (bytes !== null && !(Array.isArray(bytes) && bytes.every((b) => Number.isInteger(b) && b >= 0 && b < 256))) {
    throw f.wrong(field, bytes, "bytes or null");
  }
  if (typeof logprob !== "number" || !(logprob <= 0)) throw f.wrong(field, logprob, "a number of at most 0");
  return { text, bytes, logprob };
}

function readLine(f: Fields, header: TeacherHeader): TeacherLine {
  const positions = f.list("positions").map((v, i): TeacherPosition => {
    const field = `positions[${i}]`, token = readToken(f, field, v), top = (v as unknown[])[3];
    if (!Array.isArray(top) || top.length === 0) throw f.wrong(field, top, "a list of candidates");
    return { ...token, top: top.map((t) => readToken(f, field, t)) };
  });
  const messages = f.optional("messages"), tools = f.optional("tools"), prompt = f.optional("prompt");
  const isMessage = (m: unknown) => typeof m === "object" && m !== null && typeof (m as ChatMessage).role === "string";
  if (header.api === "chat" && !(Array.isArray(messages) && messages.length > 0 && messages.every(isMessage))) {
    throw f.wrong("messages", messages, "a list of objects with a role");
  }
  if (header.api === "completions" && typeof prompt !== "string") throw f.wrong("prompt", prompt, "a text");
  if (tools !== undefined && !Array.isArray(tools)) throw f.wrong("tools", tools, "a list");
  return {
    index: f.int("index", 0, header.n_prompts - 1),
    set: f.str("set"),
    ...(header.api === "chat" ? { messages: messages as ChatMessage[] } : { prompt: prompt as string }),
    ...(tools === undefined ? {} : { tools: tools as unknown[] }),
    n_prompt: f.int("n_prompt", 0),
    n_answer: f.int("n_answer", 0),
    positions,
  };
}

/**
 * Parses a file of answers; an incomplete last line, as a killed run leaves it, is dropped.
 * @throws {EvalError} `eval.teacher_file` naming line and field
 */
export function parseTeacherFile(text: string, name: string): TeacherFile {
  const [first, ...rest] = parseLines(text, name, TEACHER_SCHEMA, KIND);
  const header = readHeader(first);
  const seen = new Map<number, number>();
  const lines = rest.map((f) => {
    const line = readLine(f, header);
    const before = seen.get(line.index);
    if (before !== undefined) throw f.wrong("index", line.index, `each prompt once; line ${before} has it too`);
    seen.set(line.index, f.line);
    return line;
  });
  return { header, lines: lines.sort((a, b) => a.index - b.index) };
}

/** Checks that an existing file is the beginning of this run. @throws {EvalError} `eval.resume_mismatch` */
export function checkSameTeacher(file: TeacherFile, header: TeacherHeader, name: string): void {
  for (const key of Object.keys(header) as (keyof TeacherHeader)[]) {
    if (file.header[key] === header[key]) continue;
    throw new EvalError(
      "eval.resume_mismatch",
      `Cannot continue ${name}: ${key} is ${JSON.stringify(file.header[key])}, expected ${JSON.stringify(header[key])}`,
      {
        at: { file: name, field: key, got: file.header[key], expected: header[key] },
        hint: "write to another file, or use --restart",
      },
    );
  }
}
