/**
 * `bloomery pipeline`: from a checkpoint to published files, by a recipe.
 * @module
 */
import { BloomeryError, UsageError } from "../core/errors.ts";
import type { Recipe } from "../pipeline/recipe.ts";
import type { PlannedStep } from "../pipeline/runner.ts";
import type { RecipeFiles, Step } from "../pipeline/steps.ts";
import { type Command, EXIT, Flags } from "./command.ts";
import { COMMON, HUB_FLAGS } from "./flags.ts";
import type { Io } from "./io.ts";
import { deviceName } from "./open.ts";
import { withTypes } from "./budget.ts";
import { openSource, quantizeArguments, quantizeOptions } from "./quantize.ts";
import { parseArgs } from "./parse.ts";
import { runSteps, ThresholdNotMet } from "./pipeline_run.ts";
import { readText } from "./text_file.ts";
import { VERSION } from "./version.ts";

function parsed(argv: readonly string[], commands: readonly Command[]) {
  const result = parseArgs(argv, commands, "");
  if (result.kind === "run") return result;
  throw new Error(`the words of a step are no command: ${argv.join(" ")}`);
}

/**
 * Sizes of files that are to be made, from headers alone. What the headers of a checkpoint do not tell yet, and types that need an
 * importance that is still to be collected, have none.
 */
async function predictedSizes(
  recipe: Recipe,
  files: RecipeFiles,
  steps: readonly Step[],
  commands: readonly Command[],
  io: Io,
): Promise<Map<string, number>> {
  const { planFor } = await import("../quantize/quantize.ts");
  const sizes = new Map<string, number>();
  const unknown = (what: string, error: unknown) => {
    if (!(error instanceof BloomeryError)) throw error;
    io.note(`the size of ${what} is not known yet: ${error.message}`);
  };
  const { outtype, arch, mtp } = recipe.prepare;
  const words = recipe.source.endsWith(".gguf") ? [recipe.source, "COPY"] : [
    "--hf",
    recipe.source,
    "COPY",
    ...outtype === undefined || outtype === "q8_0" ? [] : ["--outtype", outtype],
    ...arch === undefined ? [] : ["--arch", arch],
    ...mtp === undefined ? [] : ["--mtp", mtp],
  ];
  try {
    using source = await openSource(recipe.source, parsed(["quantize", ...words], commands).flags);
    for (const step of steps.filter((s) => s.kind === "quantize")) {
      const { args, flags } = parsed(step.argv!, commands);
      const hf = flags.str("hf");
      const request = await quantizeArguments(hf === undefined ? args : [hf, ...args], flags);
      const there = files.imatrix !== undefined && flags.strs("imatrix").length > 0 && isThere(files.imatrix);
      const own = there ? flags : new Flags(new Map([...flags.values].filter(([name]) => name !== "imatrix")));
      try {
        const { options } = await withTypes(source, request, await quantizeOptions(own), own, io);
        const { tensors } = planFor(source, options);
        sizes.set(step.outputs[0], tensors.reduce((n, t) => n + t.bytes, 0));
        sizes.set(files.original, tensors.reduce((n, t) => n + t.sourceBytes, 0));
      } catch (error) {
        unknown(step.outputs[0], error);
      }
    }
  } catch (error) {
    unknown("what is made", error);
  }
  return sizes;
}

