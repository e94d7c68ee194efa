/**
 * Opens the model that a command's flags name, with a loading bar.
 * @module
 */
import type { OpenedModel } from "../ffi/mod.ts";
import type { CacheType } from "../core/plan/plan.ts";
import type { Flags } from "./command.ts";
import type { Io } from "./io.ts";

/** Flags: `MODEL_FLAGS`. `n_seq`: sequences that share the cache, each with the whole context. */
export async function openModelFromFlags(
  flags: Flags,
  io: Io,
  options: { path?: string; n_cache?: number; n_ctx?: number } = {},
): Promise<OpenedModel> {
  const { openModel } = await import("../ffi/mod.ts");
  const path = options.path ?? flags.str("model")!;
  const n_ctx = options.n_ctx ?? flags.num("ctx-size");
  let bar: ReturnType<Io["bar"]> | undefined;
  const start = performance.now();
  const opened = await openModel(path, {
    device: flags.str("device") ?? "auto",
    threads: flags.num("threads") ?? 0,
    ...(n_ctx === undefined ? {} : { n_ctx }),
    ...(options.n_cache === undefined ? {} : { n_cache: options.n_cache }),
    n_ubatch: flags.num("ubatch-size") ?? 512,
    cacheTypeK: (flags.str("cache-type-k") ?? "f16") as CacheType,
    cacheTypeV: (flags.str("cache-type-v") ?? "f16") as CacheType,
    onProgress: (done, total) => (bar ??= io.bar("load", total, "B")).update(done),
  });
  bar?.stop();
  for (const w of opened.model.tokenizer.warnings) io.warn(w);
  io.note(`loaded ${path} on ${opened.device.name} in ${((performance.now() - start) / 1000).toFixed(2)} s`);
  return opened;
}
