/**
 * Model files for tests, made once per process from the checkpoint in the repository.
 * @module
 */
import { gunzipSync } from "node:zlib";
import { openBackend } from "../ffi/mod.ts";
import { type Outtype, prepare } from "../quantize/prepare/mod.ts";
import { repoDir } from "./shared.ts";

const made = new Map<string, Promise<string>>();
let folder: string | undefined;

/** A folder that goes when the process ends. */
export function testFolder(): string {
  if (folder === undefined) {
    const path = folder = Deno.makeTempDirSync({ prefix: "bloomery-test-" });
    globalThis.addEventListener("unload", () => Deno.removeSync(path, { recursive: true }));
  }
  return folder;
}

/** Path of bloom-nano as a GGUF file of an outtype. */
export function bloomNano(outtype: Outtype): Promise<string> {
  return preparedModel(`${repoDir}models/bloom-nano`, outtype);
}

/** Path of a checkpoint as a GGUF file of an outtype. */
export function preparedModel(checkpoint: string, outtype: Outtype): Promise<string> {
  const key = `${checkpoint},${outtype}`;
  let path = made.get(key);
  if (!path) {
    const out = `${testFolder()}/${checkpoint.split("/").at(-1)}-${outtype}.gguf`;
    made.set(key, path = make(checkpoint, out, outtype));
  }
  return path;
}

async function make(checkpoint: string, out: string, outtype: Outtype): Promise<string> {
  if (outtype !== "q8_0") await prepare(checkpoint, out, { outtype });
  else {
    using opened = openBackend("cpu");
    await prepare(checkpoint, out, { outtype, quantize: (job) => opened.backend.quantize(job) });
  }
  return out;
}

/** A prompt of the reference with what a float32 implementation gave for it. */
export interface ReferencePrompt {
  readonly ids: number[];
  /** `[n - 1]` log-probability of token i + 1 at position i. */
  readonly next_logprob: number[];
  /** `[n_vocab]` at the last position. */
  readonly logits_last: number[];
  readonly greedy_ids: number[];
  readonly greedy_first_stop: number;
  /** Best minus second logit at each greedy step. */
  readonly greedy_margins: number[];
}

/** Prompts of `tests/goldens/reference`. */
export function referencePrompts(): Record<string, ReferencePrompt> {
  const bytes = gunzipSync(Deno.readFileSync(`${repoDir}tests/goldens/reference/bloom-nano.json.gz`));
  return JSON.parse(new TextDecoder().decode(bytes)).prompts;
}
