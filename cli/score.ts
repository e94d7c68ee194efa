/**
 * `bloomery score`: per-position log-probabilities of a text, as JSONL that a later run can continue.
 * @module
 */
import { type Command, EXIT, type Flags } from "./command.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import { LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { modelPath } from "./model_file.ts";
import { contextOf, openModelFromFlags } from "./open.ts";
import { requirePlace } from "./overwrite.ts";
import { EvalError, UsageError } from "../core/errors.ts";
import type { TextSource } from "../eval/windows.ts";
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

/** Reads the files of `--file` and `--tokens`. */
export function readSources(flags: Flags): TextSource[] {
  const texts = flags.strs("file"), tokens = flags.strs("tokens");
  if (texts.length + tokens.length === 0) {
    throw new UsageError("usage.missing_flag", "Cannot score nothing: found neither --file nor --tokens", {
      hint: "give a text with -f FILE",
    });
  }
  const short = (path: string) => path.split("/").at(-1)!;
  const shorts = [...texts, ...tokens].map(short);
  /** The file's name, or its whole path where another one has the same name: results are told apart by it. */
  const name = (path: string) => shorts.filter((s) => s === short(path)).length > 1 ? path : short(path);
  return [
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
}

/** The text of an output that exists. @throws the system's error where it is there and cannot be read */
async function ownFile(path: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
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
    { name: "top", type: "int", value: "K", default: 20, min: 1, max: 64, help: "candidates kept per position" },
    {
      ...COMMON.overwrite,
      alias: ["restart"],
      help: "start again and replace the file; without it a run continues its own unfinished file",
    },
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
  ],
  epilog: "Run the same command again to continue a run that was stopped.",
  async run({ flags, io }) {
    const { cutWindows } = await import("../eval/windows.ts");
    const { resumePoint, SCORE_SCHEMA, scoredPositions, scoreWindows } = await import("../eval/score.ts");
    const { parseScoreFile } = await import("../eval/score_file.ts");
    const { estimate, estimateText, meanOf, expEstimate } = await import("../eval/stats.ts");
    const sources = readSources(flags);
    const n_window = flags.num("window")!, skip = flags.num("skip")!;
    requirePlace(flags.str("output")!);
    const model = await modelPath(flags, io);
    io.ifInterrupted("stopped; run the same command to continue");
    const path = flags.str("output")!;
    const existing = flags.bool("overwrite") ? undefined : await ownFile(path);
    /** What is to be scored, and what of it the file already has. */
    const plan = ({ engine, tokenizer }: LanguageModel) => {
      const bos = flags.bool("bos") || tokenizer.addBos;
      const windows = cutWindows(sources, tokenizer, { n_window, skip, bos });
      const header = {
        schema: SCORE_SCHEMA,
        model: model.split("/").at(-1)!,
        n_vocab: engine.n_vocab,
        n_window,
        skip,
        bos,
        top_k: Math.min(flags.num("top")!, engine.topK),
        sources: sources.map((s) => ({ name: s.name, n_windows: windows.filter((w) => w.source === s.name).length })),
      } as const;
      if (existing === undefined || !existing.includes("\n")) {
        return { windows, header, from: 0, kept: JSON.stringify(header) + "\n", results: [] };
      }
      const file = parseScoreFile(existing, path);
      return {
        windows,
        header,
        from: resumePoint(file, header, windows, path),
        kept: existing.slice(0, existing.lastIndexOf("\n") + 1),
        results: file.lines.map((line) => -meanOf(line.logprob)),
      };
    };
    let planned: ReturnType<typeof plan> | undefined;
    using opened = await openModelFromFlags(flags, io, {
      path: model,
      n_ctx: Math.max(contextOf(flags) ?? 0, n_window),
      beforeWeights: (model) => planned = plan(model),
    });
    const { engine } = opened.model;
    const { windows, header, from, kept, results } = planned!;
    const { bos, top_k: topK } = header;
    if (from > 0) io.note(`${path}: continuing after window ${from} of ${windows.length}`);
    const partial = `${path}.partial`;
    await Deno.writeTextFile(partial, kept);
    await Deno.rename(partial, path);
    using out = await Deno.open(path, { append: true });
    const bar = io.bar("score", windows.length * n_window, "tok");
    const encoder = new TextEncoder();
    let done = from;
    for await (const line of scoreWindows(engine, windows, { skip, topK, from })) {
      const bytes = encoder.encode(JSON.stringify(line) + "\n");
      for (let at = 0; at < bytes.length;) at += await out.write(bytes.subarray(at));
      results.push(-meanOf(line.logprob));
      bar.update(++done * n_window, from * n_window);
    }
    bar.stop();
    const nll = estimate(results);
    const ppl = expEstimate(nll);
    const n_tokens = results.length * scoredPositions(n_window, skip);
    if (flags.bool("json")) {
      io.json({ ...header, output: path, n_windows: results.length, n_tokens, nll, ppl });
    } else {
      io.out(
        `${path}: ${results.length} windows, ${n_tokens} tokens, ${bos ? "with" : "without"} bos, NLL ${
          estimateText(nll, 6)
        }, PPL ${estimateText(ppl, 4)}\n`,
      );
    }
    return EXIT.done;
  },
};
