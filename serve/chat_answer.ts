/**
 * Starts the answer to a conversation, for every API: prompt, generation, and the parser that splits the answer.
 * @module
 */
import type { AnswerRequest, App } from "./app.ts";
import { chatTokens, renderChat } from "./conversation.ts";
import { unsupported } from "./errors.ts";
import { lazyConstraint } from "./constraint.ts";
import { forcedCall, possibleCall } from "./forced_call.ts";
import type { Generation } from "./generation.ts";
import type { ReasoningFormat } from "../core/chat/mod.ts";
import type { OutputParser } from "./model.ts";
import { ReasoningBudget } from "./reasoning_budget.ts";
import type { Conversation } from "./schemas.ts";

export interface ChatAnswerRequest extends AnswerRequest, Conversation {
  stream?: boolean | undefined;
  reasoning_format?: ReasoningFormat | undefined;
  reasoning_budget_tokens?: number | undefined;
  thinking_budget_tokens?: number | undefined;
}

export interface ChatAnswer {
  generation: Generation;
  parser: OutputParser;
  /** Gives the answer up. */
  leave: () => void;
}

/**
 * @param n_probs Rivals recorded per token; undefined records no log-probabilities.
 * @throws ApiError 400 or TextError for what the template or the sampler cannot take, 503 when no more is taken.
 */
export function startChat(
  app: App,
  request: ChatAnswerRequest,
  signal: AbortSignal,
  n_probs?: number,
): ChatAnswer {
  const { chat, tokenizer } = app.model;
  const { prompt, inReasoning, mayReason } = renderChat(app, request);
  const call = forcedCall(request, chat);
  const withTools = request.tools?.length && request.tool_choice !== "none";
  const input = {
    reasoningFormat: request.reasoning_format ?? app.settings.reasoningFormat,
    stream: request.stream ?? false,
    ...(withTools ? { tools: request.tools! } : {}),
    parallelToolCalls: request.parallel_tool_calls ?? true,
    inReasoning,
  };
  const tracker = chat.createTracker(input);
  const before = { tracker, open: inReasoning, opener: mayReason ? chat.reasoningTags?.start : undefined };
  const plan = app.plan({ ...request, call }, chatTokens(tokenizer, prompt), 0, before);
  const maybe = possibleCall(request, chat);
  const limit = reasoningLimit(app, request);
  if (withTools && plan.constraint !== undefined && call === undefined) {
    throw unsupported("tools", "cannot be combined with a form for the answer");
  }
  const { generations: [generation], leave } = app.start([{
    ...plan,
    tracker,
    constraint: plan.constraint ?? (maybe && lazyConstraint(maybe, app.model, tracker, app.settings.warn)),
    stops: [...plan.stops, ...chat.stops],
    budget: limit && new ReasoningBudget(tracker, limit.end, limit.tokens, tokenizer),
    n_probs,
    shown: chat.preservedTokens,
  }], signal);
  return { generation, parser: chat.createParser(input), leave };
}

/** The limit of reasoning: the request's, under llama-server's two names for it, or the server's; and the closing tag. */
function reasoningLimit(app: App, request: ChatAnswerRequest): { end: string; tokens: number } | undefined {
  const end = app.model.chat.reasoningTags?.end;
  for (const name of ["reasoning_budget_tokens", "thinking_budget_tokens"] as const) {
    const tokens = request[name];
    if (tokens === undefined) continue;
    if (tokens === -1) return undefined;
    if (end === undefined) throw unsupported(name, "this model's reasoning has no tag that could end it");
    return { end, tokens };
  }
  const tokens = app.settings.reasoningBudget;
  return tokens === -1 || end === undefined ? undefined : { end, tokens };
}
