/**
 * Messages that a template may have no place for: system messages behind others, and roles of its own kind. What a template
 * passes over in silence would never reach the model, so it is asked with marks in the place of the texts.
 * @module
 */
import { BloomeryError } from "../core/errors.ts";
import { badRequest } from "./errors.ts";

/** A message of a conversation, on its way to the template. */
export type Message = Record<string, unknown>;
type Part = { type: string; text?: string };

/** Roles that every API has; templates that cannot take one of them say so. */
const ROLES = new Set(["system", "developer", "user", "assistant", "tool"]);
/** Nothing that a template contains or changes. */
const mark = (i: number) => `place4d1f${i}place`;

/**
 * The conversation so that all of its messages reach the model. System messages that the template does not show where they
 * are become part of the message before them, where that is the user's or the system's, else of a user's.
 * @param render Gives a conversation's prompt; throws where the template refuses it.
 * @throws ApiError 400 naming the role that the template has no place for.
 */
export function placed(messages: Message[], render: (messages: Message[]) => string): Message[] {
  const late = new Set(messages.flatMap(({ role }, i) => role === "system" && i > 0 ? [i] : []));
  const unknown = messages.flatMap(({ role }, i) => ROLES.has(String(role)) ? [] : [i]);
  if (late.size === 0 && unknown.length === 0) return messages;
  const marked = messages.map((m, i) => late.has(i) || unknown.includes(i) ? { ...m, content: mark(i) } : m);
  const prompt = rendered(marked, render);
  const lost = unknown.find((i) => prompt !== undefined && !prompt.includes(mark(i)));
  if (lost !== undefined) {
    const param = `messages[${lost}].role`;
    throw badRequest(`${param}: the model's template has no place for the role "${messages[lost].role}"`, param);
  }
  if (prompt !== undefined && [...late].every((i) => prompt.includes(mark(i)))) return messages;
  if (late.size === 0) return messages;
  const others = folded(messages, late);
  // Where the template takes neither, its words about what the client wrote are the ones to hear.
  return rendered(others, render) === undefined ? messages : others;
}

function rendered(messages: Message[], render: (messages: Message[]) => string): string | undefined {
  try {
    return render(messages);
  } catch (error) {
    if (error instanceof BloomeryError) return undefined;
    throw error;
  }
}

function folded(messages: Message[], late: ReadonlySet<number>): Message[] {
  const out: Message[] = [];
  let waiting: Message["content"][] = [];
  messages.forEach((message, i) => {
    const last = out.at(-1);
    if (late.has(i)) {
      if (last?.role === "user" || last?.role === "system") {
        out[out.length - 1] = { ...last, content: joined(last.content, message.content) };
      } else waiting.push(message.content);
      return;
    }
    if (waiting.length > 0 && message.role === "user") {
      message = { ...message, content: [...waiting, message.content].reduce(joined) };
    } else if (waiting.length > 0) out.push({ role: "user", content: waiting.reduce(joined) });
    waiting = [];
    out.push(message);
  });
  if (waiting.length > 0) out.push({ role: "user", content: waiting.reduce(joined) });
  return out;
}

function joined(a: unknown, b: unknown): string | Part[] {
  if (typeof a === "string" && typeof b === "string") return `${a}\n\n${b}`;
  return [...partsOf(a), ...partsOf(b)];
}

function partsOf(content: unknown): Part[] {
  return Array.isArray(content) ? content : [{ type: "text", text: String(content ?? "") }];
}
