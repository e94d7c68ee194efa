/**
 * `bloomery measure`: what a model loses when one tensor alone is quantized, for every tensor and type.
 * @module
 */
import { QuantizeError, UsageError } from "../core/errors.ts";
import type { GgmlType } from "../core/gguf/types.ts";
import type { Candidate } from "../quantize/measure/candidates.ts";
import type { LossEstimate, MeasureOptions } from "../quantize/measure/measure.ts";
import type { MeasureFile, MeasureJob } from "../quantize/measure/measure_file.ts";
import { type Command, EXIT, type Flags } from "./command.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import type { Io } from "./io.ts";
import { LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { modelPath } from "./model_file.ts";
import { deviceName, openModelFromFlags, threadsOf } from "./open.ts";
import { requirePlace } from "./overwrite.ts";
import { readFlagImatrix } from "./quantize.ts";
import { AT_ONCE, groupOptions, ownFile, readSources, WINDOW_FLAGS, windowsOf } from "./score.ts";

/** Types that are tried. */
async function typesOf(flags: Flags): Promise<GgmlType[]> {
  const { defaultTypes } = await import("../quantize/measure/candidates.ts");
  const { parseTensorType } = await import("../quantize/file_types.ts");
  const names = flags.str("types")?.split(",").map((name) => name.trim());
  return names?.map((name) => parseTensorType(name, "types")) ?? defaultTypes();
}

/** A way to measure, ready to run. */
interface Meter extends AsyncDisposable {
  readonly over: MeasureJob["over"];
  /** Tensors that can be measured this way. */
  readonly uses: (tensor: string) => boolean;
  readonly lossOf: MeasureOptions["lossOf"];
}

export const measureLosses: Command = {
  name: "measure",
  summary: "Measure what each tensor loses in each type, for bloomery quantize --budget",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    ...WINDOW_FLAGS,
    {
      name: "chunks",
      type: "int",
      value: "N",
      min: 1,
      help: "most windows to run, evenly spread over all there are; default: all",
    },
    {
      name: "output",
      alias: ["o"],
      type: "string",
      value: "FILE",
      required: true,
      help: "the file of losses to write",
    },
    {
      name: "imatrix",
      type: "strings",
      value: "FILE",
      help: "importance matrix that the tensors are encoded with; several are added up",
    },
    {
      name: "types",
      type: "string",
      value: "T1,T2,...",
      help: "types to try; default: K and IQ types, q8_0, those that need an importance matrix only with one",
    },
    {
      name: "by",
      type: "string",
      value: "WHAT",
      default: "kl",
      choices: ["kl", "error"],
      help:
        "kl: how far the output's distribution moves; error: the tensor's own error weighted by importance, for which no model runs",
    },
    {
      name: "rows",
      type: "int",
      value: "N",
      default: 512,
      min: 0,
      help: "with --by error: rows of each tensor to look at, evenly spread; 0 is all",
    },
    AT_ONCE,
    { name: "restart", type: "bool", help: "begin anew, whatever an earlier run has left" },
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
  ],
  epilog:
    "The output is written again after each tensor; the same command continues a run that was stopped or killed, and adds types.\n" +
    "The model's own rows of logits lie beside the output while it runs. For a large model take fewer and shorter windows (--chunks,\n" +
    "--window), or --by error, which needs no memory for the model.\n\n" +
    "Example:\n  bloomery measure -m model-bf16.gguf -f text.txt --imatrix model.imatrix.gguf -o model.measure.json",

  async run({ flags, io }) {
    const { contentKey } = await import("../core/gguf/content_key.ts");
    const { imatrixKey } = await import("../quantize/imatrix.ts");
    const { openGgufSource } = await import("../quantize/quantize_source.ts");
    const { candidates } = await import("../quantize/measure/candidates.ts");
    const { measure } = await import("../quantize/measure/measure.ts");
    const { measureDifference, parseMeasure, writeMeasure } = await import("../quantize/measure/measure_file.ts");
    const output = flags.str("output")!, by = flags.str("by") as MeasureJob["by"];
    requirePlace(output);
    const path = await modelPath(flags, io);
    using source = openGgufSource(path);
    const imatrix = await readFlagImatrix(flags, (text) => io.warn(text));
    const all = candidates(source, await typesOf(flags), imatrix);
    await using meter = by === "kl"
      ? await klMeter(path, output, source, flags, io)
      : await errorMeter(source, flags, io);
    const unused = all.filter((c) => !meter.uses(c.name));
    if (unused.length > 0) {
      io.warn(
        `${unused.length} tensors are not used by a step and not measured: ${
          unused[0].name
        }...; --by error measures them`,
      );
    }
    const job: MeasureJob = {
      model: path,
      model_key: contentKey(source, (t) => source.locate!(t, 0, t.ne.slice(1).reduce((a, b) => a * b, 1))),
      by,
      imatrix: imatrix?.path ?? null,
      imatrix_key: imatrix === undefined ? null : imatrixKey(imatrix),
      over: meter.over,
    };
    const text = flags.bool("restart") ? undefined : await ownFile(output);
    const from = text === undefined ? undefined : parseMeasure(text, output);
    const differs = from && measureDifference(from.job, job);
    if (differs) {
      throw new QuantizeError("quantize.resume_mismatch", `Cannot continue ${output}: ${differs}`, {
        at: { file: output },
        hint: "write to another file, or use --restart",
      });
    }
    using _hold = io.hold();
    io.ifInterrupted("stopped; run the same command to continue");
    const wanted = all.filter((c) => meter.uses(c.name));
    let bar: ReturnType<Io["bar"]> | undefined;
    const made: MeasureFile = await measure({
      job,
      candidates: wanted,
      from,
      lossOf: meter.lossOf,
      signal: io.signal,
      onLoss: (done, total, earlier) => (bar ??= io.bar("measure", total, "it")).update(done, earlier),
      onTensor: (file) => writeMeasure(file, output),
      onWarning: (text) => io.warn(text),
    }).finally(() => bar?.stop());
    const n_losses = made.tensors.reduce((n, t) => n + t.losses.length, 0);
    if (flags.bool("json")) {
      io.json({ schema: "bloomery.measured/1", path: output, job, n_tensors: made.tensors.length, n_losses });
    } else io.note(`wrote ${output}: ${n_losses} losses of ${made.tensors.length} tensors`);
    return EXIT.done;
  },
};

