/**
 * What a pipeline has done, in a file beside its outputs, and what a file's content is. A step is done when its key is that of
 * the last run and its outputs are as that run left them.
 *
 * The hash of a large file is that of its size, its time and samples of it: a checkpoint of terabytes is not read for that alone.
 * Outputs are hashed whole, once.
 * @module
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { UsageError } from "../core/errors.ts";
import type { Step, StepKind } from "./steps.ts";

const SCHEMA = "bloomery.pipeline_state/1";
/** Inputs up to this size are hashed whole. */
const WHOLE = 64 * 2 ** 20;
const SAMPLES = 64, SAMPLE = 64 * 2 ** 10;
const CHUNK = 4 * 2 ** 20;

const fileSchema = z.strictObject({ path: z.string(), size: z.number(), mtime: z.number(), sha256: z.string() });
const stateSchema = z.strictObject({
  schema: z.literal(SCHEMA),
  steps: z.record(
    z.string(),
    z.strictObject({
      key: z.string(),
      outputs: z.array(fileSchema),
      seconds: z.number(),
      /** Bytes of inputs and outputs, for the prediction of times. */
      bytes: z.number(),
    }),
  ),
});

type State = z.infer<typeof stateSchema>;
/** A file as it was when a step ended. */
export type FileMark = z.infer<typeof fileSchema>;

const markOf = (stat: Deno.FileInfo) => ({ size: stat.size, mtime: stat.mtime?.getTime() ?? 0 });

