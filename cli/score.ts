/**
 * `bloomery score`: per-position log-probabilities of a text, as JSONL that a later run can continue.
 * @module
 */
import { type Command, EXIT, type Flags } from "./command.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import { LLAMA_DRAFT_FLAGS, LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import type { Io } from "./io.ts";
import { modelPath } from "./model_file.ts";
import { contextOf, openModelFromFlags } from "./open.ts";
import { requirePlace } from "./overwrite.ts";
import { EvalError, UsageError } from "../core/errors.ts";
import type { Prompt } from "../eval/prompts.ts";
import type { TextSource, Window } from "../eval/windows.ts";
import type { LanguageModel } from "../core/language_model.ts";
import { readText } from "./text_file.ts";

/** Flags of score and eval. */
export const WINDOW_FLAGS = [
  { name: "file", alias: ["f"], type: "strings", value: "FILE", help: "text file; may be given several times" },
  {
    name: "tokens",
    type: "strings",
    value: "FILE",
    help: "file with an array of token ids, instead of or besides a text",
  },
  {
    name: "prompts",
    type: "strings",
    value: "JSONL",
    help: 'file of prompts, one a line: {"prompt", "completion"}, {"messages"}, {"text"} or {"ids"}; ' +
      '"set" names the set that a line is counted in',
  },
  { name: "window", type: "int", value: "N", default: 512, min: 2, help: "tokens per window" },
  {
    name: "skip",
    type: "int",
    value: "N",
    default: 0,
    min: 0,
    help: "positions at a window's start that are not scored",
  },
  { name: "bos", type: "bool", help: "start windows with bos even where the vocabulary does not ask for it" },
] as const;

/** Sequences of a group that is run at once; beyond some, a step is full anyway. */
export const AT_ONCE = {
  name: "at-once",
  type: "int",
  value: "N",
  default: 8,
  min: 1,
  max: 256,
  help: "most windows or prompts that are run at once; the figures do not depend on it",
} as const;

/** The tokens of context that windows and prompts may have. */
export function scoreContext(flags: Flags): number {
  return Math.max(contextOf(flags) ?? 0, flags.num("window")!);
}

/** How a model is opened that runs groups of sequences. */
export function groupOptions(
  flags: Flags,
  n_ctx: number = scoreContext(flags),
): { n_seq: number; n_ctx: number; n_cache: number } {
  const n_seq = flags.num("at-once")!;
  // A group has no more tokens than a step has rows, or one sequence; each may leave a page nearly empty.
  return { n_seq, n_ctx, n_cache: Math.max(n_ctx, 2 * (flags.num("ubatch-size") ?? 512)) + 64 * n_seq };
}

/** What the flags name to be run. */
export interface Sources {
  readonly texts: readonly TextSource[];
  readonly prompts: readonly Prompt[];
}

/** Reads the files of `--file`, `--tokens` and `--prompts`. */
export async function readSources(flags: Flags): Promise<Sources> {
  const { parsePrompts } = await import("../eval/prompts.ts");
  const texts = flags.strs("file"), tokens = flags.strs("tokens"), prompts = flags.strs("prompts");
  if (texts.length + tokens.length + prompts.length === 0) {
    throw new UsageError("usage.missing_flag", "Cannot score nothing: found none of --file, --tokens, --prompts", {
      hint: "give a text with -f FILE",
    });
  }
  const short = (path: string) => path.split("/").at(-1)!;
  const shorts = [...texts, ...tokens, ...prompts].map(short);
  /** The file's name, or its whole path where another file has the same name: each row of the results carries this name. */
  const name = (path: string) => shorts.filter((s) => s === short(path)).length > 1 ? path : short(path);
  const sources = [
    ...texts.map((path) => ({ name: name(path), text: readText(path, "file") })),
    ...tokens.map((path) => {
      const text = readText(path, "tokens");
      let ids: unknown;
      try {
        ids = JSON.parse(text);
      } catch (cause) {
        throw new EvalError("eval.tokens", `Cannot read ${path}: it is not JSON`, { at: { file: path }, cause });
      }
      if (!Array.isArray(ids) || !ids.every((x) => Number.isInteger(x))) {
        throw new EvalError("eval.tokens", `Cannot read ${path}: found no array of whole numbers`, {
          at: { file: path },
        });
      }
      return { name: name(path), ids: ids as number[] };
    }),
  ];
  return {
    texts: sources,
    prompts: prompts.flatMap((path) => parsePrompts(readText(path, "prompts"), path, name(path))),
  };
}

