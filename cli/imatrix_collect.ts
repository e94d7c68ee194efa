/**
 * `bloomery imatrix collect`: runs calibration text through a model and writes an importance matrix.
 * @module
 */
import { QuantizeError, UsageError } from "../core/errors.ts";
import type { ImatrixFile } from "../quantize/imatrix.ts";
import type { CollectState } from "../quantize/imatrix/collect.ts";
import { type Command, EXIT } from "./command.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import { OUTPUT_FORMAT } from "./imatrix.ts";
import { LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { modelPath } from "./model_file.ts";
import { contextOf, openModelFromFlags } from "./open.ts";
import { refuseExisting } from "./overwrite.ts";
import { readText } from "./text_file.ts";

/** Tokens of a window where `--ctx-size` does not say. */
const N_CTX = 512;

export const collectMatrix: Command = {
  name: "imatrix-collect",
  summary: "Run calibration text through a model and write the importance of its weights' columns",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    {
      name: "file",
      alias: ["f"],
      type: "strings",
      value: "FILE",
      required: true,
      help: "text; may be given several times",
    },
    { name: "output", alias: ["o"], type: "string", value: "FILE", required: true, help: "the matrix to write" },
    OUTPUT_FORMAT,
    { name: "chunks", type: "int", value: "N", min: 1, help: "most windows to run; default: all" },
    {
      name: "output-every",
      alias: ["ofreq", "output-frequency"],
      type: "int",
      value: "N",
      default: 10,
      min: 1,
      help: "write the matrix and the state of the run after every N windows",
    },
    {
      name: "process-output",
      type: "bool",
      help: "collect for the head too: output.weight, or token_embd.weight where they are one",
    },
    {
      name: "merge",
      alias: ["in-file"],
      type: "strings",
      value: "FILE",
      help: "earlier matrices, of either format, that are added to the output",
    },
    { name: "restart", type: "bool", help: "begin anew, whatever an earlier run has left" },
    COMMON.overwrite,
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
  ],
  epilog:
    "A text is tokenized whole and cut into windows of --ctx-size tokens (default 512), each run on its own; the incomplete last one is\n" +
    "dropped, and a text shorter than a window is one short window. A killed run is continued by the same command.\n\n" +
    "Example:\n  bloomery imatrix collect -m model-bf16.gguf -f calibration.txt -o model.imatrix.gguf",

  async run({ flags, io }) {
    const collect = await import("../quantize/imatrix/collect.ts");
    const { readState, statePath, writeState } = await import("../quantize/imatrix/state.ts");
    const { convertImatrix, mergeImatrices, readImatrix, writeImatrix } = await import("../quantize/imatrix.ts");
    const { cutWindows } = await import("../eval/windows.ts");
    const { contentKey } = await import("../core/gguf/content_key.ts");
    const output = flags.str("output")!, statefile = statePath(output);
    const found = exists(statefile) && !flags.bool("restart");
    // The output of a run that is continued is its own.
    if (!found) refuseExisting(output, flags);
    const path = await modelPath(flags, io), n_ctx = contextOf(flags) ?? N_CTX;
    const texts = flags.strs("file").map((name) => ({ name, text: readText(name, "file") }));
    const earlier = flags.strs("merge").map(readImatrix);
    const process_output = flags.bool("process-output");
    if (n_ctx < 2) {
      throw new UsageError("usage.value", `Cannot cut windows of --ctx-size ${n_ctx}: expected at least 2`, {
        at: { flag: "--ctx-size", got: n_ctx },
      });
    }
    using opened = await openModelFromFlags(flags, io, {
      path,
      n_ctx,
      topK: 1,
      collect: collect.collects(process_output),
    });
    const { engine, tokenizer } = opened.model;
    const windows = cutWindows(texts, tokenizer, { n_window: n_ctx, skip: 0 }).slice(0, flags.num("chunks"));
    const job = {
      model: path,
      model_key: contentKey(opened.model.file, (t) => opened.model.file.place(t)),
      datasets: texts.map((t) => t.name),
      n_ctx,
      tokens: await collect.hashWindows(windows),
      process_output,
    };
    const from = found ? readState(statefile) : undefined;
    const differs = from && collect.jobDifference(from.job, job);
    if (differs) {
      throw new QuantizeError("quantize.resume_mismatch", `Cannot continue ${output}: ${differs}`, {
        at: { file: statefile },
        hint: "write to another file, or use --restart",
      });
    }
    if (from) io.note(`continues ${output} behind ${from.n_done} of ${windows.length} windows`);
    const matrixOf = (state: CollectState): ImatrixFile => {
      const own = collect.imatrixOf(state, output);
      const sum = earlier.length === 0 ? own : mergeImatrices([own, ...earlier], output);
      return convertImatrix(sum, (flags.str("output-format") ?? "gguf") as ImatrixFile["format"]);
    };

    using _hold = io.hold();
    io.ifInterrupted("stopped; run the same command to continue");
    const bar = io.bar("imatrix", windows.reduce((n, w) => n + w.ids.length, 0), "tok");
    const tokens = (n: number) => windows.slice(0, n).reduce((sum, w) => sum + w.ids.length, 0);
    const every = flags.num("output-every")!;
    let last = from?.n_done ?? 0;
    const save = (state: CollectState) => {
      writeState(state, statefile);
      writeImatrix(matrixOf(state), output);
      last = state.n_done;
    };
    let latest: CollectState | undefined;
    const state = await collect.collectImatrix({
      engine,
      job,
      windows,
      from,
      signal: io.signal,
      onWindow: (state) => {
        latest = state;
        bar.update(tokens(state.n_done), tokens(from?.n_done ?? 0));
        if (state.n_done - last >= every && state.n_done < windows.length) save(state);
      },
    }).catch((error) => {
      if (io.signal.aborted && latest) save(latest);
      throw error;
    }).finally(() => bar.stop());
    const made = matrixOf(state), rows = collect.coverage(collect.imatrixOf(state, output));
    writeImatrix(made, output);
    if (exists(statefile)) Deno.removeSync(statefile);
    const ppl = Math.exp(state.nll / state.n_scored);
    if (flags.bool("json")) {
      io.json({
        schema: "bloomery.imatrix_collect/1",
        path: output,
        format: made.format,
        n_chunks: state.n_done,
        n_ctx,
        n_weights: made.sums.size,
        ppl,
        coverage: rows,
      });
    } else {
      for (const line of collect.coverageLines(rows)) io.out(line + "\n");
      io.note(`${state.n_done} windows of at most ${n_ctx} tokens, perplexity ${ppl.toFixed(4)}`);
      io.note(`wrote ${output}: ${made.sums.size} weights`);
    }
    return EXIT.done;
  },
};

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
