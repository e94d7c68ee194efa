/**
 * `bloomery merge`: a split set becomes one GGUF.
 * @module
 */
import type { Command } from "./command.ts";
import { reshard, RESHARD_FLAGS } from "./reshard.ts";

export const merge: Command = {
  name: "merge",
  summary: "Merge a split set into one GGUF file",
  arguments: [
    { name: "first", help: "first file of the set, PREFIX-00001-of-0000N.gguf" },
    { name: "output", help: "the GGUF file to make" },
  ],
  flags: RESHARD_FLAGS,
  epilog: "Example:\n  bloomery merge model-00001-of-00004.gguf model.gguf",

  async run(invocation) {
    const { mergeGguf } = await import("../quantize/reshard.ts");
    const [first, output] = invocation.args;
    return await reshard("merge", invocation, (options) => mergeGguf(first, output, options));
  },
};
