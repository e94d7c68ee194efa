/**
 * A conversation's answer under way, whatever API asked for it: prompt, generation and the parser that takes it apart.
 * @module
 */
import type { AnswerRequest, App } from "./app.ts";
import { chatTokens, renderChat } from "./conversation.ts";
import { unsupported } from "./errors.ts";
import { lazyConstraint, type ReasoningBlock } from "./constraint.ts";
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
  const { prompt, inReasoning } = renderChat(app, request);
  const tags = chat.reasoningTags;
  const call = forcedCall(request, chat);
  const reasoning = tags && { ...tags, open: inReasoning };
  const plan = app.plan({ ...request, call }, chatTokens(tokenizer, prompt), 0, reasoning);
  const maybe = possibleCall(request, chat);
  const withTools = request.tools?.length && request.tool_choice !== "none";
  const endingCalls = withTools && chat.callEndsReasoning ? chat.callTriggers : [];
  const limit = reasoningLimit(app, request, reasoning);
  const budget = limit && new ReasoningBudget(limit.block, limit.tokens, tokenizer, endingCalls);
  if (withTools && plan.constraint !== undefined && call === undefined) {
    throw unsupported("tools", "cannot be combined with a form for the answer");
  }
  const parser = chat.createParser({
    reasoningFormat: request.reasoning_format ?? app.settings.reasoningFormat,
    stream: request.stream ?? false,
    ...(withTools ? { tools: request.tools! } : {}),
    parallelToolCalls: request.parallel_tool_calls ?? true,
    inReasoning,
  });
  const { generations: [generation], leave } = app.start([{
    ...plan,
    constraint: plan.constraint ?? (maybe && lazyConstraint(maybe, app.model, reasoning, app.settings.warn)),
    stops: [...plan.stops, ...chat.stops],
    budget,
    n_probs,
    shown: chat.preservedTokens,
  }], signal);
  return { generation, parser, leave };
}

/** The block and the limit of its tokens: the request's, under llama-server's two names for it, or the server's. */
function reasoningLimit(
  app: App,
  request: ChatAnswerRequest,
  block: ReasoningBlock | undefined,
): { block: ReasoningBlock; tokens: number } | undefined {
  for (const name of ["reasoning_budget_tokens", "thinking_budget_tokens"] as const) {
    const tokens = request[name];
    if (tokens === undefined) continue;
    if (tokens === -1) return undefined;
    if (block === undefined) throw unsupported(name, "this model's reasoning has no tag that could end it");
    return { block, tokens };
  }
  const tokens = app.settings.reasoningBudget;
  return tokens === -1 || block === undefined ? undefined : { block, tokens };
}
