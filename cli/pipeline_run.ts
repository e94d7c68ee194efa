/**
 * What the steps of a pipeline do: commands of this program, run in this process, and what no command does.
 * @module
 */
import { BloomeryError, UsageError } from "../core/errors.ts";
import type { Row } from "../eval/compare.ts";
import type { Recipe } from "../pipeline/recipe.ts";
import type { QuantizeTarget } from "../quantize/quantize_many.ts";
import type { PipelineState } from "../pipeline/state.ts";
import type { RecipeFiles, Step } from "../pipeline/steps.ts";
import { type Command, EXIT, type Flags } from "./command.ts";
import type { Io } from "./io.ts";
import { withTypes, writeTypes } from "./budget.ts";
import { openEncoders, openSource, quantizeArguments, quantizeOptions, type QuantizeRequest } from "./quantize.ts";
import { parseArgs } from "./parse.ts";
import { parseSize } from "./size.ts";

/** A step ended with the exit code of a threshold that was not met. */
export class ThresholdNotMet extends Error {}

/** What steps need to know of their run. */
export interface PipelineRun {
  readonly recipe: Recipe;
  readonly files: RecipeFiles;
  readonly state: PipelineState;
  readonly version: string;
  readonly flags: Flags;
  readonly io: Io;
  readonly commands: readonly Command[];
}

/** The command and flags of a step's words, as the command line would have them. */
function invocation(run: PipelineRun, step: Step, argv: readonly string[]) {
  const parsed = parseArgs(argv, run.commands, "");
  if (parsed.kind !== "run") throw new Error(`the words of ${step.id} are no command: ${argv.join(" ")}`);
  return parsed;
}

/** The same words without `--resume`, for a step whose unfinished files are of other settings. */
const anew = (argv: readonly string[]) => argv.filter((word) => word !== "--resume");

const isOther = (error: unknown) => error instanceof BloomeryError && error.code === "quantize.resume";

/** Words of a step that left something of other settings behind; undefined where that is not why it failed. */
function afresh(argv: readonly string[], error: unknown): readonly string[] | undefined {
  if (isOther(error)) return anew(argv);
  const mismatch = error instanceof BloomeryError && error.code === "quantize.resume_mismatch";
  return mismatch ? [...argv, "--restart"] : undefined;
}

/** Runs a command. What it prints as its result goes to the step's first output where `keep` says so. */
async function runCommand(run: PipelineRun, step: Step, argv: readonly string[], keep: boolean): Promise<void> {
  const { command, args, flags } = invocation(run, step, argv);
  let printed = "";
  const io: Io = {
    ...run.io,
    out: (text) => void (printed += text),
    json: (value) => void (printed += JSON.stringify(value) + "\n"),
    note: (line) => run.io.note(`${step.id}: ${line}`),
    ifInterrupted: () => run.io.ifInterrupted("stopped; run the same command to continue"),
    signal: run.io.signal,
  };
  const code = await command.run({ args, flags, io });
  if (keep) {
    Deno.writeTextFileSync(`${step.outputs[0]}.partial`, printed);
    Deno.renameSync(`${step.outputs[0]}.partial`, step.outputs[0]);
  }
  if (code === EXIT.threshold) throw new ThresholdNotMet(`${step.id}: a threshold was not met`);
  if (code !== EXIT.done) throw new Error(`step ${step.id} ended with ${code}`);
}

/** Quantizes to every type that is due, reading the source once. */
async function quantizeTypes(run: PipelineRun, steps: readonly Step[], resume: boolean): Promise<void> {
  const { quantizeMany } = await import("../quantize/quantize_many.ts");
  const { planFor } = await import("../quantize/quantize.ts");
  const parsed = steps.map((step) => invocation(run, step, resume ? step.argv! : anew(step.argv!)));
  const { io } = run, requests: QuantizeRequest[] = [], targets: QuantizeTarget[] = [];
  for (const { args, flags } of parsed) {
    const hf = flags.str("hf");
    requests.push(await quantizeArguments(hf === undefined ? args : [hf, ...args], flags));
  }
  using _hold = io.hold();
  const { flags } = parsed[0];
  using source = await openSource(requests[0].input, flags);
  for (const w of source.warnings) io.warn(w);
  for (const [i, { flags }] of parsed.entries()) {
    const asked = await quantizeOptions(flags, (text) => io.warn(text));
    const { options, chosen } = await withTypes(source, requests[i], asked, flags, io);
    if (chosen) await writeTypes(chosen, requests[i], flags, io);
    targets.push({ output: requests[i].output, options });
  }
  // A device is worth its start for the type that has the most to encode; all types share it.
  const { backend, device } = await openEncoders(
    flags.str("device") ?? "auto",
    requests[0].threads,
    () => planFor(source, targets[0].options),
  );
  using _ = backend;
  const total = source.tensors.length * targets.length;
  const bar = io.bar("quantize", total, "it");
  const whole = targets.map(() => 0);
  const room = flags.str("room");
  const results = await quantizeMany(
    source,
    targets.map(({ output, options }, i) => ({
      output,
      options: {
        ...options,
        device,
        signal: io.signal,
        onProgress: (p) => {
          whole[i] = p.index + (p.whole ? 1 : 0);
          bar.update(whole.reduce((a, b) => a + b));
        },
      },
    })),
    backend,
    room === undefined ? undefined : parseSize(room, "room"),
  ).finally(() => bar.stop());
  results.forEach((r, i) => {
    for (const w of r.warnings.slice(source.warnings.length)) io.warn(`${steps[i].id}: ${w}`);
  });
}

