/**
 * The types of a quantization: those of the file type that was named, or chosen under a budget.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { ChosenTypes } from "../quantize/budget/choose.ts";
import type { QuantizeOptions } from "../quantize/quantize.ts";
import type { FileType } from "../quantize/file_types.ts";
import type { QuantizeSource } from "../quantize/quantize_source.ts";
import type { Flag, Flags } from "./command.ts";
import type { Io } from "./io.ts";
import { refuseExisting } from "./overwrite.ts";
import { parseBudget } from "./size.ts";
import { readText } from "./text_file.ts";

/** What is quantized, to where, and to what. */
export interface TypedRequest {
  readonly input: string;
  readonly output: string;
  /** Undefined where a budget decides. */
  readonly fileType: FileType | undefined;
}

/** Flags of quantize. */
export const BUDGET_FLAGS: readonly Flag[] = [
  {
    name: "budget",
    type: "string",
    value: "SIZE",
    help:
      "choose each tensor's type so that the model loses least at 3.2bpw (bits per weight) or 24GiB; needs --measure, no type is " +
      "named then. OUTPUT.tensor-types.txt is written too, for --tensor-type-file here and in llama-quantize",
  },
  { name: "measure", type: "string", value: "FILE", help: "with --budget: losses that bloomery measure wrote" },
];

/** Flags that decide types in another way, or have no GGUF file that could be measured. */
const OTHER_WAYS = ["pure", "prune-layers", "hf"] as const;

/** The options with types; `chosen` where a budget decided them. */
export async function withTypes(
  source: QuantizeSource,
  request: TypedRequest,
  asked: Omit<QuantizeOptions, "fileType">,
  flags: Flags,
  io: Io,
): Promise<{ options: QuantizeOptions; chosen?: ChosenTypes }> {
  const text = flags.str("budget"), measurePath = flags.str("measure");
  if (request.fileType !== undefined) {
    if (measurePath === undefined) return { options: { ...asked, fileType: request.fileType } };
    throw new UsageError("usage.arguments", "Cannot use --measure without --budget", {
      hint: "give --budget 3.2bpw or --budget 24GiB, and no type",
    });
  }
  if (text === undefined || measurePath === undefined) {
    throw new UsageError("usage.missing_flag", "Cannot keep a budget without losses: --measure is missing", {
      hint: "make the file with bloomery measure",
    });
  }
  for (const flag of OTHER_WAYS) {
    if (!flags.given(flag) || flags.values.get(flag) === false) continue;
    throw new UsageError("usage.arguments", `Cannot use --${flag} with --budget`, { hint: `leave out --${flag}` });
  }
  const { contentKey } = await import("../core/gguf/content_key.ts");
  const { chooseTypes } = await import("../quantize/budget/choose.ts");
  const { parseMeasure } = await import("../quantize/measure/measure_file.ts");
  const chosen = chooseTypes(source, {
    budget: parseBudget(text),
    measure: parseMeasure(readText(measurePath, "measure"), measurePath),
    measurePath,
    modelKey: contentKey(source, (t) => source.locate?.(t, 0, rowsOf(t))),
    quantize: asked,
    output: request.output,
  });
  const size = Number.isInteger(chosen.size) ? `${chosen.size} bytes` : `${chosen.size.toFixed(4)} bits per weight`;
  const least = chosen.isBest ? "the least of any choice" : "near the least of any choice";
  io.note(`types under ${text}: ${size}, sum of measured losses ${chosen.loss.toPrecision(4)}, ${least}`);
  return { options: { ...asked, fileType: chosen.fileType, tensorTypes: chosen.tensorTypes }, chosen };
}

function rowsOf({ ne }: { readonly ne: readonly number[] }): number {
  return ne.slice(1).reduce((a, b) => a * b, 1);
}

/** Writes chosen types beside the output, and says how llama-quantize repeats it. */
export async function writeTypes(
  { tensorTypes, fileType }: ChosenTypes,
  request: TypedRequest,
  flags: Flags,
  io: Io,
): Promise<void> {
  const { patternText } = await import("../quantize/budget/choose.ts");
  const path = `${request.output.replace(/\.gguf$/, "")}.tensor-types.txt`;
  refuseExisting(path, flags);
  Deno.writeTextFileSync(path, patternText(tensorTypes));
  const imatrix = flags.strs("imatrix").map((file) => `--imatrix ${file} `).join("");
  io.note(
    `the same: llama-quantize ${imatrix}--tensor-type-file ${path} ${request.input} ${request.output} ${fileType.name}`,
  );
}
