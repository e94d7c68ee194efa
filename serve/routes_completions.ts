/**
 * POST /v1/completions: OpenAI's legacy completions, with echo and log-probabilities of the prompt as scorers want them.
 * @module
 */
import { type App, type ClientRequest, json, randomId } from "./app.ts";
import { unsupported } from "./errors.ts";
import { codePoints, type Generation, type GenerationEnd } from "./generation.ts";
import { legacyLogprobs, type LegacyToken } from "./logprobs.ts";
import { promptsOf } from "./prompts.ts";
import { type OpenaiCompletionRequest, openaiCompletionSchema, parseBody } from "./schemas.ts";
import { sseResponse } from "./sse.ts";
import { merge } from "./streams.ts";
import { timingsOf, usageOf } from "./timings.ts";

/** The response to a completion request: one choice per prompt. */
export function completions(app: App, { body, signal }: ClientRequest): Promise<Response> | Response {
  const request = parseBody(openaiCompletionSchema, body);
  refuse(request);
  const { answers, leave } = start(app, request, signal);
  const head = {
    id: randomId("cmpl-"),
    object: "text_completion",
    created: Math.floor(Date.now() / 1000),
    model: app.model.id,
    system_fingerprint: app.settings.build,
  };
  if (request.stream) return sseResponse(chunks(app, request, answers, head), leave);
  return whole(app, answers, head, leave);
}

function refuse(request: OpenaiCompletionRequest): void {
  if ((request.n ?? 1) !== 1) throw unsupported("n", "only 1 answer per prompt can be given");
  if ((request.best_of ?? 1) !== 1) throw unsupported("best_of", "only 1 answer per prompt can be tried");
  if (request.suffix) throw unsupported("suffix", "this route does not insert; use a fill-in-the-middle prompt");
}

/** One prompt's answer with what its choice is made of. */
interface Answer {
  index: number;
  generation: Generation;
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
  signal: AbortSignal,
): { answers: Answer[]; leave: () => void } {
  const { tokenizer } = app.model;
  const { logprobs, echo = false } = request;
  const n_probs = logprobs === undefined || logprobs === false
    ? undefined
    : Math.min(Number(logprobs), tokenizer.n_vocab);
  const prompts = promptsOf(request.prompt, tokenizer);
  const plans = prompts.map((prompt, index) => ({
    ...app.plan(request, prompt, index),
    n_probs,
    promptLogprobs: echo && n_probs !== undefined,
  }));
  const { generations, leave } = app.start(plans, signal);
  const answers = generations.map((generation, index) => ({
    index,
    generation,
    echo: echo ? tokenizer.decode(generation.prompt, { special: true, removeSpecial: true }) : "",
    n_probs,
    promptTokens: () => promptTokens(app, generation),
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

async function whole(app: App, answers: Answer[], head: object, leave: () => void): Promise<Response> {
  try {
    const choices = await Promise.all(answers.map(async (answer) => {
      let text = answer.echo;
      let end: GenerationEnd | undefined;
      const tokens: LegacyToken[] = [];
      const start = codePoints(answer.echo);
      for await (const event of answer.generation) {
        if (event.type === "end") end = event;
        else {
          text += event.text;
          for (const token of event.tokens) tokens.push({ ...token, offset: token.offset + start });
        }
      }
      const all = answer.echo !== "" || answer.generation.promptRows ? [...answer.promptTokens(), ...tokens] : tokens;
      return {
        text,
        index: answer.index,
        logprobs: answer.n_probs === undefined ? null : legacyLogprobs(app.model.tokenizer, all, answer.n_probs),
        finish_reason: finishReason(end!),
      };
    }));
    const generations = answers.map((a) => a.generation);
    const timings = generations.length === 1 ? { timings: timingsOf(generations[0]) } : {};
    return json({ ...head, choices, usage: usageOf(generations), ...timings });
  } catch (error) {
    leave(); // one failed answer takes the others with it
    throw error;
  }
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
  const echoed = new Set<number>();
  for await (const [i, event] of merge(answers.map((a) => a.generation[Symbol.asyncIterator]()))) {
    const answer = answers[i];
    const { index } = answer;
    if (request.echo && !echoed.has(i)) {
      echoed.add(i);
      const tokens = answer.n_probs === undefined ? [] : answer.promptTokens();
      yield chunk([{ text: answer.echo, index, logprobs: logprobs(answer, tokens), finish_reason: null }]);
    }
    if (event.type === "end") {
      const timings = answers.length === 1 ? { timings: timingsOf(answer.generation) } : {};
      yield chunk([{ text: "", index, logprobs: null, finish_reason: finishReason(event) }], timings);
    } else {
      const start = codePoints(answer.echo);
      const tokens = event.tokens.map((token) => ({ ...token, offset: token.offset + start }));
      yield chunk([{ text: event.text, index, logprobs: logprobs(answer, tokens), finish_reason: null }]);
    }
  }
  if (include_usage) yield chunk([], { usage: usageOf(answers.map((a) => a.generation)) });
  yield "[DONE]";
}