function isThere(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

function planTable(plan: readonly PlannedStep[]): string {
  const size = (n: number) => n === 0 ? "?" : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`;
  const rows = plan.map(({ step, state, read, written, seconds, measured }) => [
    step.id,
    state,
    size(read),
    step.outputs.length === 0 ? "-" : size(written),
    state === "done"
      ? "-"
      : `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s${measured ? "" : " (a guess)"}`,
  ]);
  const table = [["step", "state", "reads", "writes", "takes about"], ...rows];
  const widths = table[0].map((_, i) => Math.max(...table.map((r) => r[i].length)));
  return table.map((r) => r.map((cell, i) => cell.padEnd(widths[i])).join("  ").trimEnd() + "\n").join("");
}

const EXAMPLE = `{
  "name": "model", "source": "./checkpoint", "out": "./out",
  "imatrix": {"file": "model.imatrix.gguf"},
  "measure": {"texts": ["calibration.txt"], "chunks": 16},
  "quantize": ["Q8_0", "Q4_K_M", {"budget": "3.2bpw"}, {"type": "IQ2_M", "name": "IQ2_M-mixed", "tensor_types": ["attn_v=q4_K"]}],
  "splice": [{"name": "Q4_K_M-head", "base": "Q4_K_M", "donor": "Q8_0", "take": ["output.weight"]}],
  "eval": {"texts": ["english.txt"], "window": 512, "max_kl": 0.2},
  "card": {"license": "apache-2.0", "base_model": "owner/model"},
  "upload": {"hub": "owner/model-GGUF"}
}`;

/** @param commands All of them: steps are commands. */
export function pipeline(commands: () => readonly Command[]): Command {
  return {
    name: "pipeline",
    summary: "Prepare, quantize, evaluate and publish a model, by a recipe",
    arguments: [{ name: "recipe", help: "JSON file that says what to make" }],
    flags: [
      { name: "dry-run", type: "bool", help: "print steps, bytes and predicted times; run and write nothing" },
      { name: "follow", type: "bool", help: "prepare files of the checkpoint as they finish arriving" },
      { name: "hf", type: "bool", help: "quantize the checkpoint itself, without a GGUF file in between" },
      {
        name: "room",
        type: "string",
        value: "SIZE",
        help: "most memory for rows in prepare and quantize, such as 512M",
      },
      COMMON.device,
      COMMON.threads,
      ...HUB_FLAGS.filter((f) => f.name === "hf-token" || f.name === "hf-endpoint"),
      COMMON.config,
      { ...COMMON.json, help: "print one JSON object a line on stdout: each step that was done, then the result" },
      COMMON.quiet,
    ],
    epilog: `A recipe; paths lead from its folder, "out" has to be there or is made:\n${EXAMPLE}\n\n` +
      'Steps whose inputs and settings are those of the last run are not run again. "upload" may have "command" in place of ' +
      '"hub":\nwords of a program that is run for each file, {file}, {name} and {sha256} in them. "direct": true is --hf.\n' +
      "Run the same command again to continue a run that was stopped or killed.",
    async run({ args, flags, io }) {
      const { parseRecipe } = await import("../pipeline/recipe.ts");
      const { planSteps, recipeFiles } = await import("../pipeline/steps.ts");
      const { PipelineState } = await import("../pipeline/state.ts");
      const { planRun, runPipeline } = await import("../pipeline/runner.ts");
      const recipe = parseRecipe(readText(args[0]), args[0]);
      const direct = flags.bool("hf") || recipe.direct, follow = flags.bool("follow");
      const gguf = recipe.source.endsWith(".gguf");
      if (follow && (direct || gguf)) {
        throw new UsageError(
          "usage.arguments",
          `Cannot use --follow: ${gguf ? "the source is a GGUF file" : "with --hf there is no prepare step"}`,
          {
            hint: "leave out --follow",
          },
        );
      }
      if (direct && gguf) {
        throw new UsageError("usage.arguments", "Cannot use --hf: the source of the recipe is a GGUF file", {
          hint: "leave out --hf",
        });
      }
      if (direct && recipe.measure !== undefined) {
        throw new UsageError("usage.arguments", "Cannot use --hf: the recipe has measure, which needs a GGUF file", {
          hint: "leave out --hf",
        });
      }
      const files = recipeFiles(recipe, direct);
      const steps = planSteps(recipe, {
        direct,
        follow,
        room: flags.str("room"),
        device: deviceName(flags),
        threads: Math.max(0, flags.num("threads")!),
      });
      // Words of every step are checked before the first one runs.
      for (const step of steps) if (step.argv !== undefined && step.kind !== "imatrix") parsed(step.argv, commands());
      const dryRun = flags.bool("dry-run"), json = flags.bool("json");
      if (!dryRun) Deno.mkdirSync(recipe.out, { recursive: true });
      const state = PipelineState.open(recipe.out);
      if (dryRun) {
        const plan = planRun(steps, state, VERSION, await predictedSizes(recipe, files, steps, commands(), io));
        if (json) {
          io.json({
            schema: "bloomery.pipeline_plan/1",
            steps: plan.map(({ step, ...rest }) => ({
              id: step.id,
              inputs: step.inputs,
              outputs: step.outputs,
              ...rest,
            })),
          });
        } else io.out(planTable(plan));
        return EXIT.done;
      }
      io.ifInterrupted("stopped; run the same command to continue");
      const run = { recipe, files, state, version: VERSION, flags, io, commands: commands() };
      try {
        const ran = await runPipeline(steps, state, VERSION, (of) => runSteps(run, of), (step, ran) => {
          if (json) io.json({ event: "step", id: step.id, ran, outputs: step.outputs });
          else io.note(`${step.id}: ${ran ? "done" : "nothing to do"}`);
        });
        const made = [...files.models.values(), files.manifest, files.card];
        if (json) io.json({ schema: "bloomery.pipeline/1", ran: ran.map((s) => s.id), files: made });
        else io.out(`${ran.length} of ${steps.length} steps were run; ${files.manifest}\n`);
        return EXIT.done;
      } catch (error) {
        if (!(error instanceof ThresholdNotMet)) throw error;
        io.error(error.message);
        return EXIT.threshold;
      }
    },
  };
}
