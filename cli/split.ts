/**
 * `bloomery split`: one GGUF becomes a set of files.
 * @module
 */
import type { Command } from "./command.ts";
import { reshard, RESHARD_FLAGS } from "./reshard.ts";
import { parseSize } from "./size.ts";

export const split: Command = {
  name: "split",
  summary: "Split a GGUF file into a set of smaller ones",
  arguments: [
    { name: "input", help: "GGUF file, or the first of a split set" },
    { name: "prefix", help: "files become PREFIX-00001-of-0000N.gguf" },
  ],
  flags: [
    { name: "split-max-size", type: "string", value: "SIZE", help: "most bytes of tensors in a file, such as 4G" },
    {
      name: "split-max-tensors",
      type: "int",
      value: "N",
      min: 1,
      help: "most tensors in a file; 128 when neither limit is given",
    },
    { name: "no-tensor-first-split", type: "bool", help: "the first file holds metadata only" },
    ...RESHARD_FLAGS,
  ],
  epilog: "Example:\n  bloomery split --split-max-size 4G model.gguf model",

  async run(invocation) {
    const { args, flags } = invocation;
    const { splitGguf } = await import("../quantize/reshard.ts");
    const size = flags.str("split-max-size");
    const tensors = flags.num("split-max-tensors");
    return await reshard("split", invocation, (options) =>
      splitGguf(args[0], args[1], {
        ...options,
        ...(size === undefined ? {} : { splitMaxSize: parseSize(size, "split-max-size") }),
        ...(tensors === undefined ? {} : { splitMaxTensors: tensors }),
        noTensorFirstSplit: flags.bool("no-tensor-first-split"),
      }));
  },
};
