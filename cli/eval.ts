/**
 * `bloomery eval`: how far a model is from another one, or from a score file.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import type { WindowResult } from "../eval/compare.ts";
import type { Engine } from "../core/engine/mod.ts";
import type { TokenTexts } from "../eval/html_report.ts";
import type { Window } from "../eval/windows.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import { LLAMA_DRAFT_FLAGS, LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { modelPath } from "./model_file.ts";
import { contextOf, openModelFromFlags } from "./open.ts";
import { evaluateSet, SET_FLAGS, setOf } from "./eval_sets.ts";
import { refuseExisting } from "./overwrite.ts";
import { AT_ONCE, groupOptions, readSources, WINDOW_FLAGS, windowsOf } from "./score.ts";
import { readText } from "./text_file.ts";
import { openTokenizer } from "./tokenize.ts";

/** Texts of a model's tokens, with the names of control tokens. */
async function tokenTexts(path: string): Promise<TokenTexts> {
  const { openGguf } = await import("../core/gguf/read.ts");
  const { tokenizerFromGguf } = await import("../core/tokenizer/mod.ts");
  using file = openGguf(path);
  const tokenizer = tokenizerFromGguf(file.metadata);
  return {
    text: (id) => new TextDecoder().decode(tokenizer.pieceBytes(id)),
    decode: (ids) => tokenizer.decode(ids, { special: true }),
  };
}