function statOf(path: string): Deno.FileInfo | undefined {
  try {
    return Deno.statSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** SHA-256 of a file, read once from start to end. */
export function sha256Of(path: string): string {
  using file = Deno.openSync(path);
  const hash = createHash("sha256"), buffer = new Uint8Array(CHUNK);
  for (let n = file.readSync(buffer); n !== null; n = file.readSync(buffer)) hash.update(buffer.subarray(0, n));
  return hash.digest("hex");
}

/** Of a large file: size, time and pieces of it. */
function sampledOf(path: string, stat: Deno.FileInfo): string {
  using file = Deno.openSync(path);
  const hash = createHash("sha256").update(JSON.stringify(markOf(stat))), buffer = new Uint8Array(SAMPLE);
  for (let i = 0; i < SAMPLES; i++) {
    file.seekSync(Math.floor((stat.size - SAMPLE) * i / (SAMPLES - 1)), Deno.SeekMode.Start);
    for (let at = 0; at < SAMPLE;) at += file.readSync(buffer.subarray(at)) ?? SAMPLE;
    hash.update(buffer);
  }
  return `sampled ${hash.digest("hex")}`;
}

/** Files of a folder with their paths in it, in order; those that are still arriving have other names. */
function* filesOf(folder: string, within = ""): Generator<string> {
  const entries = [...Deno.readDirSync(`${folder}/${within}`)].sort((a, b) => a.name < b.name ? -1 : 1);
  for (const { name, isDirectory } of entries) {
    if (name.startsWith(".")) continue;
    if (isDirectory) yield* filesOf(folder, `${within}${name}/`);
    else yield `${within}${name}`;
  }
}

/** What has been done, kept on the disk. */
export class PipelineState {
  readonly #path: string;
  readonly #state: State;
  /** Hashes of this run, by path, size and time. */
  readonly #known = new Map<string, string>();

  private constructor(path: string, state: State) {
    this.#path = path;
    this.#state = state;
    for (const { outputs } of Object.values(state.steps)) {
      for (const { path, size, mtime, sha256 } of outputs) this.#known.set(JSON.stringify([path, size, mtime]), sha256);
    }
  }

  /** Reads the state of a folder; none where there is no file. @throws {UsageError} `usage.pipeline_state` */
  static open(folder: string): PipelineState {
    const path = `${folder}/pipeline.state.json`;
    if (statOf(path) === undefined) return new PipelineState(path, { schema: SCHEMA, steps: {} });
    const refuse = (what: string) =>
      new UsageError("usage.pipeline_state", `Cannot use ${path}: ${what}`, {
        at: { file: path },
        hint: "remove the file to run every step again",
      });
    let value: unknown;
    try {
      value = JSON.parse(Deno.readTextFileSync(path));
    } catch (error) {
      if (error instanceof SyntaxError) throw refuse(error.message);
      throw error;
    }
    const parsed = stateSchema.safeParse(value);
    if (!parsed.success) {
      throw refuse(`field "${parsed.error.issues[0].path.join(".")}": ${parsed.error.issues[0].message}`);
    }
    return new PipelineState(path, parsed.data);
  }

  #hash(path: string, stat: Deno.FileInfo): string {
    const { size, mtime } = markOf(stat);
    const key = JSON.stringify([path, size, mtime]);
    let hash = this.#known.get(key);
    if (hash === undefined) this.#known.set(key, hash = size <= WHOLE ? sha256Of(path) : sampledOf(path, stat));
    return hash;
  }

  /** The content of a file or folder as a hash; undefined where it is not there. */
  contentOf(path: string): string | undefined {
    const stat = statOf(path);
    if (stat === undefined) return undefined;
    if (!stat.isDirectory) return this.#hash(path, stat);
    const hash = createHash("sha256");
    for (const name of filesOf(path)) {
      hash.update(JSON.stringify([name, this.#hash(`${path}/${name}`, Deno.statSync(`${path}/${name}`))]));
    }
    return hash.digest("hex");
  }

  /** The key of a step; undefined while an input is not there. */
  keyOf(step: Step, version: string): string | undefined {
    const contents = step.inputs.map((path) => this.contentOf(path));
    if (contents.includes(undefined)) return undefined;
    return createHash("sha256").update(JSON.stringify([version, step.kind, step.settings, contents])).digest("hex");
  }

  /** Whether a step with this key has been done and its outputs are as it left them. */
  isDone(step: Step, key: string): boolean {
    const done = this.#state.steps[step.id];
    if (done?.key !== key || done.outputs.length !== step.outputs.length) return false;
    return step.outputs.every((path, i) => {
      const stat = statOf(path), was = done.outputs[i];
      if (stat === undefined || was.path !== path || stat.size !== was.size) return false;
      return markOf(stat).mtime === was.mtime || sha256Of(path) === was.sha256;
    });
  }

  /** Notes that a step is done. Its outputs are hashed. */
  record(step: Step, key: string, seconds: number, bytes: number): void {
    const outputs = step.outputs.map((path): FileMark => {
      const mark = { path, ...markOf(Deno.statSync(path)), sha256: sha256Of(path) };
      this.#known.set(JSON.stringify([path, mark.size, mark.mtime]), mark.sha256);
      return mark;
    });
    this.#state.steps[step.id] = { key, outputs, seconds, bytes };
    const partial = `${this.#path}.partial`;
    Deno.writeTextFileSync(partial, JSON.stringify(this.#state, null, 1) + "\n");
    Deno.renameSync(partial, this.#path);
  }

  /** An output as its step left it. */
  mark(path: string): FileMark | undefined {
    return Object.values(this.#state.steps).flatMap((s) => s.outputs).find((o) => o.path === path);
  }

  /** Bytes a second of steps of a kind that were done here; undefined where there are none. */
  rateOf(kind: StepKind): number | undefined {
    const of = Object.entries(this.#state.steps).filter(([id]) => id.split(" ")[0] === kind).map(([, s]) => s);
    const seconds = of.reduce((n, s) => n + s.seconds, 0), bytes = of.reduce((n, s) => n + s.bytes, 0);
    return seconds > 0 && bytes > 0 ? bytes / seconds : undefined;
  }
}

/** Bytes of files and folders that are there. */
export function bytesOf(paths: readonly string[]): number {
  return paths.reduce((n, path) => {
    const stat = statOf(path);
    if (stat === undefined) return n;
    if (!stat.isDirectory) return n + stat.size;
    return n + [...filesOf(path)].reduce((sum, name) => sum + Deno.statSync(`${path}/${name}`).size, 0);
  }, 0);
}
