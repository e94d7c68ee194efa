/**
 * The plan: where each weight and the cache live, decided from headers and the devices' free bytes before anything is
 * loaded. It prints itself, and refuses by name with every term of the sum when it does not fit.
 * @module
 */
import { PlanError } from "../errors.ts";
import { type GgmlType, ggmlType, rowBytes } from "../gguf/types.ts";
import type { DeviceInfo } from "../program/backend.ts";
import type { Model } from "../engine/model.ts";

/** Types a cache stream can have. */
export type CacheType = "f32" | "f16" | "q8_0";

export interface PlanOptions {
  readonly device: DeviceInfo;
  /** The most tokens of one sequence. */
  readonly n_ctx: number;
  /** Tokens the cache holds over all sequences. */
  readonly n_cache: number;
  readonly n_ubatch: number;
  readonly page_size: number;
  readonly cacheTypeK: CacheType;
  readonly cacheTypeV: CacheType;
}

/** What a model takes on a device. */
export interface Plan {
  /** Which one. */
  readonly device: DeviceInfo;
  /** Bytes of each weight as the file has it. */
  readonly weights: readonly { readonly name: string; readonly type: GgmlType; readonly bytes: number }[];
  /** Of all weights. */
  readonly weight_bytes: number;
  /** Pages of keys and values. */
  readonly cache: {
    readonly streams: readonly { readonly type: GgmlType; readonly ne: number }[];
    readonly page_size: number;
    readonly n_pages: number;
    readonly bytes: number;
  };
  /** An estimate; the library lays the arena out and says the real size. */
  readonly scratch_bytes: number;
  /** Of everything. */
  readonly total_bytes: number;
}

/** `1.5 GiB` */
export function formatBytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? n : n.toFixed(1)} ${units[i]}`;
}

/**
 * Plans one model on one device.
 * @throws {PlanError} `plan.cache_type` when a head does not divide into the cache type's blocks; `plan.does_not_fit`
 */
export function planModel(model: Model, options: PlanOptions): Plan {
  const { spec } = model;
  const weights = [...model.tensors.values()].map((t) => ({
    name: t.name,
    type: t.type,
    bytes: t.ne.slice(1).reduce((n, d) => n * d, rowBytes(t.type, t.ne[0])),
  }));
  const weight_bytes = weights.reduce((sum, w) => sum + w.bytes, 0);

  const streams = model.arch.streams(spec).flatMap(({ k, v }) => [
    { type: ggmlType(options.cacheTypeK), ne: k },
    { type: ggmlType(options.cacheTypeV), ne: v },
  ]);
  for (const s of streams) {
    if (s.ne % s.type.block === 0) continue;
    throw new PlanError(
      "plan.cache_type",
      `Cannot keep the cache in ${s.type.name}: a row has ${s.ne} elements, expected a multiple of ${s.type.block}`,
      {
        at: { type: s.type.name, got: s.ne, expected: s.type.block },
        hint: "use --cache-type-k f16 --cache-type-v f16",
      },
    );
  }
  const n_pages = Math.ceil(options.n_cache / options.page_size);
  const cache_bytes = streams.reduce((sum, s) => sum + rowBytes(s.type, s.ne), 0) * n_pages * options.page_size;

  // Live at once in the widest place: residual, normed input, and the widest pair of a layer, or a row of logits.
  const widest = Math.max(2 * spec.n_head * spec.head_dim + 2 * spec.n_embd, 6 * spec.n_embd);
  const scratch_bytes = 4 * (options.n_ubatch * (2 * spec.n_embd + 3 * widest) + options.n_ubatch * spec.n_vocab);

  const total_bytes = weight_bytes + cache_bytes + scratch_bytes;
  const plan: Plan = {
    device: options.device,
    weights,
    weight_bytes,
    cache: { streams, page_size: options.page_size, n_pages, bytes: cache_bytes },
    scratch_bytes,
    total_bytes,
  };
  if (total_bytes > options.device.free_bytes) {
    throw new PlanError(
      "plan.does_not_fit",
      `Cannot place ${model.file.name} on ${options.device.name}: weights ${formatBytes(weight_bytes)} + cache ${
        formatBytes(cache_bytes)
      } (${n_pages * options.page_size} tokens) + scratch ${formatBytes(scratch_bytes)} = ${
        formatBytes(total_bytes)
      }, free are ${formatBytes(options.device.free_bytes)}`,
      {
        at: { weight_bytes, cache_bytes, scratch_bytes, total_bytes, free_bytes: options.device.free_bytes },
        hint: "use a smaller --ctx-size, a q8_0 cache, a smaller quantization, or another --device",
      },
    );
  }
  return plan;
}

/** The plan as lines of text. */
export function describePlan(plan: Plan): string {
  const types = new Map<string, { n: number; bytes: number }>();
  for (const w of plan.weights) {
    const t = types.get(w.type.name) ?? { n: 0, bytes: 0 };
    types.set(w.type.name, { n: t.n + 1, bytes: t.bytes + w.bytes });
  }
  const lines = [
    `device   ${plan.device.name} (${plan.device.kind}), ${formatBytes(plan.device.free_bytes)} free`,
    `weights  ${formatBytes(plan.weight_bytes)}: ${
      [...types].map(([name, t]) => `${t.n} ${name} ${formatBytes(t.bytes)}`).join(", ")
    }`,
    `cache    ${formatBytes(plan.cache.bytes)}: ${plan.cache.n_pages} pages of ${plan.cache.page_size} tokens, ${
      [...new Set(plan.cache.streams.map((s) => s.type.name))].join("/")
    }`,
    `scratch  ${formatBytes(plan.scratch_bytes)} at most`,
    `total    ${formatBytes(plan.total_bytes)}`,
  ];
  return lines.join("\n");
}