export const evaluate: Command = {
  name: "eval",
  summary: "Compare a model with another or with a score file, or measure one alone: perplexity, KL, multiple choice",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    {
      name: "against",
      type: "string",
      value: "FILE",
      help:
        "the original: a GGUF file, a .jsonl of bloomery score or bloomery eval teach, or whole rows of llama-perplexity or score --format kld",
    },
    ...WINDOW_FLAGS,
    ...SET_FLAGS,
    AT_ONCE,
    {
      name: "report",
      type: "string",
      value: "HTML",
      help: "write a page with pictures: errors, KL by position, worst positions with their text",
    },
    COMMON.overwrite,
    { name: "max-kl", type: "number", value: "NATS", min: 0, help: "exit with 3 when the mean KL is above this" },
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
    ...LLAMA_DRAFT_FLAGS,
  ],
  async run({ flags, io }) {
    const set = setOf(flags);
    if (set !== undefined) return await evaluateSet(set, flags, io);
    const { cutWindows, useBos } = await import("../eval/windows.ts");
    const compare = await import("../eval/compare.ts");
    const { isKldFile, KldFile } = await import("../eval/kld_file.ts");
    const { inGroups } = await import("../eval/score.ts");
    const { isTeacherFile } = await import("../eval/teacher_file.ts");
    const { parseScoreFile } = await import("../eval/score_file.ts");
    const model = await modelPath(flags, io), base = flags.str("against")!;
    io.ifInterrupted(
      "stopped; nothing was saved. With a score file (bloomery score) as the original only one model has to run",
    );
    const results: WindowResult[] = [];
    const page = flags.str("report");
    if (page !== undefined) refuseExisting(page, flags);
    /** Runs windows in groups that fill a step. */
    const inSteps = async <W extends { readonly ids: ArrayLike<number> }>(
      engine: Engine,
      windows: readonly W[],
      run: (group: readonly W[]) => Promise<WindowResult[]>,
    ) => {
      const bar = io.bar("eval", windows.reduce((n, w) => n + w.ids.length, 0), "tok");
      let done = 0;
      for (const group of inGroups(windows, { n_seq: flags.num("at-once")!, n_ubatch: engine.n_ubatch })) {
        results.push(...await run(group));
        bar.update(done += group.reduce((n, w) => n + w.ids.length, 0));
      }
      bar.stop();
    };
    let shape: { n_window: number; skip: number; bos: boolean; kl_support: string };

    const baseText = base.endsWith(".jsonl") ? readText(base, "against") : undefined;
    const isTeacher = baseText !== undefined && isTeacherFile(baseText);
    if (baseText !== undefined && !isTeacher) {
      const file = parseScoreFile(baseText, base);
      const { n_window, skip, bos, top_k } = file.header;
      shape = { n_window, skip, bos, kl_support: `the best ${top_k} candidates of the score file and the rest` };
      using opened = await openModelFromFlags(flags, io, {
        path: model,
        ...groupOptions(flags, n_window),
        beforeWeights: ({ engine }) => compare.checkScoreFits(file.header.n_vocab, engine.n_vocab, [model, base]),
      });
      const n_windows = file.header.sources.reduce((n, source) => n + source.n_windows, 0);
      if (file.lines.length < n_windows) {
        io.warn(`${base} holds ${file.lines.length} of its ${n_windows} windows: only those are compared`);
      }
      const { engine } = opened.model;
      await inSteps(engine, file.lines, (lines) => compare.compareWithScore(engine, lines));
    } else if (isTeacher) {
      const { mostTokens, taughtLines } = await import("../eval/against_teacher.ts");
      const { parseTeacherFile } = await import("../eval/teacher_file.ts");
      const file = parseTeacherFile(baseText!, base);
      const n_ctx = contextOf(flags) ?? mostTokens(file);
      using opened = await openModelFromFlags(flags, io, { path: model, ...groupOptions(flags, n_ctx) });
      const { lines, n_empty, n_unknown } = taughtLines(file, opened.model, [model, base]);
      const { n_prompts, model: name, top_k } = file.header;
      if (file.lines.length < n_prompts) {
        io.warn(`${base} has ${file.lines.length} of its ${n_prompts} answers: only those are compared`);
      }
      if (n_empty > 0) io.warn(`${n_empty} answers of ${base} are empty: nothing can be compared in them`);
      if (n_unknown > 0) {
        io.warn(`${n_unknown} candidates of ${name} are not in the vocabulary: they count in the rest`);
      }
      shape = {
        n_window: Math.max(0, ...lines.map((line) => line.ids.length)),
        skip: 0,
        bos: opened.model.tokenizer.addBos,
        kl_support: `the best ${top_k} candidates of ${name}, or what it gave of them, and the rest`,
      };
      const { engine } = opened.model;
      await inSteps(engine, lines, (group) => compare.compareWithScore(engine, group));
    } else if (isKldFile(base)) {
      using file = KldFile.open(base);
      const { n_ctx, n_vocab, n_chunk } = file.header;
      using opened = await openModelFromFlags(flags, io, {
        path: model,
        ...groupOptions(flags, n_ctx),
        beforeWeights: ({ engine }) => compare.checkScoreFits(n_vocab, engine.n_vocab, [model, base]),
      });
      const bos = useBos(opened.model.tokenizer, flags.bool("bos") || undefined);
      const windows = file.windows(base.split("/").at(-1)!, bos ? opened.model.tokenizer.bos : null);
      shape = { n_window: n_ctx, skip: windows[0]?.skip ?? 0, bos, kl_support: "the whole vocabulary, in 16 bits" };
      if (windows.length < n_chunk) {
        io.warn(`${base} holds ${windows.length} of its ${n_chunk} windows: only those are compared`);
      }
      const { engine } = opened.model;
      await inSteps(engine, windows, (group) => compare.compareWithRows(engine, group, (w) => file.rows(w.index)));
    } else {
      const n_window = flags.num("window")!, skip = flags.num("skip")!;
      const sources = await readSources(flags);
      const group = groupOptions(flags), { n_ctx } = group, originals = await openTokenizer(base, io);
      const bos = useBos(originals, flags.bool("bos") || undefined);
      shape = { n_window, skip, bos, kl_support: "the whole vocabulary" };
      const cut = { n_window, skip, bos, n_ctx };
      let windows: Window[] = [];
      using opened = await openModelFromFlags(flags, io, {
        path: model,
        ...group,
        beforeWeights: async (m) => {
          windows = await windowsOf(sources, m, cut);
          // Of the texts alone: what prompts become is known with the original's template.
          const texts = cutWindows(sources.texts, m.tokenizer, cut);
          compare.checkSameWindows(texts, cutWindows(sources.texts, originals, cut), [model, base]);
        },
      });
      using original = await openModelFromFlags(flags, io, {
        path: base,
        ...group,
        beforeWeights: async (m) => compare.checkSameWindows(windows, await windowsOf(sources, m, cut), [model, base]),
      });
      const { backend, model: { engine } } = opened;
      await inSteps(engine, windows, (of) => compare.compareModels(backend, engine, original.model.engine, of));
    }

    const report = {
      schema: "bloomery.eval/1" as const,
      model,
      base,
      ...shape,
      rows: compare.summarize(results),
      windows: results.map(compare.reportWindow),
    };
    if (page !== undefined) {
      const { renderHtml } = await import("../eval/html_report.ts");
      await Deno.writeTextFile(page, renderHtml(report, results, await tokenTexts(model)));
      io.note(`wrote ${page}`);
    }
    if (flags.bool("json")) io.json(report);
    else io.out(compare.renderReport(report));
    const limit = flags.num("max-kl");
    return limit === undefined || compare.isWithin(report.rows.at(-1)!.kl.mean, limit) ? EXIT.done : EXIT.threshold;
  },
};
