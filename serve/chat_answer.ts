/**
 * Starts the answer to a conversation, for every API: prompt, generation, and the parser that splits the answer.
 * @module
 */
import type { AnswerRequest } from "./answer_request.ts";
import type { App } from "./app.ts";
import { chatTokens, continuesLast, renderChat } from "./conversation.ts";
import { unsupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { ParserInput } from "./chat_format.ts";
import { lazyConstraint } from "./constraint.ts";
import { forcedCall, possibleCall } from "./forced_call.ts";
import type { Generation } from "./generation.ts";
import type { OutputParser, ReasoningFormat } from "../core/chat/reasoning.ts";
import { ReasoningBudget } from "./reasoning_budget.ts";
import type { Conversation } from "./schemas.ts";

export interface ChatAnswerRequest extends Omit<AnswerRequest, "tools">, Conversation {
  stream?: boolean | undefined;
  reasoning_format?: ReasoningFormat | undefined;
  reasoning_budget_tokens?: number | undefined;
  thinking_budget_tokens?: number | undefined;
  reasoning_budget_message?: string | undefined;
  reasoning_control?: boolean | undefined;
}

export interface ChatAnswer {
  generation: Generation;
  parser: OutputParser;
  /** Ends the reasoning; undefined where nothing can. */
  endReasoning?: (() => boolean) | undefined;
}

export interface ChatAnswerOptions {
  /** Answers to give; default 1. */
  n?: number;
  /** Rivals recorded per token; undefined records no log-probabilities. */
  n_probs?: number | undefined;
}

/**
 * Starts the answers to a conversation.
 * @returns The answers, and a function that gives them up.
 * @throws ApiError 400 or TextError for what the template or the sampler cannot take, 503 when no more is taken.
 */
export function startChat(
  app: App,
  request: ChatAnswerRequest,
  exchange: Exchange,
  { n = 1, n_probs }: ChatAnswerOptions = {},
): { answers: ChatAnswer[]; leave: () => void } {
  const { chat, tokenizer } = app.model;
  const { prompt, inReasoning, mayReason } = renderChat(app, request);
  if (continuesLast(app, request) && (request.response_format?.type ?? "text") !== "text") {
    throw unsupported("response_format", "an answer in this form cannot go on with the assistant's last message");
  }
  const call = forcedCall(request, chat);
  const reads = app.settings.readsAnswers;
  const withTools = request.tools?.length && request.tool_choice !== "none";
  const input: ParserInput = {
    reasoningFormat: reads ? request.reasoning_format ?? app.settings.reasoningFormat : "none",
    stream: request.stream ?? false,
    ...(withTools && reads ? { tools: request.tools! } : {}),
    parallelToolCalls: request.parallel_tool_calls ?? true,
    inReasoning,
  };
  const tokens = chatTokens(tokenizer, prompt);
  const maybe = possibleCall(request, chat);
  const limit = reasoningLimit(app, request);
  const plans = Array.from({ length: n }, (_, index) => {
    const tracker = chat.createTracker(input);
    const before = { tracker, open: inReasoning, opener: mayReason ? chat.reasoningTags?.start : undefined };
    const plan = app.plan({ ...request, call }, tokens, index, before);
    if (withTools && plan.constraint !== undefined && call === undefined) {
      throw unsupported("tools", "cannot be combined with a form for the answer");
    }
    return {
      ...plan,
      tracker,
      constraint: plan.constraint ?? (maybe && lazyConstraint(maybe, app.model, tracker, app.settings.warn)),
      stops: [...plan.stops, ...chat.stops],
      budget: limit && new ReasoningBudget(tracker, limit.end, limit.tokens, tokenizer),
      n_probs,
      shown: chat.preservedTokens,
      ...(index === 0 ? {} : { sharesPromptOf: 0 }),
    };
  });
  const { generations, leave } = app.start(plans, exchange);
  const answers = generations.map((generation, i) => {
    const { budget } = plans[i];
    return { generation, parser: chat.createParser(input), endReasoning: budget && (() => budget.end()) };
  });
  return { answers, leave };
}

/** The limit of reasoning: the request's, under llama-server's two names for it, or the server's; and the closing tag. */
function reasoningLimit(app: App, request: ChatAnswerRequest): { end: string; tokens: number } | undefined {
  const tag = app.model.chat.reasoningTags?.end;
  const end = tag && (request.reasoning_budget_message ?? app.settings.reasoningBudgetMessage) + tag;
  // Without a limit the reasoning can still be ended from outside.
  const endless = request.reasoning_control && end !== undefined ? { end, tokens: Infinity } : undefined;
  for (const name of ["reasoning_budget_tokens", "thinking_budget_tokens"] as const) {
    const tokens = request[name];
    if (tokens === undefined) continue;
    if (tokens === -1) return endless;
    if (end === undefined) throw unsupported(name, "this model's reasoning has no tag that could end it");
    return { end, tokens };
  }
  const tokens = app.settings.reasoningBudget;
  return tokens === -1 || end === undefined ? endless : { end, tokens };
}
