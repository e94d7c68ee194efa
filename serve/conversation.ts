/**
 * A chat request's conversation, checked and rendered to a prompt.
 * @module
 */
import { mergeJson, parseJson } from "../core/json.ts";
import type { App } from "./app.ts";
import { badRequest, unsupported } from "./errors.ts";
import type { RenderedChat } from "./chat_format.ts";
import { placed } from "./message_places.ts";
import type { Tokenizer } from "./tokenizer.ts";
import type { ChatRequestMessage, Conversation } from "./schemas.ts";

/**
 * Whether the answer goes on with the last message: it is the assistant's, and the request does not say otherwise.
 * @throws ApiError 400 where it is to be continued and cannot be.
 */
export function continuesLast(request: Conversation): boolean {
  const { messages, continue_final_message, add_generation_prompt } = request;
  const last = messages.at(-1)!;
  if (continue_final_message && last.role !== "assistant") {
    throw badRequest(
      `continue_final_message: expected the last message to be the assistant's, found "${last.role}"`,
      "continue_final_message",
    );
  }
  if (continue_final_message && add_generation_prompt) {
    throw badRequest("add_generation_prompt: cannot be combined with continue_final_message", "add_generation_prompt");
  }
  const continues = continue_final_message ?? (last.role === "assistant" && add_generation_prompt === undefined);
  if (!continues) return false;
  const param = `messages[${messages.length - 1}]`;
  if (last.tool_calls?.length) {
    throw badRequest(`${param}.tool_calls: an assistant's message with calls cannot be continued`, param);
  }
  if (messages.at(-2)?.role === "assistant") {
    throw badRequest(`${param}.role: two messages of the assistant at the end cannot be continued`, param);
  }
  return true;
}

/**
 * Renders the conversation with the model's own template.
 * @throws ApiError 400 naming the message at fault; TextError with the template's own words, a 400 too.
 */
export function renderChat(app: App, request: Conversation): RenderedChat {
  const continueFinal = continuesLast(request);
  const messages = request.messages.map((message, i) => prepare(app, message, i));
  if (continueFinal) {
    // What goes on has no line break between its parts that nobody wrote.
    const last = messages.at(-1)!;
    if (Array.isArray(last.content)) last.content = last.content.map((part) => part.text).join("");
  }
  const input = {
    ...(request.tools?.length ? { tools: request.tools } : {}),
    addGenerationPrompt: request.add_generation_prompt ?? !continueFinal,
    continueFinal,
    kwargs: kwargsOf(app, request),
  };
  const { chat } = app.model;
  return chat.render({
    ...input,
    messages: placed(messages, (marked) => chat.render({ ...input, messages: marked }).prompt),
  });
}

/** Template variables: the server's, then the request's. */
function kwargsOf(app: App, request: Conversation): Record<string, unknown> {
  const { reasoning_effort } = request;
  const effort = reasoning_effort === undefined
    ? {}
    : reasoning_effort === "none"
    ? { enable_thinking: false }
    : { reasoning_effort };
  const kwargs = mergeJson(app.settings.templateKwargs, effort, request.chat_template_kwargs ?? {});
  const thinking = kwargs.enable_thinking;
  if (thinking !== undefined && typeof thinking !== "boolean") {
    const param = "chat_template_kwargs.enable_thinking";
    throw badRequest(`${param}: expected boolean, found ${JSON.stringify(thinking)}`, param);
  }
  return kwargs;
}

/** A message as templates expect it; what they could not show is refused. */
function prepare(app: App, message: ChatRequestMessage, i: number): Record<string, unknown> {
  const out: Record<string, unknown> = { ...message };
  if (message.role === "developer" && !app.model.chat.source.includes("<|channel|>")) out.role = "system";
  if (Array.isArray(message.content)) {
    message.content.forEach((part, j) => {
      const param = `messages[${i}].content[${j}]`;
      if (part.type !== "text") {
        throw unsupported(param, `this model reads text only, found a part of type "${part.type}"`);
      }
      if (part.text === undefined) throw badRequest(`${param}.text: required, and missing`, `${param}.text`);
    });
  } else if (message.content === undefined || message.content === null) {
    if (message.role === "assistant" && (message.tool_calls?.length || message.reasoning_content)) out.content = "";
    else {
      const param = `messages[${i}].content`;
      throw badRequest(`${param}: required, and missing`, param, "missing_required_parameter");
    }
  }
  if (message.tool_calls) out.tool_calls = message.tool_calls.map((call, j) => prepareCall(call, i, j));
  return out;
}

type Call = NonNullable<ChatRequestMessage["tool_calls"]>[number];

/** Arguments as an object, which most templates want; text that is no JSON object would spoil the prompt. */
function prepareCall(call: Call, i: number, j: number): Record<string, unknown> {
  const param = `messages[${i}].tool_calls[${j}]`;
  let args: unknown = call.function.arguments ?? {};
  if (typeof args === "string") {
    const text = args;
    try {
      args = text.trim() === "" ? {} : parseJson(text);
    } catch {
      args = undefined;
    }
    if (typeof args !== "object" || args === null || Array.isArray(args)) {
      const shown = text.length > 60 ? text.slice(0, 60) + "…" : text;
      throw badRequest(
        `${param}: function.arguments is not the JSON text of an object: ${JSON.stringify(shown)}`,
        `${param}.function.arguments`,
      );
    }
  }
  return { ...call, type: "function", function: { ...call.function, arguments: args } };
}

/**
 * The tokens of a rendered conversation. Where the template writes the start token and the vocabulary adds it too, one is
 * left; the same at the end.
 */
export function chatTokens(tokenizer: Tokenizer, prompt: string): Int32Array {
  const ids = tokenizer.encode(prompt, { addSpecial: true, parseSpecial: true });
  const { bos, eos } = tokenizer;
  const from = bos !== null && ids[0] === bos && ids[1] === bos ? 1 : 0;
  const to = eos !== null && ids.at(-1) === eos && ids.at(-2) === eos ? ids.length - 1 : ids.length;
  return ids.subarray(from, to);
}
