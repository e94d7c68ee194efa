/**
 * `bloomery imatrix`: looks at importance matrices, and adds several up to one.
 * @module
 */
import { shortList } from "../core/errors.ts";
import type { ImatrixFile, ImatrixStatistics } from "../quantize/imatrix.ts";
import { type Command, EXIT, type Flag } from "./command.ts";
import { COMMON } from "./flags.ts";
import { refuseExisting } from "./overwrite.ts";

function table(rows: readonly ImatrixStatistics[]): string {
  const head = [
    "weight",
    "columns",
    "matrices",
    "unreached",
    "rows",
    "sum",
    "mean",
    "deviation",
    "largest",
    "active %",
    "entropy",
  ];
  const cells = rows.map((s) => [
    s.name,
    String(s.n_in),
    String(s.n_mat),
    String(s.n_unreached),
    s.min_count === s.max_count ? String(s.min_count) : `${s.min_count}..${s.max_count}`,
    s.sum.toPrecision(5),
    s.mean.toPrecision(4),
    s.deviation.toPrecision(4),
    s.max.toPrecision(4),
    s.active_percent.toFixed(1),
    s.entropy.toFixed(2),
  ]);
  const widths = head.map((h, i) => Math.max(h.length, ...cells.map((r) => r[i].length)));
  const line = (r: string[]) => r.map((c, i) => i === 0 ? c.padEnd(widths[i]) : c.padStart(widths[i])).join("  ");
  return [head, ...cells].map((r) => line(r) + "\n").join("");
}

/** Which format a matrix is written in. */
export const OUTPUT_FORMAT: Flag = {
  name: "output-format",
  type: "string",
  value: "FORMAT",
  choices: ["gguf", "dat"],
  help: "format of the output; dat is the old one",
};

export const mergeMatrices: Command = {
  name: "imatrix-merge",
  summary: "Add several importance matrices into one, of either format",
  arguments: [{ name: "file", help: "importance matrices, GGUF or the old format", variadic: true }],
  flags: [
    { name: "output", alias: ["o"], type: "string", value: "FILE", required: true, help: "the sum of all files" },
    OUTPUT_FORMAT,
    COMMON.overwrite,
    COMMON.config,
    COMMON.quiet,
  ],
  epilog: "Example:\n  bloomery imatrix merge english.gguf code.dat -o both.imatrix.gguf",

  async run({ args, flags, io }) {
    const { convertImatrix, mergeImatrices, readImatrix, writeImatrix } = await import("../quantize/imatrix.ts");
    const output = flags.str("output")!;
    refuseExisting(output, flags);
    const sum = mergeImatrices(args.map(readImatrix), output);
    const made = convertImatrix(sum, (flags.str("output-format") ?? sum.format) as ImatrixFile["format"]);
    writeImatrix(made, output);
    io.note(`wrote ${output}: ${made.sums.size} weights, ${made.n_chunks} chunks, ${made.format}`);
    return EXIT.done;
  },
};

export const imatrix: Command = {
  name: "imatrix",
  summary: "Describe importance matrices, or add several into one",
  arguments: [{ name: "file", help: "importance matrices, GGUF or the old format", variadic: true }],
  flags: [
    { name: "output", alias: ["o"], type: "string", value: "FILE", help: "write the sum of all files, as GGUF" },
    COMMON.overwrite,
    COMMON.config,
    COMMON.json,
    COMMON.quiet,
  ],
  epilog: "Examples:\n  bloomery imatrix model.imatrix.gguf\n" +
    "  bloomery imatrix english.gguf code.gguf -o both.imatrix.gguf",

  async run({ args, flags, io }) {
    const { imatrixStatistics, mergeImatrices, readImatrix, writeImatrix } = await import("../quantize/imatrix.ts");
    const output = flags.str("output");
    if (output !== undefined) refuseExisting(output, flags);
    const files = args.map(readImatrix);
    const file = files.length === 1 ? files[0] : mergeImatrices(files, output ?? args[0]);
    if (output !== undefined) writeImatrix(file, output);
    const statistics = imatrixStatistics(file);
    if (flags.bool("json")) {
      const { format, datasets, n_chunks, chunk_size } = file;
      io.json({
        schema: "bloomery.imatrix.v1",
        files: args,
        format,
        datasets,
        n_chunks,
        chunk_size,
        entries: statistics,
      });
    } else {
      io.out(table(statistics));
      io.note(
        `${statistics.length} weights, ${file.n_chunks} chunks of ${file.chunk_size} tokens: ${
          shortList(file.datasets)
        }`,
      );
      if (output !== undefined) io.note(`wrote ${output}`);
    }
    return EXIT.done;
  },
};
