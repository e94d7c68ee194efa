/**
 * POST /infill: what stands between two texts, for editors. The prompt has the vocabulary's own tokens of that task.
 * @module
 */
import { z } from "zod";
import type { App } from "./app.ts";
import { notSupported } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { ServedModel } from "./language_model.ts";
import { answerNatively } from "./routes_native.ts";
import { completionSchema, opt, parseBody } from "./schemas.ts";

/** /infill */
export const infillSchema = completionSchema.omit({ prompt: true }).extend({
  input_prefix: z.string(),
  input_suffix: z.string(),
  prompt: opt(z.string()),
  input_extra: opt(z.array(z.looseObject({ text: z.string(), filename: opt(z.string()) }))),
});
type InfillRequest = z.output<typeof infillSchema>;

/** Share of the context that stays free for the answer where the request sets no limit. */
const ANSWER_SHARE = 1 / 4;
/** Shares of the rest that the text before and behind may take, when they do not fit. */
const PREFIX_SHARE = 3 / 4;
/** What parts texts of other files where the vocabulary has no token for it. */
const SNIPPET = "\n\n--- snippet ---\n\n";

export function infill(app: App, exchange: Exchange): Promise<Response> | Response {
  const request = parseBody(infillSchema, exchange.body);
  const limit = request.max_completion_tokens ?? request.max_tokens ?? request.n_predict ?? app.settings.n_predict;
  const { n_ctx } = app.scheduler;
  const free = limit < 0 ? Math.floor(n_ctx * ANSWER_SHARE) : Math.min(limit, Math.floor(n_ctx / 2));
  const prompt = infillPrompt(app.model, request, { room: n_ctx - free, suffixFirst: app.settings.spmInfill });
  return answerNatively(app, exchange, request, [prompt]);
}

/**
 * The prompt: other files, then the text before, the text behind, and the token that asks for the middle.
 * @param room Tokens that the prompt may have: what is far from the gap goes first.
 * @throws ApiError 501 for a vocabulary without the tokens
 */
export function infillPrompt(
  { tokenizer, fim }: Pick<ServedModel, "tokenizer" | "fim">,
  request: Pick<InfillRequest, "input_prefix" | "input_suffix" | "prompt" | "input_extra">,
  { room, suffixFirst }: { room: number; suffixFirst: boolean },
): Int32Array {
  const missing = (["prefix", "suffix", "middle"] as const).filter((name) => fim[name] === null);
  if (missing.length > 0) {
    throw notSupported(`This model cannot infill: its vocabulary has no ${missing.join(", no ")} token`);
  }
  const encode = (text: string) => Array.from(tokenizer.encode(text, { addSpecial: false, parseSpecial: false }));
  const begun = encode(request.prompt ?? "");
  // Only a token that begins texts; one that ends them has no place here.
  const start = Array.from(tokenizer.encode("", { addSpecial: true })).filter((id) => id === tokenizer.bos);
  const left = Math.max(0, room - start.length - 3 - begun.length);
  let before = encode(request.input_prefix), behind = encode(request.input_suffix);
  if (before.length + behind.length > left) {
    const n_before = Math.min(before.length, Math.max(Math.floor(left * PREFIX_SHARE), left - behind.length));
    before = before.slice(before.length - n_before);
    behind = behind.slice(0, left - n_before);
  }
  const extra = extraTokens({ fim, encode }, request.input_extra ?? [], left - before.length - behind.length);
  const prefix = [fim.prefix!, ...before, ...begun], suffix = [fim.suffix!, ...behind];
  const halves = suffixFirst ? [...suffix, ...prefix] : [...prefix, ...suffix];
  return Int32Array.from([...start, ...extra, ...halves, fim.middle!]);
}

/** Texts of other files; the first ones go where there is no room. */
function extraTokens(
  { fim, encode }: { fim: ServedModel["fim"]; encode: (text: string) => number[] },
  files: NonNullable<InfillRequest["input_extra"]>,
  room: number,
): number[] {
  if (files.length === 0) return [];
  const head = fim.repository === null ? [] : [fim.repository, ...encode("myproject\n")];
  const name = (filename: string) =>
    fim.separator === null ? encode(SNIPPET) : [fim.separator, ...encode(`${filename}\n`)];
  const tail = fim.separator === null ? [] : name("filename");
  const kept: number[][] = [];
  let left = room - head.length - tail.length;
  for (const { text, filename } of files.toReversed()) {
    const tokens = [...name(filename ?? "tmp"), ...encode(text)];
    if (tokens.length > left) break;
    left -= tokens.length;
    kept.unshift(tokens);
  }
  return kept.length === 0 ? [] : [...head, ...kept.flat(), ...tail];
}
