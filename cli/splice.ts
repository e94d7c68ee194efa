/**
 * `bloomery splice`: a GGUF with some tensors of another.
 * @module
 */
import type { Command } from "./command.ts";
import { reshard, RESHARD_FLAGS } from "./reshard.ts";

export const splice: Command = {
  name: "splice",
  summary: "Write a GGUF file with some tensors taken from another",
  arguments: [
    { name: "base", help: "GGUF file that gives metadata and all other tensors" },
    { name: "donor", help: "GGUF file to take tensors from" },
    { name: "output", help: "the GGUF file to make" },
  ],
  flags: [
    {
      name: "take",
      type: "strings",
      value: "PATTERN",
      required: true,
      help: "names of tensors to take; * is any text; may be given several times",
    },
    ...RESHARD_FLAGS,
  ],
  epilog: "Tensors that the base lacks are added at the end.\n\n" +
    "Example:\n  bloomery splice --take 'blk.*.ffn_down*' q4.gguf q6.gguf mixed.gguf",

  async run(invocation) {
    const { args, flags } = invocation;
    const { spliceGguf } = await import("../quantize/reshard.ts");
    const { globs } = await import("../quantize/patterns.ts");
    const names = globs(flags.strs("take"));
    const take = (name: string) => names?.test(name) ?? false;
    return await reshard(
      "splice",
      invocation,
      (options) => spliceGguf(args[0], args[1], args[2], { ...options, take }),
    );
  },
};
