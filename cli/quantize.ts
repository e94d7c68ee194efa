/**
 * `bloomery quantize`: a model becomes a smaller one. Arguments and options as llama-quantize has them, and a few more.
 * @module
 */
import { shortList, UsageError } from "../core/errors.ts";
import type { GgmlType } from "../core/gguf/types.ts";
import type { QuantizePlan } from "../quantize/plan.ts";
import type { QuantizeOptions, QuantizeProgress } from "../quantize/quantize.ts";
import type { QuantizeSource } from "../quantize/quantize_source.ts";
import { BUDGET_FLAGS, type TypedRequest, withTypes, writeTypes } from "./budget.ts";
import { type Command, EXIT, type Flags } from "./command.ts";
import { COMMON } from "./flags.ts";
import { refuseExisting } from "./overwrite.ts";
import { parseSize } from "./size.ts";
import { tensorProgress } from "./tensor_progress.ts";
import { readText } from "./text_file.ts";

/** What the arguments say. */
export interface QuantizeRequest extends TypedRequest {
  /** 0 = one per core. */
  readonly threads: number;
}

function parseThreads(text: string | undefined): number {
  const n = text === undefined ? 0 : Number(/^\s*([+-]?\d+)/.exec(text)?.[1] ?? NaN);
  if (!Number.isNaN(n)) return Math.max(0, n);
  throw new UsageError("usage.arguments", `Cannot use "${text}" threads: expected a whole number`, {
    at: { got: text },
  });
}

/** `INPUT OUTPUT [THREADS]`: types follow from a budget. @throws {UsageError} `usage.arguments` */
function budgetArguments([input, output, threads, ...more]: readonly string[]): QuantizeRequest {
  if (output === undefined || more.length > 0) {
    const what = output === undefined ? "the output is missing" : `argument "${more[0]}" is one too many`;
    throw new UsageError("usage.arguments", `Cannot quantize with --budget: ${what}`, {
      hint: "give the arguments INPUT OUTPUT [THREADS]: types follow from the budget",
    });
  }
  return { input, output, fileType: undefined, threads: parseThreads(threads) };
}

/**
 * `INPUT [OUTPUT] TYPE [THREADS]`; without OUTPUT the name is made from the type, beside the input. With `--budget` there is no type.
 * @throws {UsageError} `usage.arguments`, `usage.file_type`
 */
export async function quantizeArguments(args: readonly string[], flags: Flags): Promise<QuantizeRequest> {
  if (flags.has("budget")) return budgetArguments(args);
  const { findFileType, parseFileType } = await import("../quantize/file_types.ts");
  const keepSplit = flags.bool("keep-split");
  const [input, ...rest] = args;
  if (rest.length === 0) {
    throw new UsageError("usage.arguments", "Cannot quantize: the type is missing", {
      hint: "give the arguments INPUT [OUTPUT] TYPE [THREADS]",
    });
  }
  // A file name may begin with a digit, and so look like the number of a type; what follows it tells.
  const first = findFileType(rest[0]);
  const named = first?.name === rest[0].toUpperCase() || /^\d+$/.test(rest[0]);
  const isType = first !== undefined && (named || rest[1] === undefined || findFileType(rest[1]) === undefined);
  if (!isType && rest.length === 1 && /\.gguf$|[/\\]/i.test(rest[0])) {
    throw new UsageError("usage.arguments", `Cannot quantize to ${rest[0]}: the type is missing`, {
      hint: `add the type: bloomery quantize ${input} ${rest[0]} Q4_K_M`,
    });
  }
  const fileType = isType ? first : parseFileType(rest[1] ?? rest[0]);
  const folder = /^.*[/\\]/s.exec(input)?.[0] ?? "";
  const output = isType ? `${folder}ggml-model-${fileType.name}${keepSplit ? "" : ".gguf"}` : rest[0];
  const [threads, ...more] = rest.slice(isType ? 1 : 2);
  if (more.length > 0) {
    throw new UsageError("usage.arguments", `Cannot quantize: argument "${more[0]}" is one too many`, {
      hint: "give the arguments INPUT [OUTPUT] TYPE [THREADS]",
    });
  }
  return { input, output, fileType, threads: parseThreads(threads) };
}

/** Layer numbers of `--prune-layers`. */
function parseLayers(text: string): number[] {
  return text.split(",").map((item) => {
    const n = /^\s*(\d+)/.exec(item)?.[1];
    if (n !== undefined) return Number(n);
    throw new UsageError("usage.layers", `Cannot prune layer "${item}": expected a layer number from 0`, {
      at: { flag: "prune-layers", got: item },
    });
  });
}

