/**
 * `bloomery pull`: a model of the Hub on the disk.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import { COMMON, HUB_FLAGS } from "./flags.ts";
import { pullFromFlags } from "./model_file.ts";
import { formatAmount } from "./progress.ts";

export const pull: Command = {
  name: "pull",
  summary: "Download a GGUF model of the Hub",
  arguments: [{ name: "repo", help: "OWNER/REPO[:QUANT]; QUANT such as Q8_0, default: Q4_K_M, else the first file" }],
  flags: [...HUB_FLAGS, COMMON.config, COMMON.json, COMMON.quiet],
  epilog:
    "The path of the model goes to stdout. A download that was stopped goes on where it stopped, and each file is\n" +
    "checked against the Hub's checksum. Other commands take -hf OWNER/REPO in place of -m FILE.\n\n" +
    "Example:\n  bloomery pull ggml-org/Qwen3-0.6B-GGUF:Q8_0",

  async run({ args, flags, io }) {
    const start = performance.now();
    const { path, paths, bytes, fetched } = await pullFromFlags(args[0], flags, io);
    const seconds = (performance.now() - start) / 1000;
    if (flags.bool("json")) {
      io.json({ schema: "bloomery.pull.v1", path, paths, bytes, fetched_bytes: fetched, seconds });
    } else {
      io.out(path + "\n");
      io.note(
        fetched === 0
          ? `${formatAmount(bytes, "B")} were there already`
          : `fetched ${formatAmount(fetched, "B")} of ${formatAmount(bytes, "B")} in ${seconds.toFixed(1)} s`,
      );
    }
    return EXIT.done;
  },
};
