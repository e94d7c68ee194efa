/**
 * `bloomery prepare`: a Hugging Face folder becomes a GGUF file.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import { COMMON, SPLIT_FLAGS } from "./flags.ts";
import { refuseExisting } from "./overwrite.ts";
import type { Backend } from "../core/program/backend.ts";
import type { PrepareFileOptions } from "../quantize/prepare/mod.ts";
import { parseSize } from "./size.ts";
import { readText } from "./text_file.ts";
import { tensorProgress } from "./tensor_progress.ts";

export const prepare: Command = {
  name: "prepare",
  summary: "Turn a Hugging Face folder into a GGUF file",
  arguments: [{ name: "dir", help: "folder with config.json, tokenizer files and safetensors" }],
  flags: [
    {
      name: "output",
      alias: ["o"],
      type: "string",
      value: "FILE",
      required: true,
      help: "the GGUF file to make",
    },
    {
      name: "outtype",
      type: "string",
      value: "TYPE",
      default: "auto",
      choices: ["f32", "f16", "bf16", "q8_0", "auto", "keep"],
      help: "type of matrices: auto is the checkpoint's 16-bit type, keep leaves each tensor's type as it is",
    },
    {
      name: "arch",
      type: "string",
      value: "NAME",
      help: "architecture to use if config.json names an unknown one",
    },
    {
      name: "dequantize",
      type: "bool",
      help:
        "write values that the checkpoint stores in 8 or 4 bits as --outtype says, not as Q8_0, MXFP4 or NVFP4 blocks",
    },
    {
      name: "ngram-layout",
      type: "string",
      value: "LAYOUT",
      default: "per-site",
      choices: ["per-site", "concatenated"],
      help: "n-gram tables of DeepSeek V4.1: a tensor each, or all in one (an assumption: no released file has it)",
    },
    { name: "model-name", type: "string", value: "NAME", help: "name of the model in the file (general.name)" },
    {
      name: "only",
      type: "strings",
      value: "PATTERN",
      help: "keep only tensors whose name in the file matches; * matches any text",
    },
    { name: "drop", type: "strings", value: "PATTERN", help: "leave out tensors whose name in the file matches" },
    { name: "ignore", type: "strings", value: "PATTERN", help: "skip tensors of the checkpoint whose name matches" },
    {
      name: "mtp",
      type: "string",
      value: "WHAT",
      default: "keep",
      choices: ["keep", "drop", "only"],
      help: "draft layers (multi-token prediction): in the file, left out, or alone with embeddings and head",
    },
    { name: "chat-template", type: "string", value: "FILE", help: "chat template to use instead of the checkpoint's" },
    ...SPLIT_FLAGS,
    COMMON.overwrite,
    COMMON.config,
    { name: "room", type: "string", value: "SIZE", help: "memory for buffers, such as 512M" },
    {
      name: "follow",
      type: "bool",
      help:
        "work on files as they finish arriving in the folder; takes room for a second copy of what is converted early",
    },
    { name: "resume", type: "bool", help: "continue an interrupted run, and keep what is done at Ctrl-C" },
    { name: "vocab-only", type: "bool", help: "metadata and vocabulary without tensors" },
    { ...COMMON.json, help: "print one JSON object a line on stdout: events, then the result" },
    COMMON.quiet,
  ],
  epilog: "Example:\n  bloomery prepare ./Qwen3-8B -o qwen3-8b-bf16.gguf",

  async run({ args, flags, io }) {
    const { prepare } = await import("../quantize/prepare/mod.ts");
    const [dir] = args;
    const out = flags.str("output")!;
    refuseExisting(out, flags, { set: flags.has("split-max-size") || flags.has("split-max-tensors") });
    const templatePath = flags.str("chat-template");
    // Opened at the first matrix that becomes q8_0, and only where it is built: prepare works without it, slower.
    let backend: Backend | undefined;
    const ffi = await import("../ffi/mod.ts");
    const hasNative = ffi.libraryPath("cpu") !== undefined;
    using _ = { [Symbol.dispose]: () => backend?.[Symbol.dispose]() };
    using _hold = io.hold();
    io.ifInterrupted(
      flags.bool("resume")
        ? "stopped; run the same command to continue"
        : "stopped; nothing was saved, because --resume was not given",
    );
    const json = flags.bool("json");
    const start = performance.now();
    const seconds = () => (performance.now() - start) / 1000;
    const progress = tensorProgress("prepare", flags, io);
    const follow: Partial<PrepareFileOptions> = {
      follow: {
        onArrived(file, n, n_files) {
          if (json) io.json({ event: "file", name: file, n_arrived: n, n_files, seconds: seconds() });
          else io.note(`${file} arrived, ${n} of ${n_files} files`);
        },
      },
      onEarly({ tensor: { name, type }, n_tensors, bytes }) {
        if (json) io.json({ event: "early", name, to: type.name, n_tensors, bytes, seconds: seconds() });
        else if (!io.isTerminal) io.note(`${name}: ${type.name}, ahead of the other files`);
      },
    };
    const size = (name: string) => flags.has(name) ? parseSize(flags.str(name)!, name) : undefined;
    const splitMaxSize = size("split-max-size");
    const splitMaxTensors = flags.num("split-max-tensors");
    const room = size("room");
    const strs = (name: string) => flags.strs(name).length > 0 ? { [name]: flags.strs(name) } : {};
    const work = prepare(dir, out, {
      outtype: flags.str("outtype") as "auto",
      ...(flags.has("arch") ? { arch: flags.str("arch")! } : {}),
      ...(flags.has("model-name") ? { modelName: flags.str("model-name")! } : {}),
      ...strs("only"),
      ...strs("drop"),
      ...strs("ignore"),
      mtp: flags.str("mtp") === "only" ? "only" : flags.str("mtp") !== "drop",
      ...(templatePath === undefined ? {} : { chatTemplate: readText(templatePath, "chat-template") }),
      vocabOnly: flags.bool("vocab-only"),
      dequantize: flags.bool("dequantize"),
      ngramLayout: flags.str("ngram-layout") as "per-site",
      resume: flags.bool("resume"),
      ...(splitMaxSize === undefined ? {} : { splitMaxSize }),
      ...(splitMaxTensors === undefined ? {} : { splitMaxTensors }),
      noTensorFirstSplit: flags.bool("no-tensor-first-split"),
      ...(room === undefined ? {} : { room }),
      ...(hasNative ? { quantize: (job) => (backend ??= ffi.openNativeBackend("cpu")).quantize(job) } : {}),
      signal: io.signal,
      ...(flags.bool("follow") ? follow : {}),
      onProgress: (p) =>
        progress.update({
          ...p,
          name: p.tensor.name,
          done: p.bytes,
          total: p.totalBytes,
          what: p.tensor.type.name,
          facts: { from: p.tensor.from, to: p.tensor.type.name },
        }),
    });
    const result = await work.finally(() => progress.stop());
    for (const w of result.warnings) io.warn(w);
    if (json) {
      io.json({
        schema: "bloomery.prepare.v1",
        paths: result.paths,
        architecture: result.architecture,
        n_tensors: result.n_tensors,
        bytes: result.bytes,
        types: result.types,
        n_resumed: result.n_resumed,
        warnings: result.warnings,
        seconds: seconds(),
      });
    } else {
      const types = Object.entries(result.types).map(([type, n]) => `${n} ${type}`).join(", ");
      if (result.n_resumed > 0) io.note(`${result.n_resumed} tensors were kept from an earlier run`);
      const { paths } = result;
      const where = paths.length === 1 ? paths[0] : `${paths.length} files, ${paths[0]} and so on`;
      io.note(
        `wrote ${where}: ${result.architecture}, ${result.n_tensors} tensors (${types}), ` +
          `${(result.bytes / 1e6).toFixed(1)} MB in ${seconds().toFixed(1)} s`,
      );
    }
    return EXIT.done;
  },
};