/** Options that the flags ask for, importance matrix included; without the type. */
export async function quantizeOptions(
  flags: Flags,
  warn: (text: string) => void = () => {},
): Promise<Omit<QuantizeOptions, "fileType">> {
  const { parseTensorType } = await import("../quantize/file_types.ts");
  const { parseTypePattern } = await import("../quantize/plan.ts");
  const { parseOverride } = await import("../quantize/output_metadata.ts");
  const tensorType = (flag: string) => {
    const text = flags.str(flag);
    return text === undefined ? undefined : parseTensorType(text, flag);
  };
  const patterns = flags.strs("tensor-type").map((text) =>
    parseTypePattern(text, (name) => parseTensorType(name, "tensor-type"))
  );
  for (const path of flags.strs("tensor-type-file")) {
    const items = readText(path, "tensor-type-file").split(/\s+/).filter((item) => item !== "");
    for (const item of items) {
      patterns.push(parseTypePattern(item, (name) => parseTensorType(name, "tensor-type-file")));
    }
  }
  const prune = flags.str("prune-layers");
  const room = flags.str("room");
  const buffer = flags.num("max-buffer-size");
  return {
    pure: flags.bool("pure"),
    leaveOutputTensor: flags.bool("leave-output-tensor"),
    allowRequantize: flags.bool("allow-requantize"),
    outputTensorType: tensorType("output-tensor-type"),
    tokenEmbeddingType: tensorType("token-embedding-type"),
    tensorTypes: patterns,
    ...(prune === undefined ? {} : { pruneLayers: parseLayers(prune) }),
    keepSplit: flags.bool("keep-split"),
    imatrix: await readFlagImatrix(flags, warn),
    noFallback: flags.bool("no-fallback"),
    dryRun: flags.bool("dry-run"),
    overrides: flags.strs("override-kv").map(parseOverride),
    ...(room !== undefined
      ? { room: parseSize(room, "room") }
      : buffer !== undefined
      ? { room: buffer * 2 ** 20 }
      : {}),
    resume: flags.bool("resume"),
  };
}

/** The importance matrix of `--imatrix`, several added up. */
export async function readFlagImatrix(flags: Flags, warn: (text: string) => void) {
  const paths = flags.strs("imatrix");
  const filter = { include: flags.strs("include-weights"), exclude: flags.strs("exclude-weights") };
  if (paths.length === 0) {
    if (filter.include.length === 0 && filter.exclude.length === 0) return undefined;
    throw new UsageError("usage.weights", "Cannot filter an importance matrix where none is given", {
      hint: "give --imatrix FILE, or leave out --include-weights and --exclude-weights",
    });
  }
  const { mergeImatrices, readImatrix, useImatrix } = await import("../quantize/imatrix.ts");
  const files = paths.map(readImatrix);
  const names = files.flatMap((file) => [...file.sums.keys()]);
  for (const [flag, parts] of [["include-weights", filter.include], ["exclude-weights", filter.exclude]] as const) {
    for (const part of parts) {
      if (!names.some((name) => name.includes(part))) warn(`--${flag} ${part} fits no entry of the importance matrix`);
    }
  }
  return useImatrix(files.length === 1 ? files[0] : mergeImatrices(files, paths[0]), filter);
}

/** What is quantized: a GGUF file, or with `--hf` a folder. */
export async function openSource(input: string, flags: Flags): Promise<QuantizeSource> {
  const { openGgufSource } = await import("../quantize/quantize_source.ts");
  if (!flags.has("hf")) return openGgufSource(input);
  const { openFolderSource } = await import("../quantize/folder_source.ts");
  const template = flags.str("chat-template");
  return openFolderSource(input, {
    outtype: flags.str("outtype") as "auto",
    ...(flags.has("arch") ? { arch: flags.str("arch")! } : {}),
    ...(flags.strs("ignore").length > 0 ? { ignore: flags.strs("ignore") } : {}),
    mtp: flags.str("mtp") === "only" ? "only" : flags.str("mtp") !== "drop",
    ...(template === undefined ? {} : { chatTemplate: readText(template, "chat-template") }),
  });
}

