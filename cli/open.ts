/**
 * Opens the model that a command's flags name, with a loading bar.
 * @module
 */
import { withAdapters } from "../core/arch/adapter.ts";
import type { ModelSource } from "../core/arch/mod.ts";
import type { LanguageModel } from "../core/language_model.ts";
import type { OpenedModel } from "../ffi/mod.ts";
import type { CacheType } from "../core/plan/cache.ts";
import { describePlan, shortPlan } from "../core/plan/describe.ts";
import type { Backend } from "../core/program/backend.ts";
import { adapterPaths, controlOf, openAdapters } from "./adapter_flags.ts";
import type { Flags } from "./command.ts";
import type { Io } from "./io.ts";
import { modelPath, openSource } from "./model_file.ts";
import { overrideMetadata } from "./override_kv.ts";
import { placementOf } from "./place_flags.ts";

/** A device in our spelling; llama.cpp says `none` and `CUDA0`. */
export function deviceSpelling(name: string): string {
  return name.split(",").map((one) => {
    const card = /^cuda(\d+)$/i.exec(one);
    return one === "none" ? "cpu" : card ? `cuda:${card[1]}` : one;
  }).join(",");
}

/** The device that the flags name, in our spelling. */
export function deviceName(flags: Flags): string {
  const name = flags.str("device") ?? "auto", place = flags.str("place");
  if (name !== "auto") return deviceSpelling(name);
  if (place === "host" || flags.num("n-gpu-layers") === 0) return "cpu";
  if (flags.str("split-mode") === "none") return `cuda:${flags.num("main-gpu") ?? 0}`;
  return place === "card" ? "cuda" : name;
}

/** Host threads that the flags ask for; 0 is one per core. */
export function threadsOf(flags: Flags, io: Io): number {
  const threads = Math.max(0, flags.num("threads") ?? 0);
  const cores = navigator.hardwareConcurrency;
  if (threads > cores) io.warn(`--threads ${threads} is more than the ${cores} cores of this machine: that is slower`);
  return threads;
}

/** Tokens of context that the flags ask for; undefined leaves it to the model. */
export function contextOf(flags: Flags): number | undefined {
  return flags.num("ctx-size") || undefined;
}

/** What a command asks for besides the flags. */
export interface OpenOptions {
  path?: string;
  /** Tokens the cache holds over all sequences. */
  n_cache?: number;
  n_ctx?: number;
  contexts?: number;
  n_seq?: number;
  /** Slots of experts, where the room is not to decide. */
  slots?: number;
  /** Output rows of one native step; default: any number of them. */
  n_out?: number;
  /** Candidates of a row. */
  topK?: number;
  /** Adapters wait for someone to say how much of each is used. */
  adaptersOff?: boolean;
  /** Weights whose inputs the engine sums up. */
  collect?: (weight: string) => boolean;
  /** Checks of the command that need no weights: a user should not wait for a model to load and then read an error. */
  beforeWeights?: (model: LanguageModel) => void | Promise<void>;
}

/** A model's headers as the flags change them, with those of its adapters. Flags: `MODEL_FLAGS`. */
export async function openConfigured(path: string, flags: Flags, io: Io, backend?: Backend): Promise<ModelSource> {
  const source = await openSource(path, io, backend);
  try {
    for (const set of overrideMetadata(source.metadata, flags.strs("override-kv"))) io.note(`--override-kv: ${set}`);
    return withAdapters(source, await openAdapters(adapterPaths(flags)), await controlOf(flags));
  } catch (error) {
    source.close();
    throw error;
  }
}

/** Flags: `MODEL_FLAGS`. */
export async function openModelFromFlags(flags: Flags, io: Io, options: OpenOptions = {}): Promise<OpenedModel> {
  const { openModel } = await import("../ffi/mod.ts");
  const path = options.path ?? await modelPath(flags, io);
  const n_ctx = options.n_ctx ?? contextOf(flags);
  let bar: ReturnType<Io["bar"]> | undefined;
  const start = performance.now();
  const opened = await openModel((backend) => openConfigured(path, flags, io, backend), {
    // Only the host sums up inputs: that is what `auto` means then.
    device: options.collect && deviceName(flags) === "auto" ? "cpu" : deviceName(flags),
    threads: threadsOf(flags, io),
    ...(n_ctx === undefined ? {} : { n_ctx }),
    ...(options.n_cache === undefined ? {} : { n_cache: options.n_cache }),
    ...(options.contexts === undefined ? {} : { contexts: options.contexts }),
    ...(options.n_out === undefined ? {} : { n_out: options.n_out }),
    ...(options.n_seq === undefined ? {} : { n_seq: options.n_seq }),
    ...await placementOf(flags),
    adapters: options.adaptersOff ? [] : adapterPaths(flags).map((a) => a.scale),
    ...(options.slots === undefined ? {} : { slots: options.slots }),
    ...(options.topK === undefined ? {} : { topK: options.topK }),
    ...(options.collect === undefined ? {} : { collect: options.collect }),
    n_ubatch: flags.num("ubatch-size") ?? 512,
    cacheTypeK: (flags.str("cache-type-k") ?? "f16") as CacheType,
    cacheTypeV: (flags.str("cache-type-v") ?? "f16") as CacheType,
    ...(options.beforeWeights === undefined ? {} : { beforeWeights: options.beforeWeights }),
    onWarning: (text) => io.warn(text),
    onProgress: (done, total) => (bar ??= io.bar("load", total, "B")).update(done),
  });
  bar?.stop();
  const { engine, tokenizer } = opened.model;
  for (const w of tokenizer.warnings) io.warn(w);
  if (engine.contextReason !== undefined) io.note(`context of ${engine.n_ctx} tokens: ${engine.contextReason}`);
  const { n_ctx_train } = engine.spec;
  if (engine.n_ctx > n_ctx_train) {
    io.warn(
      `a context of ${engine.n_ctx} tokens is beyond the ${n_ctx_train} that the model was trained for: ` +
        "answers get worse there",
    );
  }
  if (engine.residency?.stats.direct === false) {
    io.warn(
      `the file system of ${path} refuses direct reads: experts are read through the page cache, which costs memory`,
    );
  }
  if (!flags.bool("verbose")) io.note(shortPlan(engine.plan));
  else {
    io.note(describePlan(engine.plan));
    const settings = [...flags.origins].filter(([, origin]) => origin === "env" || origin === "config");
    const shown = settings.map(([name, origin]) =>
      `--${name} from ${origin === "env" ? "the environment" : "--config"}`
    );
    if (shown.length > 0) io.note(`set: ${shown.join(", ")}`);
  }
  const on = [...new Set(engine.plan.devices.map((d) => d.device.name))].join(" and ");
  io.note(`loaded ${path} on ${on} in ${((performance.now() - start) / 1000).toFixed(2)} s`);
  return opened;
}
