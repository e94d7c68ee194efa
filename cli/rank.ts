/**
 * `bloomery rank`: how many rows of a text each expert computes, as the start of a later run's residency.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import { LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { modelPath } from "./model_file.ts";
import { contextOf, openModelFromFlags } from "./open.ts";
import { refuseExisting } from "./overwrite.ts";
import { rankDocument, residencyNote } from "./residency.ts";
import { readText } from "./text_file.ts";
import { ModelError, PlanError, UsageError } from "../core/errors.ts";

/** Slots for every expert there can be: their rows are counted in pools only. */
const ALL = 2 ** 31;

export const rank: Command = {
  name: "rank",
  summary: "Count how often each expert of a model is used on a text",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    { name: "file", alias: ["f"], type: "string", value: "FILE", help: "text file", required: true },
    {
      name: "output",
      alias: ["o"],
      type: "string",
      value: "FILE",
      help: "where the counts go, a .json file",
      required: true,
    },
    { name: "window", type: "int", value: "N", default: 512, min: 2, help: "tokens that are read together" },
    COMMON.overwrite,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
  ],
  epilog: "A later run keeps the experts with the most rows in memory from the start: --expert-rank FILE.\n\n" +
    "Example:\n  bloomery rank -m model.gguf -f text.txt -o model.rank.json",

  async run({ flags, io }) {
    const output = flags.str("output")!, n = flags.num("window")!;
    if (!output.endsWith(".json")) {
      throw new UsageError("usage.value", `Cannot write --output ${output}: expected a name that ends in .json`, {
        at: { flag: "--output", got: output },
      });
    }
    refuseExisting(output, flags);
    const text = readText(flags.str("file")!, "file");
    const path = await modelPath(flags, io);
    const options = { path, n_ctx: Math.max(n, contextOf(flags) ?? 0), n_out: 1 };
    const open = async () => {
      try {
        return await openModelFromFlags(flags, io, { ...options, slots: ALL });
      } catch (error) {
        if (!(error instanceof PlanError && error.code === "plan.does_not_fit")) throw error;
        return await openModelFromFlags(flags, io, options);
      }
    };
    using opened = await open();
    const { engine, tokenizer } = opened.model;
    if (!engine.residency) {
      throw new ModelError(
        "model.no_experts",
        `Cannot rank the experts of ${path}: it has none that the host reads by expert`,
        {
          at: { file: path, device: opened.device.name },
          hint: "rank a model with routed experts, with --device cpu",
        },
      );
    }
    const ids = tokenizer.encode(text, { addSpecial: true });
    const bar = io.bar("rank", ids.length, "tok");
    for (let at = 0; at < ids.length && !io.signal.aborted; at += n) {
      using sequence = engine.createSequence();
      await engine.step([{ sequence, tokens: ids.subarray(at, at + n), output: "none" }]);
      bar.update(Math.min(ids.length, at + n));
    }
    bar.stop();
    Deno.writeTextFileSync(output, JSON.stringify(rankDocument(path, ids.length, engine.residency.counts)) + "\n");
    io.note(residencyNote(engine)!);
    io.note(`wrote ${output}: ${ids.length} tokens`);
    return EXIT.done;
  },
};