type Source = ReturnType<typeof import("../quantize/quantize_source.ts").openGgufSource>;

/** The output's divergence: the model runs, with one weight replaced at a time. */
async function klMeter(path: string, output: string, source: Source, flags: Flags, io: Io): Promise<Meter> {
  const { spread, useBos } = await import("../eval/windows.ts");
  const { KeptRows } = await import("../eval/kept_rows.ts");
  const { estimate } = await import("../eval/stats.ts");
  const { hashWindows } = await import("../quantize/imatrix/collect.ts");
  const { encodeTensor } = await import("../quantize/measure/measure.ts");
  const sources = await readSources(flags);
  const group = groupOptions(flags), n_window = flags.num("window")!, skip = flags.num("skip")!;
  const stack = new AsyncDisposableStack();
  try {
    const opened = stack.use(await openModelFromFlags(flags, io, { path, ...group, topK: 1 }));
    const { backend, model: { engine, tokenizer } } = opened;
    if (engine.residency) {
      throw new UsageError(
        "usage.arguments",
        `Cannot measure ${path} with experts in pools: a replaced weight has to be resident`,
        {
          hint: "give more room, or use --by error",
        },
      );
    }
    const bos = useBos(tokenizer, flags.bool("bos") || undefined);
    const cut = { n_window, skip, bos, n_ctx: group.n_ctx };
    const windows = spread(await windowsOf(sources, opened.model, cut), flags.num("chunks"));
    const bar = io.bar("original", windows.reduce((n, w) => n + w.ids.length, 0), "tok");
    let done = 0;
    const limits = { n_seq: group.n_seq, n_ubatch: engine.n_ubatch };
    const kept = stack.use(
      await KeptRows.of(engine, windows, `${output}.rows`, limits, (n) => bar.update(done += n)).finally(() =>
        bar.stop()
      ),
    );
    const used = new Set(engine.model.weights.map((w) => w.name));
    return {
      over: {
        texts: [...new Set(windows.map((w) => w.source))],
        n_window,
        n_windows: windows.length,
        skip,
        bos,
        tokens: await hashWindows(windows),
        cache_type_k: flags.str("cache-type-k") ?? "f16",
        cache_type_v: flags.str("cache-type-v") ?? "f16",
      },
      uses: (name) => used.has(name),
      async lossOf(tensor: Candidate, type: GgmlType): Promise<LossEstimate> {
        await engine.replaceWeight(tensor.name, { type, data: await encodeTensor(backend, source, tensor, type) });
        const found = await kept.compare(backend, engine);
        return estimate(found.map((w) => w.kl), found.map((w) => w.n_tokens));
      },
      [Symbol.asyncDispose]: () => stack.disposeAsync(),
    };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

/** The tensor's own error: rows are read, and no model runs. */
async function errorMeter(source: Source, flags: Flags, io: Io): Promise<Meter> {
  const { openBackend } = await import("../ffi/mod.ts");
  const { reachOf, weightedError } = await import("../quantize/measure/error.ts");
  const name = deviceName(flags);
  const opened = openBackend(name === "auto" ? "cpu" : name, { threads: threadsOf(flags, io) });
  const rows = flags.num("rows")!;
  return {
    over: { rows, reach: "1, or 1 / (2 layers)" },
    uses: () => true,
    async lossOf(tensor, type) {
      const { mean, se } = await weightedError(opened.backend, source, tensor, type, rows);
      return { mean: mean * reachOf(tensor.name, source), se };
    },
    [Symbol.asyncDispose]: () => Promise.resolve(opened[Symbol.dispose]()),
  };
}
