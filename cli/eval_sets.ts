/**
 * `bloomery eval --ppl`, `--hellaswag`, `--winogrande` and `--multiple-choice`: one model alone, measured as llama-perplexity does, so
 * that published numbers can be compared.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { ChoiceKind } from "../eval/choice_files.ts";
import type { PlannedTask } from "../eval/choices.ts";
import type { PeerChunks } from "../eval/peer_chunks.ts";
import { EXIT, type Flag, type Flags } from "./command.ts";
import type { Io } from "./io.ts";
import { modelPath } from "./model_file.ts";
import { contextOf, openModelFromFlags } from "./open.ts";
import { groupOptions, readSources } from "./score.ts";
import { readBytes } from "./text_file.ts";

/** What is measured of one model alone. */
const SETS = ["ppl", "hellaswag", "winogrande", "multiple-choice"] as const;

export const SET_FLAGS = [
  {
    name: "ppl",
    type: "bool",
    help:
      "perplexity of the texts in llama-perplexity's manner: chunks of --ctx-size or --window tokens, the second half " +
      "of each counted, ± over tokens",
  },
  { name: "chunks", type: "int", value: "N", min: 1, help: "with --ppl: most chunks of a text" },
  { name: "hellaswag", type: "bool", help: "share of right answers to the files' HellaSwag tasks, six lines each" },
  { name: "winogrande", type: "bool", help: "the same of Winogrande tasks, CSV rows" },
  {
    name: "multiple-choice",
    type: "bool",
    help: "the same of ARC, MMLU or TruthfulQA tasks in llama-perplexity's binary form",
  },
  {
    name: "tasks",
    alias: ["hellaswag-tasks", "winogrande-tasks", "multiple-choice-tasks"],
    type: "int",
    value: "N",
    min: 0,
    help: "so many tasks, drawn as llama-perplexity draws them; 0 = all, default: 400 of HellaSwag, all of others",
  },
] as const satisfies readonly Flag[];

/** What the flags ask to be measured of one model alone; undefined where they name an original. @throws {UsageError} */
export function setOf(flags: Flags): typeof SETS[number] | undefined {
  const asked = [...SETS.filter((s) => flags.bool(s)), ...flags.has("against") ? ["against" as const] : []];
  if (asked.length === 1) return asked[0] === "against" ? undefined : asked[0];
  const names = ["against", ...SETS].map((s) => `--${s}`).join(", ");
  if (asked.length === 0) {
    throw new UsageError("usage.missing_flag", `Cannot evaluate: found none of ${names}`, {
      hint: "give --against ORIGINAL to compare two models, or --ppl for the perplexity of one",
    });
  }
  throw new UsageError("usage.arguments", `Cannot evaluate ${asked.map((s) => `--${s}`).join(" and ")} in one run`, {
    hint: `give one of ${names}`,
  });
}

/** Runs a set on a model. @returns the exit code */
export async function evaluateSet(set: typeof SETS[number], flags: Flags, io: Io): Promise<number> {
  return set === "ppl" ? await perplexity(flags, io) : await choices(set, flags, io);
}

