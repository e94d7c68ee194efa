/**
 * POST /v1/responses: translates OpenAI's Responses to a chat request, and the answer back. An answer consists of items:
 * reasoning, a message, function calls. In a stream each item has its events.
 * @module
 */
import { z } from "zod";
import { type App, json, randomId } from "./app.ts";
import { type ChatAnswer, startChat } from "./chat_answer.ts";
import { collectAll } from "./collect.ts";
import { chatTokens, renderChat } from "./conversation.ts";
import { badRequest, inWordsOf, toApiError } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { inputMessages, type StoredMessage } from "./response_input.ts";
import { type Item, ItemWriter, messageOf } from "./response_items.ts";
import { chatSchema, checkValue, jsonObject, opt, parseBody, samplingSchema } from "./schemas.ts";
import { type SseItem, sseResponse } from "./sse.ts";
import { usageOf } from "./timings.ts";

const tokens = z.number().refine((n) => Number.isInteger(n) && n >= 1, {
  error: "expected a number of tokens, 1 or more",
}).meta({ type: "integer", minimum: 1 });

const format = z.looseObject({
  type: z.enum(["text", "json_object", "json_schema"]),
  schema: opt(jsonObject),
  strict: opt(z.boolean()),
});

/** /v1/responses */
export const responsesSchema = samplingSchema.extend({
  model: opt(z.string()),
  input: z.union([z.string(), z.array(z.looseObject({ type: opt(z.string()) })).min(1)], {
    error: "expected a string or an array of items",
  }),
  instructions: opt(z.string()),
  previous_response_id: opt(z.string()),
  store: opt(z.boolean()),
  max_output_tokens: opt(tokens),
  tools: opt(z.array(z.looseObject({
    type: z.string(),
    name: opt(z.string().min(1)),
    description: opt(z.string()),
    parameters: opt(jsonObject),
    strict: opt(z.boolean()),
  }))),
  tool_choice: opt(z.union([
    z.enum(["none", "auto", "required"]),
    z.looseObject({ type: z.literal("function"), name: z.string() }),
  ])),
  parallel_tool_calls: opt(z.boolean()),
  text: opt(z.looseObject({ format: opt(format) })),
  reasoning: opt(z.looseObject({ effort: opt(z.string()) })),
  chat_template_kwargs: opt(jsonObject),
  stream: opt(z.boolean()),
  metadata: opt(jsonObject),
});
type ResponsesRequest = z.output<typeof responsesSchema>;

export function responses(app: App, exchange: Exchange): Promise<Response> | Response {
  const request = parseBody(responsesSchema, exchange.body);
  const messages = conversationOf(app, request);
  const { answers: [answer], leave } = inWordsOf("text.format", () =>
    startChat(app, {
      ...checkValue(chatSchema, chatRequest(app, request, messages)),
      stream: request.stream,
    }, exchange));
  const run = new RunningResponse(app, request, messages, answer);
  if (request.stream) return sseResponse(app, exchange, run.events(), leave, (error) => run.errorEvent(error));
  return run.whole(leave);
}

/** Tokens that a request's prompt has. */
export function responsesInputTokens(app: App, { body }: Exchange): Response {
  const request = parseBody(responsesSchema, body);
  const chat = checkValue(chatSchema, chatRequest(app, request, conversationOf(app, request)));
  const input_tokens = chatTokens(app.model.tokenizer, renderChat(app, chat).prompt).length;
  return json({ object: "response.input_tokens", input_tokens });
}

/** The messages of a request, after those of the response that it continues. */
function conversationOf(app: App, request: ResponsesRequest): StoredMessage[] {
  const { previous_response_id: id } = request;
  const before = id === undefined ? [] : app.responses.get(id);
  if (before === undefined) {
    const param = "previous_response_id";
    throw badRequest(`${param}: there is no stored response "${id}"`, param, "previous_response_not_found");
  }
  return [...before, ...inputMessages(request.input)];
}

function chatRequest(app: App, request: ResponsesRequest, messages: StoredMessage[]): Record<string, unknown> {
  const { tools, tool_choice: choice, text, instructions } = request;
  const passed = tools?.filter((tool) => tool.type !== "function") ?? [];
  if (passed.length > 0) {
    const types = [...new Set(passed.map((tool) => tool.type))].join(", ");
    app.warnOnce(
      `tools: the server ignores tools of type ${types}; it passes functions to the model and runs no tools of its own`,
    );
  }
  const functions = tools?.filter((tool) => tool.type === "function").map((tool, i) => {
    if (tool.name === undefined) throw badRequest(`tools[${i}].name: required, and missing`, `tools[${i}].name`);
    const { name, description, parameters, strict } = tool;
    return { type: "function", function: { name, description, parameters, strict } };
  });
  const form = text?.format;
  return {
    ...Object.fromEntries(Object.keys(samplingSchema.shape).map((name) => [name, request[name as "seed"]])),
    messages: instructions === undefined ? messages : [{ role: "system", content: instructions }, ...messages],
    tools: functions,
    tool_choice: typeof choice === "object" ? { type: "function", function: { name: choice.name } } : choice,
    parallel_tool_calls: request.parallel_tool_calls,
    reasoning_effort: request.reasoning?.effort,
    chat_template_kwargs: request.chat_template_kwargs,
    max_tokens: request.max_output_tokens,
    ...(form === undefined ? {} : {
      response_format: {
        type: form.type,
        ...(form.type === "json_schema" ? { json_schema: { schema: form.schema, strict: form.strict } } : {}),
      },
    }),
  };
}

