/**
 * Conversations for templates that show a call and its result within one message of the assistant's.
 * @module
 */
import { parseJson } from "../json.ts";
import type { ChatMessage } from "./messages.ts";

/**
 * Each message with calls takes the results that follow it as `tool_responses`, `{name, response}` each, and the
 * answer behind them as its content.
 */
export function withToolResponses(messages: readonly ChatMessage[]): ChatMessage[] {
  const out: ChatMessage[] = [];
  for (let i = 0; i < messages.length;) {
    const calling = messages[i++];
    if (calling.role !== "assistant" || !calling.tool_calls?.length) {
      out.push(calling);
      continue;
    }
    const responses: { name: string; response: unknown }[] = [];
    for (; messages[i]?.role === "tool"; i++) {
      const result = messages[i];
      const called = calling.tool_calls.find((call) => call.id !== undefined && call.id === result.tool_call_id) ??
        calling.tool_calls[responses.length];
      responses.push({ name: result.name ?? called?.function.name ?? "", response: responseOf(result) });
    }
    const merged: ChatMessage = { ...calling, ...(responses.length > 0 ? { tool_responses: responses } : {}) };
    const answer = messages[i];
    if (responses.length > 0 && answer?.role === "assistant" && !answer.tool_calls?.length) {
      merged.content = answer.content ?? "";
      i++;
    }
    out.push(merged);
  }
  return out;
}

/** JSON results are shown as values, other results as text. */
function responseOf(result: ChatMessage): unknown {
  const { content } = result;
  const text = Array.isArray(content) ? content.map((part) => part.text ?? "").join("\n") : content ?? "";
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}
