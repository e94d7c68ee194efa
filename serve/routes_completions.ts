/**
 * POST /v1/completions: OpenAI's legacy completions, with echo and the log-probabilities of the prompt that scorers need.
 * @module
 */
import { type AnswerPlan, type App, json, randomId } from "./app.ts";
import { bestOf, collectAll, type Collected } from "./collect.ts";
import { unsupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { codePoints, type Generation, type GenerationEnd } from "./generation.ts";
import { legacyLogprobs, type LegacyToken } from "./logprobs.ts";
import { nativeResult, progressOf, verboseOf } from "./native_result.ts";
import { promptsOf } from "./prompts.ts";
import { choicesOf, type OpenaiCompletionRequest, openaiCompletionSchema, parseBody } from "./schemas.ts";
import { sseResponse } from "./sse.ts";
import { merge } from "./streams.ts";
import { timingsOf, usageOf } from "./timings.ts";

/** The response to a completion request: `n` choices for each prompt, prompt by prompt. */
export function completions(app: App, exchange: Exchange): Promise<Response> | Response {
  const request = parseBody(openaiCompletionSchema, exchange.body);
  exchange.sends(request);
  if (request.suffix) throw unsupported("suffix", "this route does not insert text; use a fill-in-the-middle prompt");
  const { answers, leave } = start(app, request, exchange);
  const head = {
    id: randomId("cmpl-"),
    object: "text_completion",
    created: Math.floor(Date.now() / 1000),
    model: app.model.id,
    system_fingerprint: app.settings.build,
  };
  if (request.stream) return sseResponse(app, exchange, chunks(app, request, answers, head), leave);
  return whole(app, request, answers, head, leave);
}

/** One answer, with what its choice needs. */
interface Answer {
  index: number;
  generation: Generation;
  /** The answer begins with the prompt. */
  echoes: boolean;
  /** The prompt's text when it is echoed, else "". */
  echo: string;
  /** Rivals per token; undefined without log-probabilities. */
  n_probs: number | undefined;
  /** The echoed prompt's tokens. */
  promptTokens(): LegacyToken[];
}

function start(
  app: App,
  request: OpenaiCompletionRequest,
  exchange: Exchange,
): { answers: Answer[]; leave: () => void } {
  const { tokenizer } = app.model;
  const { logprobs, echo = false } = request;
  const { n, best_of } = choicesOf(request);
  const n_probs = logprobs === undefined || logprobs === false
    ? undefined
    : Math.min(Number(logprobs), tokenizer.n_vocab);
  const plans = promptsOf(request.prompt, tokenizer).flatMap((prompt, i) =>
    Array.from({ length: best_of }, (_, k): AnswerPlan => ({
      ...app.plan(request, prompt, i * best_of + k),
      n_probs: n_probs ?? (best_of > n ? 0 : undefined),
      promptLogprobs: echo && n_probs !== undefined && k === 0,
      ...(k === 0 ? {} : { sharesPromptOf: i * best_of }),
    }))
  );
  const { generations, leave } = app.start(plans, exchange);
  const answers = generations.map((generation, index) => ({
    index,
    generation,
    echoes: echo,
    echo: echo ? tokenizer.decode(generation.prompt, { special: true, removeSpecial: true }) : "",
    n_probs,
    promptTokens: () => promptTokens(app, generation.after ?? generation),
  }));
  return { answers, leave };
}

/** The prompt's tokens with their log-probabilities; the first has none. */
function promptTokens(app: App, generation: Generation): LegacyToken[] {
  const { tokenizer } = app.model;
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let offset = 0;
  return Array.from(generation.prompt, (id, i) => {
    const at = offset;
    // A start token that the vocabulary added is not part of the text.
    const hidden = i === 0 && id === tokenizer.bos;
    if (!hidden) offset += codePoints(decoder.decode(tokenizer.pieceBytes(id, true), { stream: true }));
    const known = generation.promptLogprobs[i];
    return known === undefined ? { id, offset: at } : { id, offset: at, ...known };
  });
}

function finishReason(end: GenerationEnd): string {
  return end.stopType === "limit" ? "length" : "stop";
}

async function whole(
  app: App,
  request: OpenaiCompletionRequest,
  answers: Answer[],
  head: object,
  leave: () => void,
): Promise<Response> {
  const { n, best_of } = choicesOf(request);
  const generations = answers.map((a) => a.generation);
  const all = await collectAll(generations, leave);
  const given: number[] = [];
  for (let from = 0; from < answers.length; from += best_of) {
    for (const k of bestOf(all.slice(from, from + best_of), n)) given.push(from + k);
  }
  return json({
    ...head,
    choices: given.map((i, index) => choiceOf(app, answers[i], all[i], index)),
    usage: usageOf(generations),
    ...(generations.length === 1 ? { timings: timingsOf(generations[0]) } : {}),
    ...(request.verbose ?? app.settings.verbose ? { __verbose: verboseOf(app, generations[0], all[0]) } : {}),
  });
}

function choiceOf(app: App, answer: Answer, { text, tokens, end }: Collected, index: number): object {
  const shifted = tokens.map((token) => ({ ...token, offset: token.offset + codePoints(answer.echo) }));
  const logprobs = () =>
    legacyLogprobs(
      app.model.tokenizer,
      answer.echoes ? [...answer.promptTokens(), ...shifted] : shifted,
      answer.n_probs!,
    );
  return {
    text: answer.echo + text,
    index,
    logprobs: answer.n_probs === undefined ? null : logprobs(),
    finish_reason: finishReason(end),
  };
}

async function* chunks(
  app: App,
  request: OpenaiCompletionRequest,
  answers: Answer[],
  head: object,
): AsyncGenerator<string, void, void> {
  const include_usage = request.stream_options?.include_usage ?? false;
  const chunk = (choices: unknown[], more: object = {}) =>
    JSON.stringify({ ...head, choices, ...(include_usage ? { usage: null } : {}), ...more });
  const logprobs = (answer: Answer, tokens: LegacyToken[]) =>
    answer.n_probs === undefined ? null : legacyLogprobs(app.model.tokenizer, tokens, answer.n_probs);
  const timings = () => answers.length === 1 ? { timings: timingsOf(answers[0].generation) } : {};
  const verbose = request.verbose ?? app.settings.verbose;
  const echoed = new Set<number>();
  for await (const [i, event] of merge(answers.map((a) => a.generation[Symbol.asyncIterator]()))) {
    const answer = answers[i];
    const { index } = answer;
    if (request.echo && !echoed.has(i)) {
      echoed.add(i);
      const tokens = answer.n_probs === undefined ? [] : answer.promptTokens();
      yield chunk([{ text: answer.echo, index, logprobs: logprobs(answer, tokens), finish_reason: null }]);
    }
    const soFar = request.timings_per_token ? { timings: timingsOf(answer.generation) } : {};
    if (event.type === "progress") {
      const more = { ...soFar, prompt_progress: progressOf(event) };
      yield chunk([{ text: "", index, logprobs: null, finish_reason: null }], more);
    } else if (event.type === "end") {
      const last = { index, content: "", tokens: [], end: event };
      const more = {
        ...(include_usage ? {} : timings()),
        ...(verbose ? { __verbose: nativeResult(app, answer.generation, last) } : {}),
      };
      yield chunk([{ text: "", index, logprobs: null, finish_reason: finishReason(event) }], more);
    } else {
      const start = codePoints(answer.echo);
      const tokens = event.tokens.map((token) => ({ ...token, offset: token.offset + start }));
      yield chunk([{ text: event.text, index, logprobs: logprobs(answer, tokens), finish_reason: null }], soFar);
    }
  }
  if (include_usage) yield chunk([], { usage: usageOf(answers.map((a) => a.generation)), ...timings() });
  yield "[DONE]";
}