/** The figures of a report, over all its texts. */
function figuresOf(path: string | undefined): Row | undefined {
  return path === undefined ? undefined : (JSON.parse(Deno.readTextFileSync(path)).rows as Row[]).at(-1);
}

async function writeManifest(run: PipelineRun): Promise<void> {
  const { makeCard, makeManifest } = await import("../pipeline/manifest.ts");
  const { recipe, files, state, version } = run;
  const manifest = makeManifest(
    recipe,
    version,
    files.models,
    (path) => state.mark(path)!,
    (name) => figuresOf(files.reports.get(name)?.json),
  );
  for (
    const [path, text] of [[files.manifest, JSON.stringify(manifest, null, 2) + "\n"], [
      files.card,
      makeCard(recipe, manifest),
    ]]
  ) {
    Deno.writeTextFileSync(`${path}.partial`, text);
    Deno.renameSync(`${path}.partial`, path);
  }
}

const fileName = (path: string) => path.split("/").at(-1)!;

/** Runs a command of the user's for a file: `{file}`, `{name}` and `{sha256}` in its words stand for the file's. */
async function uploadByCommand(file: string, sha256: string, template: readonly string[]): Promise<void> {
  const values: Record<string, string> = { file, name: fileName(file), sha256 };
  const [program, ...args] = template.map((word) => word.replace(/\{(file|name|sha256)\}/g, (_, key) => values[key]));
  const refuse = (what: string, cause?: unknown) =>
    new UsageError("usage.upload", `Cannot upload ${file}: ${program} ${what}`, {
      at: { file, command: [program, ...args] },
      hint: "run the same pipeline again once the command works",
      ...(cause === undefined ? {} : { cause }),
    });
  const command = new Deno.Command(program, { args, stdin: "null", stdout: "null", stderr: "piped" });
  const { code, stderr } = await command.output().catch((cause) => {
    throw refuse("cannot be started", cause);
  });
  if (code === 0) return;
  const said = new TextDecoder().decode(stderr).trim().split("\n").at(-1);
  throw refuse(`ended with ${code}${said ? `, ${said}` : ""}`);
}

async function upload(run: PipelineRun, step: Step): Promise<void> {
  const { recipe: { upload, name }, flags, io, state } = run;
  if (upload === undefined) throw new Error("a recipe without upload has no such step");
  if ("command" in upload) {
    const [file] = step.inputs;
    return await uploadByCommand(file, state.mark(file)!.sha256, upload.command);
  }
  const { uploadFiles } = await import("../hub/upload.ts");
  using _hold = io.hold();
  let bar: ReturnType<Io["bar"]> | undefined;
  const { commit } = await uploadFiles(
    step.inputs.map((path) => ({ path, name: fileName(path), sha256: state.mark(path)?.sha256 })),
    {
      endpoint: flags.str("hf-endpoint")!,
      token: flags.str("hf-token"),
      repo: upload.hub,
      revision: upload.revision,
      private: upload.private,
      summary: `${name}: ${run.files.models.size} quantizations`,
      signal: io.signal,
      onRetry: (text) => io.note(text),
      onProgress: (p) => (bar ??= io.bar("upload", p.total, "B")).update(p.done),
    },
  ).finally(() => bar?.stop());
  io.note(`upload: ${commit}`);
}

/** Runs steps that belong together: one, or quantizations of one source. */
export async function runSteps(run: PipelineRun, steps: readonly Step[]): Promise<void> {
  const [step] = steps;
  if (step.kind === "quantize") {
    return await quantizeTypes(run, steps, true).catch((error) => {
      if (isOther(error)) return quantizeTypes(run, steps, false);
      throw error;
    });
  }
  if (step.kind === "manifest") return await writeManifest(run);
  if (step.kind === "upload") return await upload(run, step);
  const keep = step.kind === "eval";
  await runCommand(run, step, step.argv!, keep).catch((error) => {
    const words = afresh(step.argv!, error);
    if (words === undefined) throw error;
    return runCommand(run, step, words, keep);
  });
}
