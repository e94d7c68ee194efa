/**
 * `bloomery inspect`: what is in a GGUF file, whether its data is sound, how it differs from another.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { type Command, EXIT, type Invocation } from "./command.ts";
import { COMMON } from "./flags.ts";

export const inspect: Command = {
  name: "inspect",
  summary: "Show, check or compare GGUF files",
  arguments: [
    { name: "file", help: "GGUF file, or the first of a split set" },
    { name: "other", optional: true, help: "with --diff: the file to compare with" },
  ],
  flags: [
    { name: "check", type: "bool", help: "read all data: finite numbers and scales, padding, nothing after the end" },
    { name: "diff", type: "bool", help: "compare two files: keys, tensors, bytes" },
    { name: "headers-only", type: "bool", help: "with --diff: leave the data unread" },
    { name: "all", type: "bool", help: "with --json: whole arrays, not only their first elements" },
    COMMON.config,
    COMMON.json,
    COMMON.quiet,
  ],
  epilog: "Exit code 3 when --check finds a problem or --diff a difference.\n\nExamples:\n" +
    "  bloomery inspect model.gguf\n  bloomery inspect --check model.gguf\n  bloomery inspect --diff a.gguf b.gguf",

  async run(invocation) {
    const { args, flags } = invocation;
    if (flags.bool("diff") !== (args.length === 2)) {
      throw new UsageError(
        "usage.arguments",
        flags.bool("diff") ? "Cannot compare one file: --diff takes two" : "Cannot inspect two files without --diff",
        { hint: "see bloomery inspect --help" },
      );
    }
    if (flags.bool("diff")) return await diff(invocation);
    if (flags.bool("check")) return await check(invocation);
    const [{ openGguf }, { inspectGguf }, { renderReport }] = await Promise.all([
      import("../core/gguf/read.ts"),
      import("../quantize/inspect.ts"),
      import("../quantize/inspect_text.ts"),
    ]);
    using file = openGguf(args[0]);
    const report = inspectGguf(file, flags.bool("all") ? { arrayElements: Infinity } : {});
    if (flags.bool("json")) invocation.io.json(report);
    else invocation.io.out(renderReport(report));
    return EXIT.done;
  },
};

async function check({ args, flags, io }: Invocation): Promise<number> {
  const { openGguf } = await import("../core/gguf/read.ts");
  const { checkGguf } = await import("../quantize/inspect_check.ts");
  const { renderCheck } = await import("../quantize/inspect_text.ts");
  using file = openGguf(args[0]);
  let bar: ReturnType<typeof io.bar> | undefined;
  const report = await checkGguf(file, {
    signal: io.signal,
    onProgress: (done, total) => (bar ??= io.bar("check", total, "B")).update(done),
  }).finally(() => bar?.stop());
  if (flags.bool("json")) io.json(report);
  else io.out(renderCheck(report));
  return report.ok ? EXIT.done : EXIT.threshold;
}

async function diff({ args, flags, io }: Invocation): Promise<number> {
  const { openGguf } = await import("../core/gguf/read.ts");
  const { diffGguf } = await import("../quantize/inspect_diff.ts");
  const { renderDiff } = await import("../quantize/inspect_text.ts");
  using a = openGguf(args[0]);
  using b = openGguf(args[1]);
  let bar: ReturnType<typeof io.bar> | undefined;
  const difference = await diffGguf(a, b, {
    headersOnly: flags.bool("headers-only"),
    signal: io.signal,
    onProgress: (done, total) => (bar ??= io.bar("diff", total, "B")).update(done),
  }).finally(() => bar?.stop());
  if (flags.bool("json")) io.json(difference);
  else io.out(renderDiff(difference));
  return difference.same ? EXIT.done : EXIT.threshold;
}