/** A running response. */
class RunningResponse {
  readonly #app: App;
  readonly #request: ResponsesRequest;
  readonly #messages: StoredMessage[];
  readonly #answer: ChatAnswer;
  readonly #id = randomId("resp_");
  readonly #created = Math.floor(Date.now() / 1000);
  readonly #writer = new ItemWriter();
  #sequence = 0;

  constructor(app: App, request: ResponsesRequest, messages: StoredMessage[], answer: ChatAnswer) {
    this.#app = app;
    this.#request = request;
    this.#messages = messages;
    this.#answer = answer;
  }

  async whole(leave: () => void): Promise<Response> {
    const { generation, parser } = this.#answer;
    const [{ text, end }] = await collectAll([generation], leave);
    // Without a stream only the items matter, not the events.
    for (const delta of [...parser.push(text), ...parser.finish()]) for (const _ of this.#writer.take(delta));
    for (const _ of this.#writer.finish(end.stopType === "limit"));
    return json(this.#finished(end.stopType === "limit"));
  }

  async *events(): AsyncGenerator<SseItem, void, void> {
    const { generation, parser } = this.#answer;
    for (const type of ["response.created", "response.in_progress"]) {
      yield this.#event(type, { response: this.#describe("in_progress", []) });
    }
    for await (const item of generation) {
      if (item.type === "progress") continue; // these clients never ask for it
      if (item.type === "text") {
        for (const delta of parser.push(item.text)) yield* this.#shown(this.#writer.take(delta));
        continue;
      }
      const cut = item.stopType === "limit";
      for (const delta of parser.finish()) yield* this.#shown(this.#writer.take(delta));
      yield* this.#shown(this.#writer.finish(cut));
      yield this.#event(cut ? "response.incomplete" : "response.completed", { response: this.#finished(cut) });
    }
  }

  errorEvent(error: unknown): SseItem {
    const { message, apiCode, param } = toApiError(error);
    return this.#event("error", { code: apiCode, message, param });
  }

  *#shown(events: Iterable<{ type: string; [field: string]: unknown }>): Generator<SseItem> {
    for (const { type, ...rest } of events) yield this.#event(type, rest);
  }

  #event(type: string, rest: object): SseItem {
    return { event: type, data: JSON.stringify({ type, sequence_number: this.#sequence++, ...rest }) };
  }

  /** Describes the finished response, and keeps its conversation unless the request forbids it. */
  #finished(cut: boolean): object {
    const { items } = this.#writer;
    if (this.#request.store ?? true) {
      this.#app.responses.add(this.#id, [...this.#messages, ...messageOf(items)]);
    }
    return this.#describe(cut ? "incomplete" : "completed", items);
  }

  #describe(status: "in_progress" | "completed" | "incomplete", output: readonly Item[]): object {
    const request = this.#request;
    const done = status !== "in_progress";
    return {
      id: this.#id,
      object: "response",
      created_at: this.#created,
      completed_at: status === "completed" ? Math.floor(Date.now() / 1000) : null,
      status,
      error: null,
      incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
      instructions: request.instructions ?? null,
      max_output_tokens: request.max_output_tokens ?? null,
      metadata: request.metadata ?? {},
      model: this.#app.model.id,
      output,
      parallel_tool_calls: request.parallel_tool_calls ?? true,
      previous_response_id: request.previous_response_id ?? null,
      reasoning: { effort: request.reasoning?.effort ?? null, summary: null },
      store: request.store ?? true,
      temperature: request.temperature ?? this.#app.model.sampling.temperature ?? null,
      text: request.text ?? { format: { type: "text" } },
      tool_choice: request.tool_choice ?? "auto",
      tools: request.tools ?? [],
      top_p: request.top_p ?? this.#app.model.sampling.top_p ?? null,
      truncation: "disabled",
      usage: done ? this.#usage() : null,
    };
  }

  #usage(): object {
    const { generation } = this.#answer;
    const { prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details, completion_tokens_details } =
      usageOf(
        [generation],
      );
    return {
      input_tokens: prompt_tokens,
      input_tokens_details: prompt_tokens_details,
      output_tokens: completion_tokens,
      output_tokens_details: completion_tokens_details,
      total_tokens,
    };
  }
}
