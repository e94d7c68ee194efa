/**
 * `bloomery eval compare`: whether two models differ in how far they are from the original.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import { COMMON } from "./flags.ts";
import { readText } from "./text_file.ts";

export const compareEvals: Command = {
  name: "eval-compare",
  summary: "Say whether two models differ in how far they are from the original, from two reports of eval --json",
  arguments: [{ name: "a", help: "report of the one" }, { name: "b", help: "report of the other" }],
  flags: [COMMON.config, COMMON.json, COMMON.quiet],
  epilog: "Example:\n  bloomery eval -m a.gguf --against original.jsonl --json > a.json\n" +
    "  bloomery eval -m b.gguf --against original.jsonl --json > b.json\n  bloomery eval compare a.json b.json",

  async run({ args: [nameA, nameB], flags, io }) {
    const { compareReports, parseReport, renderDifferences } = await import("../eval/compare_reports.ts");
    const a = parseReport(readText(nameA), nameA), b = parseReport(readText(nameB), nameB);
    const rows = compareReports(a, b, [nameA, nameB]);
    const models: [string, string] = [a.model, b.model];
    if (flags.bool("json")) {
      io.json({ schema: "bloomery.eval_compare/1", a: models[0], b: models[1], base: a.base, rows });
    } else io.out(renderDifferences(rows, models));
    return EXIT.done;
  },
};
