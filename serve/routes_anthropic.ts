/**
 * POST /v1/messages and /v1/messages/count_tokens: translates Anthropic's messages to a chat request, and the answer back.
 * @module
 */
import { z } from "zod";
import type { Delta } from "../core/chat/reasoning.ts";
import { type App, json, randomId } from "./app.ts";
import { type ChatAnswer, startChat } from "./chat_answer.ts";
import { collectAll } from "./collect.ts";
import { chatTokens, renderChat } from "./conversation.ts";
import { anthropicErrorBody, badRequest, inWordsOf, toApiError, unsupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { Generation, GenerationEnd } from "./generation.ts";
import { chatSchema, checkValue, jsonObject, opt, parseBody } from "./schemas.ts";
import { type SseItem, sseResponse } from "./sse.ts";

const block = z.looseObject({ type: z.string() });
const blocks = z.array(block);
const tokens = z.number().refine((n) => Number.isInteger(n) && n >= 1, {
  error: "expected a number of tokens, 1 or more",
});

const conversationShape = {
  model: opt(z.string()),
  system: opt(z.union([z.string(), blocks])),
  messages: z.array(z.object({ role: z.enum(["user", "assistant", "system"]), content: z.union([z.string(), blocks]) }))
    .min(1),
  tools: opt(z.array(z.looseObject({
    type: opt(z.string()),
    name: z.string().min(1),
    description: opt(z.string()),
    input_schema: opt(jsonObject),
  }))),
  tool_choice: opt(z.looseObject({
    type: z.enum(["auto", "any", "tool", "none"]),
    name: opt(z.string()),
    disable_parallel_tool_use: opt(z.boolean()),
  })),
  thinking: opt(z.looseObject({ type: z.enum(["enabled", "adaptive", "disabled"]), budget_tokens: opt(tokens) })),
};

/** A form of the answer. */
const outputFormat = opt(z.looseObject({ type: z.literal("json_schema"), schema: jsonObject }));

/** /v1/messages */
export const messagesSchema = z.object({
  ...conversationShape,
  max_tokens: tokens,
  stop_sequences: opt(z.array(z.string()).max(64)),
  stream: opt(z.boolean()),
  temperature: opt(z.number().min(0)),
  top_k: opt(z.number().refine(Number.isInteger, { error: "expected an integer" })),
  top_p: opt(z.number().min(0).max(1)),
  output_config: opt(z.looseObject({ format: outputFormat, effort: opt(z.string()) })),
  output_format: outputFormat,
});
/** /v1/messages/count_tokens */
export const countSchema = z.object(conversationShape);
type Conversation = z.output<typeof countSchema>;
type MessagesRequest = z.output<typeof messagesSchema>;

/** Tokens that a conversation's prompt has. */
export function countTokens(app: App, { body }: Exchange): Response {
  const request = checkValue(chatSchema, translate(parseBody(countSchema, body)));
  return json({ input_tokens: chatTokens(app.model.tokenizer, renderChat(app, request).prompt).length });
}

export function messages(app: App, exchange: Exchange): Promise<Response> | Response {
  const request = parseBody(messagesSchema, exchange.body);
  const { format, field } = formatOf(request);
  const { answers: [answer], leave } = inWordsOf(field, () =>
    startChat(app, {
      ...checkValue(chatSchema, translate(request)),
      ...(format && { response_format: { type: "json_schema", json_schema: { schema: format.schema, strict: true } } }),
      reasoning_effort: request.output_config?.effort,
      stream: request.stream,
      max_tokens: request.max_tokens,
      stop: request.stop_sequences,
      temperature: request.temperature,
      top_k: request.top_k,
      top_p: request.top_p,
      // Without a closing tag the server cannot end reasoning, so it ignores the limit.
      reasoning_budget_tokens: app.model.chat.reasoningTags && request.thinking?.budget_tokens,
    }, exchange));
  if (request.stream) return sseResponse(app, exchange, events(app, answer), leave, errorEvent);
  return whole(app, answer, leave);
}

/** The form of the answer, from the current field or the older one. */
function formatOf({ output_config, output_format }: MessagesRequest) {
  if (output_config?.format && output_format) {
    throw badRequest("output_format: cannot be combined with output_config.format", "output_format");
  }
  return output_config?.format
    ? { format: output_config.format, field: "output_config.format" }
    : { format: output_format, field: "output_format" };
}

type Block = z.output<typeof block>;

/** The request as an OpenAI conversation. */
function translate(request: Conversation): Record<string, unknown> {
  const { tool_choice: choice } = request;
  const system = request.system === undefined
    ? []
    : [{ role: "system", content: withoutCounter(textOf(request.system, "system")) }];
  return {
    messages: [
      ...system,
      ...request.messages.flatMap(({ role, content }, i) => {
        const param = `messages[${i}].content`;
        if (role === "system") return [{ role, content: textOf(content, param) }];
        if (typeof content === "string") return [{ role, content }];
        return role === "user" ? userMessages(content, param) : [assistantMessage(content, param)];
      }),
    ],
    tools: request.tools?.map((tool, i) => {
      if (tool.type !== undefined && tool.type !== "custom") {
        throw unsupported(`tools[${i}].type`, `this server runs no tools of its own, found "${tool.type}"`);
      }
      const { name, description, input_schema } = tool;
      return { type: "function", function: { name, description, parameters: input_schema } };
    }),
    tool_choice: choice?.type === "any"
      ? "required"
      : choice?.type === "tool"
      ? { type: "function", function: { name: choice.name } }
      : choice?.type,
    parallel_tool_calls: choice?.disable_parallel_tool_use === true ? false : undefined,
    chat_template_kwargs: request.thinking && { enable_thinking: request.thinking.type !== "disabled" },
  };
}

/**
 * One coding agent begins its system prompt with a billing line whose checksum changes in every request. This sets the checksum
 * to zero: otherwise no two prompts would begin alike, and the cache would never apply.
 */
function withoutCounter(system: string): string {
  return system.replace(/^(x-anthropic-billing-header:[^\n]*?\bcch=)[0-9a-f]+/, "$100000");
}

/** Text of a string or of text blocks. */
function textOf(content: unknown, param: string): string {
  if (typeof content === "string") return content;
  return ((content ?? []) as Block[]).map((b, j) => {
    if (b.type !== "text") throw unsupported(`${param}[${j}]`, `this model reads text only, found a "${b.type}" block`);
    return String(b.text ?? "");
  }).join("\n");
}

/** Tool results become separate messages, before the text of the same message. */
function userMessages(content: Block[], param: string): unknown[] {
  const results = content.flatMap((b, j) =>
    b.type !== "tool_result" ? [] : [{
      role: "tool",
      tool_call_id: b.tool_use_id,
      content: textOf(b.content, `${param}[${j}].content`),
    }]
  );
  const rest = content.map((b) => b.type === "tool_result" ? { type: "text", text: "" } : b);
  const text = textOf(rest, param).replace(/^\n+/, "");
  return results.length > 0 && text.trim() === "" ? results : [...results, { role: "user", content: text }];
}

function assistantMessage(content: Block[], param: string): unknown {
  const of = (type: string) => content.filter((b) => b.type === type);
  content.forEach((b, j) => {
    if (!["text", "thinking", "redacted_thinking", "tool_use"].includes(b.type)) {
      throw unsupported(`${param}[${j}]`, `an assistant's message has no "${b.type}" blocks here`);
    }
  });
  const thinking = of("thinking").map((b) => b.thinking).join("\n");
  const calls = of("tool_use").map((b) => ({
    id: b.id,
    type: "function",
    function: { name: b.name, arguments: b.input ?? {} },
  }));
  return {
    role: "assistant",
    content: of("text").map((b) => b.text).join(""),
    ...(thinking === "" ? {} : { reasoning_content: thinking }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

/** @param cut The answer ends with an incomplete call. */
function stopReason(end: GenerationEnd, called: boolean, cut = false): string {
  if (called && !(cut && end.stopType === "limit")) return "tool_use";
  return { eos: "end_turn", word: "stop_sequence", limit: "max_tokens" }[end.stopType];
}

function usageOf(generation: Generation, output_tokens: number): Record<string, number> {
  return {
    input_tokens: generation.prompt.length - generation.n_cached,
    cache_read_input_tokens: generation.n_cached,
    cache_creation_input_tokens: 0,
    output_tokens,
  };
}

type ContentBlock =
  | { type: "thinking"; thinking: string; signature: string }
  | { type: "text"; text: string }
  | { type: "tool_use"; id: string; name: string; input: unknown };

/** The block that a piece of an answer belongs to, and its delta. */
function piecesOf(delta: Delta): { start: ContentBlock; call?: number; part: Record<string, string> }[] {
  const pieces = [];
  if (delta.reasoning_content) {
    const start: ContentBlock = { type: "thinking", thinking: "", signature: "" };
    pieces.push({ start, part: { type: "thinking_delta", thinking: delta.reasoning_content } });
  }
  if (delta.content) {
    const start: ContentBlock = { type: "text", text: "" };
    pieces.push({ start, part: { type: "text_delta", text: delta.content } });
  }
  const call = delta.tool_call;
  if (call) {
    const id = call.id ?? randomId("toolu_");
    const start: ContentBlock = { type: "tool_use", id, name: call.name ?? "", input: {} };
    pieces.push({ start, call: call.index, part: { type: "input_json_delta", partial_json: call.arguments } });
  }
  return pieces;
}

async function* events(app: App, { generation, parser }: ChatAnswer): AsyncGenerator<SseItem, void, void> {
  const event = (type: string, rest: object = {}): SseItem => ({
    event: type,
    data: JSON.stringify({ type, ...rest }),
  });
  let started = false;
  let index = -1;
  let open: { type: string; call: number | undefined } | undefined;
  let called = false;
  let cut = false;
  const begin = () => {
    started = true;
    return event("message_start", {
      message: {
        id: randomId("msg_"),
        type: "message",
        role: "assistant",
        model: app.model.id,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: usageOf(generation, 0),
      },
    });
  };
  function* show(deltas: Delta[]): Generator<SseItem> {
    for (const { malformed } of deltas) cut = malformed ?? false;
    for (const { start, call, part } of deltas.flatMap(piecesOf)) {
      if (open?.type !== start.type || open.call !== call) {
        if (open !== undefined) yield event("content_block_stop", { index });
        open = { type: start.type, call };
        called ||= call !== undefined;
        yield event("content_block_start", { index: ++index, content_block: start });
      }
      yield event("content_block_delta", { index, delta: part });
    }
  }
  for await (const item of generation) {
    if (!started) yield begin(); // now the number of cached tokens is known
    if (item.type === "progress") continue; // these clients never ask for it
    if (item.type === "text") {
      yield* show(parser.push(item.text));
      continue;
    }
    yield* show(parser.finish());
    if (open !== undefined) yield event("content_block_stop", { index });
    yield event("message_delta", {
      delta: { stop_reason: stopReason(item, called, cut), stop_sequence: item.stoppingWord || null },
      usage: usageOf(generation, item.n_generated),
    });
  }
  yield event("message_stop");
}

function errorEvent(error: unknown): SseItem {
  return { event: "error", data: JSON.stringify(anthropicErrorBody(toApiError(error))) };
}

async function whole(app: App, { generation, parser }: ChatAnswer, leave: () => void): Promise<Response> {
  const content: ContentBlock[] = [];
  const json_texts = new Map<ContentBlock, string>();
  let last: { block: ContentBlock; call: number | undefined } | undefined;
  const [{ text, end }] = await collectAll([generation], leave);
  const deltas = [...parser.push(text), ...parser.finish()];
  for (const { start, call, part } of deltas.flatMap(piecesOf)) {
    if (last?.block.type !== start.type || last.call !== call) {
      last = { block: start, call };
      content.push(start);
    }
    const { block } = last;
    if (block.type === "thinking") block.thinking += part.thinking;
    else if (block.type === "text") block.text += part.text;
    else json_texts.set(block, (json_texts.get(block) ?? "") + part.partial_json);
  }
  for (const [block, text] of json_texts) if (block.type === "tool_use") block.input = JSON.parse(text || "{}");
  return json({
    id: randomId("msg_"),
    type: "message",
    role: "assistant",
    model: app.model.id,
    content,
    stop_reason: stopReason(end, json_texts.size > 0, deltas.at(-1)?.malformed ?? false),
    stop_sequence: end.stoppingWord || null,
    usage: usageOf(generation, end.n_generated),
  });
}