/** The windows of what the flags name, in a model's tokens. */
export async function windowsOf(
  sources: Sources,
  model: LanguageModel,
  options: { n_window: number; skip: number; bos: boolean; n_ctx: number },
): Promise<Window[]> {
  const { cutWindows } = await import("../eval/windows.ts");
  const { promptWindows } = await import("../eval/prompts.ts");
  const windows = [
    ...cutWindows(sources.texts, model.tokenizer, options),
    ...promptWindows(sources.prompts, model, options),
  ];
  const texts = new Set(sources.texts.map((s) => s.name));
  const both = sources.prompts.find((p) => texts.has(p.set));
  if (both === undefined) return windows;
  throw new EvalError("eval.sources", `Cannot tell sets apart: "${both.set}" is a text, and a set of ${both.file}`, {
    at: { file: both.file, line: both.line, set: both.set },
    hint: "rename one of them",
  });
}

/** The text of an output that exists. @throws the system's error where it is there and cannot be read */
export async function ownFile(path: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Whole rows have one length and one start of what is scored: the format has no place for others. */
function checkWholeRows(sources: Sources, flags: Flags): void {
  const window = flags.num("window")!, half = Math.floor(window / 2);
  const refuse = (what: string, hint: string) => {
    throw new UsageError("usage.arguments", `Cannot write whole rows with ${what}`, { hint });
  };
  if (sources.prompts.length > 0) refuse("--prompts: the format has windows of one length", "leave out --format kld");
  if (flags.given("skip") && flags.num("skip") !== half) {
    refuse(`--skip ${flags.num("skip")}: the format has the second half of each window`, "leave out --skip");
  }
  if (window < 4) refuse(`--window ${window}: its second half would be nothing`, "use --window of at least 4");
}

/** Prints what was scored. @returns the exit code */
async function report(
  io: Io,
  flags: Flags,
  header: Record<string, unknown> & { readonly bos: boolean },
  path: string,
  results: readonly number[],
  counts: readonly number[],
): Promise<number> {
  const { estimate, estimateText, expEstimate } = await import("../eval/stats.ts");
  const { firstPosition } = await import("../eval/windows.ts");
  const nll = estimate(results, counts), ppl = expEstimate(nll);
  const n_windows = results.length, n_tokens = counts.reduce((n, x) => n + x, 0), first = firstPosition(header.bos);
  if (flags.bool("json")) {
    io.json({ ...header, first_position: first, output: path, n_windows, n_tokens, nll, ppl });
  } else {
    const figures = `NLL ${estimateText(nll, 6)}, PPL ${estimateText(ppl, 4)}`;
    io.out(`${path}: ${n_windows} windows, ${n_tokens} tokens, ${figures}; ${first}\n`);
  }
  return EXIT.done;
}

export const score: Command = {
  name: "score",
  summary: "Write a model's log-probabilities over a text, position by position",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    ...WINDOW_FLAGS,
    {
      name: "output",
      alias: ["o"],
      type: "string",
      value: "FILE",
      required: true,
      help: "file to write; an unfinished one is continued",
    },
    {
      name: "format",
      type: "string",
      value: "FORMAT",
      choices: ["jsonl", "kld"],
      default: "jsonl",
      help: "jsonl: the best candidates; kld: whole rows over the second half of each window, for llama-perplexity " +
        "--kl-divergence and for bloomery eval",
    },
    { name: "top", type: "int", value: "K", default: 20, min: 1, max: 100, help: "candidates kept per position" },
    {
      ...COMMON.overwrite,
      alias: ["restart"],
      help: "start again and replace the file; without it a run continues its own unfinished file",
    },
    AT_ONCE,
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
    ...LLAMA_DRAFT_FLAGS,
  ],
  epilog: "Run the same command again to continue a run that was stopped.",
  async run({ flags, io }) {
    const { firstPosition, useBos } = await import("../eval/windows.ts");
    const { resumePoint, SCORE_SCHEMA, scoreWindows } = await import("../eval/score.ts");
    const { parseScoreFile } = await import("../eval/score_file.ts");
    const { peerChunks } = await import("../eval/peer_chunks.ts");
    const { meanOf } = await import("../eval/stats.ts");
    const sources = await readSources(flags);
    const whole = flags.str("format") === "kld";
    const skip = whole ? Math.floor(flags.num("window")! / 2) : flags.num("skip")!;
    if (whole) checkWholeRows(sources, flags);
    // Of a run with prompts, the most tokens that one may have; of texts alone, what they are cut into.
    const n_window = sources.prompts.length > 0 ? scoreContext(flags) : flags.num("window")!;
    const group = groupOptions(flags);
    requirePlace(flags.str("output")!);
    const model = await modelPath(flags, io), name = model.split("/").at(-1)!;
    io.ifInterrupted("stopped; run the same command to continue");
    const path = flags.str("output")!;
    const existing = flags.bool("overwrite") || whole ? undefined : await ownFile(path);
    /** What is to be scored, and what of it the file already has. */
    const plan = async (model: LanguageModel) => {
      const bos = useBos(model.tokenizer, flags.bool("bos") || undefined);
      const cut = { n_window: flags.num("window")!, skip, bos, n_ctx: group.n_ctx };
      const chunks = whole
        ? sources.texts.map((text) => peerChunks(text, model.tokenizer, { n_ctx: cut.n_window, bos }))
        : [];
      const windows = whole ? chunks.flatMap((c) => c.windows) : await windowsOf(sources, model, cut);
      const ids = Int32Array.from(chunks.flatMap((c) => [...c.ids]));
      const header = {
        schema: SCORE_SCHEMA,
        model: name,
        n_vocab: model.engine.n_vocab,
        n_window,
        skip,
        bos,
        top_k: Math.min(flags.num("top")!, model.engine.topK),
        sources: [...new Set(windows.map((w) => w.source))].map((source) => ({
          name: source,
          n_windows: windows.filter((w) => w.source === source).length,
        })),
      } as const;
      if (existing === undefined || !existing.includes("\n")) {
        return { windows, ids, header, from: 0, kept: JSON.stringify(header) + "\n", done: [] };
      }
      const file = parseScoreFile(existing, path);
      return {
        windows,
        ids,
        header,
        from: resumePoint(file, header, windows, path),
        kept: existing.slice(0, existing.lastIndexOf("\n") + 1),
        done: file.lines,
      };
    };
    let planned: Awaited<ReturnType<typeof plan>> | undefined;
    using opened = await openModelFromFlags(flags, io, {
      path: model,
      ...group,
      topK: flags.num("top")!,
      beforeWeights: async (model) => {
        planned = await plan(model);
      },
    });
    const { engine } = opened.model;
    const { windows, ids, header, from, kept, done: before } = planned!;
    io.note(`${windows.length} windows; ${firstPosition(header.bos)}`);
    if (whole) {
      const { scoreWholeRows } = await import("./score_rows.ts");
      const { results, counts } = await scoreWholeRows(engine, windows, ids, path, flags, io);
      const { top_k: _, ...settings } = header;
      return report(io, flags, { ...settings, schema: "bloomery.score_rows/1" }, path, results, counts);
    }
    const results: number[] = [], counts: number[] = [];
    const count = (line: { readonly logprob: readonly number[] }) => {
      results.push(-meanOf(line.logprob));
      counts.push(line.logprob.length);
    };
    before.forEach(count);
    if (from > 0) io.note(`${path}: continuing after window ${from} of ${windows.length}`);
    const partial = `${path}.partial`;
    await Deno.writeTextFile(partial, kept);
    await Deno.rename(partial, path);
    using out = await Deno.open(path, { append: true });
    const sum = (of: readonly Window[]) => of.reduce((n, w) => n + w.ids.length, 0);
    const bar = io.bar("score", sum(windows), "tok");
    const encoder = new TextEncoder();
    const n_before = sum(windows.slice(0, from));
    let done = n_before;
    for await (const line of scoreWindows(engine, windows, { topK: header.top_k, from, n_seq: group.n_seq })) {
      const bytes = encoder.encode(JSON.stringify(line) + "\n");
      for (let at = 0; at < bytes.length;) at += await out.write(bytes.subarray(at));
      count(line);
      bar.update(done += line.ids.length, n_before);
    }
    bar.stop();
    return report(io, flags, header, path, results, counts);
  },
};
