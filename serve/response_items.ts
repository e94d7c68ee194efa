/**
 * The output items of a Responses answer, as they grow, and the events that tell of it.
 * @module
 */
import type { Delta } from "../core/chat/reasoning.ts";
import { randomId } from "./app.ts";

type Status = "in_progress" | "completed" | "incomplete";
type Part = { type: "reasoning_text"; text: string } | {
  type: "output_text";
  text: string;
  annotations: [];
  logprobs: [];
};

export type Item =
  | { type: "reasoning"; id: string; status: Status; summary: []; content: Part[]; encrypted_content: null }
  | { type: "message"; id: string; status: Status; role: "assistant"; content: Part[] }
  | { type: "function_call"; id: string; status: Status; call_id: string; name: string; arguments: string };

export interface ItemEvent {
  type: string;
  [field: string]: unknown;
}

/** Turns an answer's pieces into items, each closed before the next one begins. */
export class ItemWriter {
  readonly items: Item[] = [];
  /** Number of the call that is open. */
  #call: number | undefined;
  #open = false;

  /** Takes a piece in; the events are to be read for it to have effect. */
  *take(delta: Delta): Generator<ItemEvent> {
    const { reasoning_content, content, tool_call } = delta;
    if (reasoning_content) yield* this.#text("reasoning", reasoning_content);
    if (content) yield* this.#text("message", content);
    if (tool_call === undefined) return;
    const last = this.items.at(-1);
    if (!this.#open || last?.type !== "function_call" || this.#call !== tool_call.index) {
      yield* this.#close("completed");
      this.#call = tool_call.index;
      yield* this.#begin({
        type: "function_call",
        id: randomId("fc_"),
        status: "in_progress",
        call_id: tool_call.id ?? randomId("call_"),
        name: tool_call.name ?? "",
        arguments: "",
      });
    }
    if (tool_call.arguments === "") return;
    const item = this.items.at(-1) as Item & { type: "function_call" };
    item.arguments += tool_call.arguments;
    yield { type: "response.function_call_arguments.delta", ...this.#place(), delta: tool_call.arguments };
  }

  /** @param cut The answer ended at its limit: the last item is not complete. */
  *finish(cut: boolean): Generator<ItemEvent> {
    yield* this.#close(cut ? "incomplete" : "completed");
  }

  #place(): { item_id: string; output_index: number } {
    return { item_id: this.items.at(-1)!.id, output_index: this.items.length - 1 };
  }

  *#begin(item: Item): Generator<ItemEvent> {
    this.items.push(item);
    this.#open = true;
    const shown = "content" in item ? { ...item, content: [] } : item;
    yield { type: "response.output_item.added", output_index: this.items.length - 1, item: { ...shown } };
    if (!("content" in item)) return;
    yield { type: "response.content_part.added", ...this.#place(), content_index: 0, part: { ...item.content[0] } };
  }

  *#text(type: "reasoning" | "message", text: string): Generator<ItemEvent> {
    if (!this.#open || this.items.at(-1)?.type !== type) {
      yield* this.#close("completed");
      yield* this.#begin(
        type === "reasoning"
          ? {
            type,
            id: randomId("rs_"),
            status: "in_progress",
            summary: [],
            content: [{ type: "reasoning_text", text: "" }],
            encrypted_content: null,
          }
          : {
            type,
            id: randomId("msg_"),
            status: "in_progress",
            role: "assistant",
            content: [{ type: "output_text", text: "", annotations: [], logprobs: [] }],
          },
      );
    }
    const item = this.items.at(-1) as Item & { content: Part[] };
    item.content[0].text += text;
    const delta = { ...this.#place(), content_index: 0, delta: text };
    if (type === "reasoning") yield { type: "response.reasoning_text.delta", ...delta };
    else yield { type: "response.output_text.delta", ...delta, logprobs: [] };
  }

  *#close(status: Status): Generator<ItemEvent> {
    const item = this.items.at(-1);
    if (!this.#open || item === undefined) return;
    this.#open = false;
    item.status = status;
    const place = this.#place();
    if (item.type === "function_call") {
      const { name, arguments: args } = item;
      yield { type: "response.function_call_arguments.done", ...place, name, arguments: args };
    } else {
      const [part] = item.content;
      const done = { ...place, content_index: 0, text: part.text };
      if (item.type === "reasoning") yield { type: "response.reasoning_text.done", ...done };
      else yield { type: "response.output_text.done", ...done, logprobs: [] };
      yield { type: "response.content_part.done", ...place, content_index: 0, part };
    }
    yield { type: "response.output_item.done", output_index: place.output_index, item };
  }
}

/** The items as messages of the conversation, for the response that goes on from this one. */
export function messageOf(items: readonly Item[]): Record<string, unknown>[] {
  const texts = (type: "reasoning" | "message") =>
    items.flatMap((item) => item.type === type ? item.content.map((part) => part.text) : []).join("");
  const calls = items.flatMap((item) =>
    item.type === "function_call"
      ? [{ id: item.call_id, type: "function", function: { name: item.name, arguments: item.arguments } }]
      : []
  );
  const reasoning = texts("reasoning");
  return [{
    role: "assistant",
    content: texts("message"),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  }];
}