/** The backend and which of its devices encodes a type. @throws {UsageError} `usage.device` */
export async function openEncoders(name: string, threads: number, plan: () => QuantizePlan) {
  if (name === "reference") {
    throw new UsageError("usage.device", "Cannot use --device reference: it has no encoders", {
      at: { flag: "--device", got: name },
      hint: "give auto, cpu or cuda[:i]",
    });
  }
  const { openBackend } = await import("../ffi/mod.ts");
  const { cardPays, encodesFasterOnCard } = await import("../quantize/card_types.ts");
  const auto = name === "auto";
  const { backend, device: { index } } = openBackend(auto && !cardPays(plan()) ? "cpu" : name, { threads });
  const faster = (type: GgmlType, weighted: boolean) => encodesFasterOnCard(type, weighted) ? index : 0;
  return { backend, device: auto && index !== 0 ? faster : index };
}

export const quantize: Command = {
  name: "quantize",
  summary: "Quantize a GGUF file, or a Hugging Face folder with --hf",
  arguments: [
    { name: "input", help: "GGUF file or the first of a split set; not with --hf", optional: true },
    {
      name: "output-type-threads",
      help: "the GGUF file to make (ggml-model-TYPE.gguf where left out), its type, host threads",
      variadic: true,
      optional: true,
    },
  ],
  flags: [
    {
      name: "hf",
      type: "string",
      value: "DIR",
      help: "quantize a Hugging Face folder directly, without a GGUF file in between",
    },
    { name: "allow-requantize", type: "bool", help: "accept tensors that are already quantized" },
    { name: "leave-output-tensor", type: "bool", help: "keep output.weight as it is" },
    { name: "pure", type: "bool", help: "no mixture: every tensor gets the type itself" },
    {
      name: "imatrix",
      type: "strings",
      value: "FILE",
      help: "importance matrix, GGUF or the old format; several are added up",
    },
    {
      name: "include-weights",
      type: "strings",
      value: "TEXT",
      help: "use only entries of the importance matrix with this in their name",
    },
    {
      name: "exclude-weights",
      type: "strings",
      value: "TEXT",
      help: "use no entries of the importance matrix with this in their name",
    },
    { name: "output-tensor-type", type: "string", value: "TYPE", help: "type of output.weight" },
    { name: "token-embedding-type", type: "string", value: "TYPE", help: "type of the token embedding" },
    {
      name: "tensor-type",
      type: "strings",
      value: "PATTERN=TYPE",
      help: "type of tensors whose name has a match of the regular expression; the first that matches decides",
    },
    { name: "tensor-type-file", type: "strings", value: "FILE", help: "more of these, separated by white space" },
    ...BUDGET_FLAGS,
    { name: "prune-layers", type: "string", value: "L0,L1,...", help: "leave out these layers" },
    { name: "keep-split", type: "bool", help: "one output file for each input file of a set" },
    {
      name: "override-kv",
      type: "strings",
      value: "KEY=TYPE:VALUE",
      help: "set metadata; TYPE is int, float, bool or str",
    },
    { name: "dry-run", type: "bool", help: "print what would be done; read no tensor, write nothing" },
    { name: "no-fallback", type: "bool", help: "refuse where a row does not fit the blocks of its type" },
    { name: "room", type: "string", value: "SIZE", help: "most memory for rows, such as 512M; default 256 MiB" },
    { name: "max-buffer-size", type: "int", value: "MIB", min: 1, help: "the same in MiB" },
    {
      ...COMMON.device,
      help:
        "where to encode: cpu, cuda[:i], or auto: a card where there is one, for types that it encodes faster (K and IQ, " +
        "and with importance Q4_0 to Q5_1), when there is 1 GB or more to encode",
    },
    { name: "resume", type: "bool", help: "continue an interrupted run" },
    COMMON.overwrite,
    COMMON.config,
    {
      name: "outtype",
      type: "string",
      value: "TYPE",
      default: "auto",
      choices: ["f32", "f16", "bf16", "auto", "keep"],
      help: "with --hf: type of the tensors before they are quantized, as in bloomery prepare",
    },
    { name: "arch", type: "string", value: "NAME", help: "with --hf: architecture to use" },
    {
      name: "ignore",
      type: "strings",
      value: "PATTERN",
      help: "with --hf: skip tensors of the checkpoint whose name matches",
    },
    {
      name: "mtp",
      type: "string",
      value: "WHAT",
      default: "keep",
      choices: ["keep", "drop", "only"],
      help: "with --hf: draft layers",
    },
    { name: "chat-template", type: "string", value: "FILE", help: "with --hf: chat template to use" },
    { ...COMMON.json, help: "print one JSON object a line on stdout: events, then the result" },
    COMMON.quiet,
  ],
  epilog: "Examples:\n  bloomery quantize model-bf16.gguf model-q4.gguf Q4_K_M\n" +
    "  bloomery quantize --imatrix model.imatrix.gguf model-bf16.gguf model-iq2.gguf IQ2_M 16\n" +
    "  bloomery quantize --hf ./Qwen3-8B qwen3-8b-q4.gguf Q4_K_M\n" +
    "  bloomery quantize --budget 3.2bpw --measure model.measure.json model-bf16.gguf model-3.2.gguf",

  async run({ args, flags, io }) {
    const hf = flags.str("hf");
    const all = hf === undefined ? args : [hf, ...args];
    if (all.length === 0) {
      throw new UsageError("usage.arguments", "Cannot quantize: the input is missing", {
        hint: "give the arguments INPUT [OUTPUT] TYPE [THREADS]",
      });
    }
    const request = await quantizeArguments(all, flags);
    const asked = await quantizeOptions(flags, (text) => io.warn(text));
    using source = await openSource(request.input, flags);
    for (const w of source.warnings) io.warn(w);
    for (const { pattern } of asked.tensorTypes ?? []) {
      if (!source.tensors.some((t) => pattern.test(t.name))) io.warn(`--tensor-type ${pattern.source} fits no tensor`);
    }
    const { options, chosen } = await withTypes(source, request, asked, flags, io);
    const { planFor, quantize } = await import("../quantize/quantize.ts");
    const { planTable, summarize, summaryLines } = await import("../quantize/quantize_summary.ts");
    const json = flags.bool("json");

    if (options.dryRun) {
      const plan = planFor(source, options);
      const summary = summarize(plan);
      for (const w of plan.warnings) io.warn(w);
      if (json) {
        const tensors = plan.tensors.map((t) => ({
          name: t.name,
          ne: t.ne,
          from: t.source.type.name,
          to: t.type.name,
          planned: t.planned.name,
          imatrix: t.importance !== undefined,
          source_bytes: t.sourceBytes,
          bytes: t.bytes,
        }));
        io.json({ schema: "bloomery.quantize_plan.v1", file_type: plan.fileType.name, summary, tensors });
      } else {
        io.out(planTable(plan) + "\n");
        io.out(summaryLines(summary).map((line) => line + "\n").join(""));
      }
      return EXIT.done;
    }

    refuseExisting(request.output, flags, { set: options.keepSplit === true });
    if (chosen) await writeTypes(chosen, request, flags, io);
    using _hold = io.hold();
    io.ifInterrupted("stopped; run the same command with --resume to continue");
    const { backend, device } = await openEncoders(
      flags.str("device") ?? "auto",
      request.threads,
      () => planFor(source, options),
    );
    using _ = backend;
    const start = performance.now();
    const progress = tensorProgress("quantize", flags, io);
    const report = (p: QuantizeProgress) => {
      const { name, type, source: from } = p.tensor;
      progress.update({
        ...p,
        name,
        what: type.id === from.type.id ? `${type.name} kept` : `${from.type.name} -> ${type.name}`,
        facts: { from: from.type.name, to: type.name },
      });
    };
    const result = await quantize(source, request.output, backend, {
      ...options,
      device,
      signal: io.signal,
      onProgress: report,
    }).finally(() => progress.stop());
    for (const w of result.warnings.slice(source.warnings.length)) io.warn(w);
    const seconds = (performance.now() - start) / 1000;
    if (json) {
      io.json({
        schema: "bloomery.quantize.v1",
        paths: result.paths,
        file_type: options.fileType.name,
        ...result.summary,
        n_resumed: result.n_resumed,
        resumed_bytes: result.resumed_bytes,
        warnings: result.warnings,
        seconds,
      });
    } else {
      for (const line of summaryLines(result.summary)) io.note(line);
      if (result.n_resumed > 0) io.note(`${result.n_resumed} tensors were kept from an earlier run`);
      const own = result.summary.source_bytes - result.resumed_bytes;
      const rate = own / 1e6 / Math.max(seconds, 1e-3);
      io.note(`wrote ${shortList(result.paths)} in ${seconds.toFixed(1)} s, ${rate.toFixed(1)} MB/s of source`);
    }
    return EXIT.done;
  },
};