async function perplexity(flags: Flags, io: Io): Promise<number> {
  const { estimate, expEstimate } = await import("../eval/stats.ts");
  const { peerChunks } = await import("../eval/peer_chunks.ts");
  const { inGroups, scoreTogether } = await import("../eval/score.ts");
  if (flags.strs("prompts").length > 0) {
    throw new UsageError("usage.arguments", "Cannot use --prompts with --ppl: it has chunks of one length", {
      hint: "give texts with -f FILE",
    });
  }
  const { texts } = await readSources(flags);
  const n_ctx = contextOf(flags) ?? flags.num("window")!;
  const model = await modelPath(flags, io);
  let cut: PeerChunks[] = [];
  using opened = await openModelFromFlags(flags, io, {
    path: model,
    ...groupOptions(flags, n_ctx),
    topK: 1,
    beforeWeights: ({ tokenizer }) => {
      const chunks = flags.num("chunks");
      const options = { n_ctx, bos: flags.bool("bos") || undefined, ...(chunks === undefined ? {} : { chunks }) };
      cut = texts.map((text) => peerChunks(text, tokenizer, options));
    },
  });
  const { engine } = opened.model;
  const windows = cut.flatMap((c) => c.windows);
  const bar = io.bar("ppl", windows.length * n_ctx, "tok");
  const nlls = new Map<string, number[]>();
  let done = 0;
  for (const group of inGroups(windows, { n_seq: flags.num("at-once")!, n_ubatch: engine.n_ubatch })) {
    for (const [i, { logprob }] of (await scoreTogether(engine, group, 1)).entries()) {
      const { source } = group[i];
      nlls.set(source, [...nlls.get(source) ?? [], ...Array.from(logprob, (x) => -x)]);
    }
    bar.update(done += group.length * n_ctx);
  }
  bar.stop();
  const rows = [...nlls].map(([source, values]) => {
    const nll = estimate(values);
    const n_chunks = windows.filter((w) => w.source === source).length;
    return { source, n_chunks, n_tokens: values.length, nll, ppl: expEstimate(nll) };
  });
  if (flags.bool("json")) io.json({ schema: "bloomery.eval_ppl/1", model, n_ctx, rows });
  else {
    for (const { source, n_chunks, ppl } of rows) {
      const figures = `PPL = ${ppl.mean.toFixed(4)} +/- ${ppl.se?.toFixed(5) ?? "-"}`;
      io.out(`${source}: ${n_chunks} chunks, Final estimate: ${figures}\n`);
    }
  }
  return EXIT.done;
}

async function choices(kind: ChoiceKind, flags: Flags, io: Io): Promise<number> {
  const { parseChoices } = await import("../eval/choice_files.ts");
  const { drawTasks, HELLASWAG_TASKS, planTask, runChoices, summarizeChoices } = await import("../eval/choices.ts");
  const paths = flags.strs("file");
  if (paths.length !== 1) {
    throw new UsageError("usage.arguments", `Cannot use ${paths.length} files with --${kind}: expected one`, {
      hint: "give the set with -f FILE",
    });
  }
  const all = parseChoices(readBytes(paths[0], "file"), kind, paths[0]);
  const wanted = flags.num("tasks") ?? (kind === "hellaswag" ? HELLASWAG_TASKS : 0);
  const drawn = drawTasks(all, kind, wanted === 0 ? all.length : wanted);
  // No text has more tokens than bytes, but for what a vocabulary puts around it.
  const size = (text: string) => new TextEncoder().encode(text).length;
  const bytesOf = drawn.map(([, t]) => t.options.map((o) => size(t.before + o + t.after) + 4));
  const n_ctx = contextOf(flags) ?? Math.max(...bytesOf.flat());
  const n_seq = Math.max(flags.num("at-once")!, ...bytesOf.map((b) => b.length));
  const n_cache = Math.max(2 * (flags.num("ubatch-size") ?? 512), ...bytesOf.map((b) => b.reduce((x, y) => x + y))) +
    64 * n_seq;
  const model = await modelPath(flags, io);
  let tasks: PlannedTask[] = [];
  using opened = await openModelFromFlags(flags, io, {
    path: model,
    n_ctx,
    n_seq,
    n_cache: Math.max(n_ctx, n_cache),
    topK: 1,
    beforeWeights: ({ tokenizer }) => {
      tasks = drawn.map((task) => planTask(task, kind, tokenizer, n_ctx));
    },
  });
  const bar = io.bar(kind, tasks.length, "it");
  const results = [];
  for await (const result of runChoices(opened.model.engine, tasks, kind, { n_seq })) {
    results.push(result);
    bar.update(results.length);
  }
  bar.stop();
  const summary = summarizeChoices(results), { accuracy, interval, chance } = summary;
  if (flags.bool("json")) {
    io.json({ schema: "bloomery.eval_choices/1", model, kind, file: paths[0], ...summary, tasks: results });
  } else {
    const percent = (x: number) => (100 * x).toFixed(4);
    io.out(
      `${kind}: ${summary.n_right} of ${summary.n_tasks} right, ${percent(accuracy.mean)} % ± ${
        accuracy.se === null ? "-" : percent(accuracy.se)
      }, 95 % of [${interval.map(percent).join(", ")}], by chance ${percent(chance)} %\n`,
    );
  }
  return EXIT.done;
}
