/**
 * ollama's requests as this server's own: conversations, forms, options of the sampler.
 * @module
 */
import { z } from "zod";
import type { App } from "./app.ts";
import { badRequest, unsupported } from "./errors.ts";
import { type ChatRequest, chatSchema, opt, parseBody } from "./schemas.ts";

const options = z.looseObject({
  num_predict: opt(z.int()),
  temperature: opt(z.number()),
  top_k: opt(z.int()),
  top_p: opt(z.number()),
  min_p: opt(z.number()),
  typical_p: opt(z.number()),
  seed: opt(z.int()),
  stop: opt(z.union([z.string(), z.array(z.string())])),
  repeat_penalty: opt(z.number()),
  repeat_last_n: opt(z.int()),
  presence_penalty: opt(z.number()),
  frequency_penalty: opt(z.number()),
});

const shared = {
  model: opt(z.string()),
  stream: opt(z.boolean()),
  format: opt(z.union([z.literal("json"), z.literal(""), z.looseObject({})], { error: "expected json or a schema" })),
  options: opt(options),
  think: opt(z.union([z.boolean(), z.string()])),
  keep_alive: opt(z.union([z.string(), z.number()])),
};

/** /api/chat */
export const ollamaChatSchema = z.object({
  ...shared,
  messages: opt(z.array(z.looseObject({
    role: z.string(),
    content: opt(z.string()),
    thinking: opt(z.string()),
    images: opt(z.array(z.string())),
    tool_name: opt(z.string()),
    tool_calls: opt(
      z.array(z.looseObject({ function: z.looseObject({ name: z.string(), arguments: opt(z.looseObject({})) }) })),
    ),
  }))),
  tools: opt(z.array(z.looseObject({}))),
});
export type OllamaChat = z.output<typeof ollamaChatSchema>;

/** /api/generate */
export const ollamaGenerateSchema = z.object({
  ...shared,
  prompt: opt(z.string()),
  system: opt(z.string()),
  raw: opt(z.boolean()),
  suffix: opt(z.string()),
  images: opt(z.array(z.string())),
  template: opt(z.string()),
});
export type OllamaGenerate = z.output<typeof ollamaGenerateSchema>;

/** Names that are the same here. */
const SAME = [
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "typical_p",
  "seed",
  "stop",
  "repeat_penalty",
  "repeat_last_n",
  "presence_penalty",
  "frequency_penalty",
] as const;

/** What the sampler and the form are to be, under this server's names. */
export function samplingOf(
  app: App,
  request: Pick<OllamaChat, "options" | "format" | "think">,
): Record<string, unknown> {
  const { format, think } = request, o: Partial<z.output<typeof options>> = request.options ?? {};
  const out: Record<string, unknown> = {};
  for (const name of SAME) if (o[name] !== undefined) out[name] = o[name];
  if (o.num_predict !== undefined) out.max_tokens = o.num_predict < 0 ? -1 : o.num_predict;
  for (const name of ["num_ctx", "num_gpu", "num_thread", "num_batch"]) {
    if (o[name] !== undefined) {
      app.warnOnce(`options.${name} of ollama's clients is ignored: the server decides it when it starts`);
    }
  }
  if (format === "json") out.response_format = { type: "json_object" };
  else if (typeof format === "object") {
    out.response_format = { type: "json_schema", json_schema: { name: "form", schema: format } };
  }
  if (typeof think === "boolean") out.chat_template_kwargs = { enable_thinking: think };
  else if (think !== undefined) out.reasoning_effort = think;
  return out;
}

/** @throws ApiError 400 for what this server cannot do */
export function chatRequestOf(app: App, request: OllamaChat): ChatRequest {
  const messages = (request.messages ?? []).map((m, i) => {
    if (m.images?.length) throw unsupported(`messages[${i}].images`, "this model reads text only");
    const calls = m.tool_calls?.map((c) => ({
      type: "function",
      function: { name: c.function.name, arguments: JSON.stringify(c.function.arguments ?? {}) },
    }));
    return {
      role: m.role,
      content: m.content ?? "",
      ...(m.thinking ? { reasoning_content: m.thinking } : {}),
      ...(m.tool_name ? { name: m.tool_name } : {}),
      ...(calls?.length ? { tool_calls: calls } : {}),
    };
  });
  const { tools, stream } = request;
  const body = { ...samplingOf(app, request), messages, stream: stream ?? true, ...(tools?.length ? { tools } : {}) };
  return parseBody(chatSchema, JSON.stringify(body));
}

/** A prompt as the conversation that it is. @throws ApiError 400 for what this server cannot do */
export function conversationOf(request: OllamaGenerate): OllamaChat {
  if (request.images?.length) throw unsupported("images", "this model reads text only");
  if (request.suffix) throw unsupported("suffix", "use POST /infill");
  if (request.template) throw badRequest("template: the server's template is set with --chat-template", "template");
  const { prompt = "", system } = request;
  return {
    ...request,
    messages: [
      ...(system ? [{ role: "system", content: system }] : []),
      { role: "user", content: prompt },
    ] as OllamaChat["messages"],
    tools: undefined,
  };
}
