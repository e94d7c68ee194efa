/**
 * Rotary frequencies from metadata. Every scaling rule becomes one table of `n_rot / 2` angles per position and one factor
 * on cos and sin, so that backends know a single rope.
 *
 * Sources: RoFormer (arXiv 2104.09864); YaRN (arXiv 2309.00071); llama.cpp's `rope.scaling.*` keys.
 * @module
 */
import { ModelError } from "../errors.ts";
import type { Keys, ModelFile } from "./keys.ts";

export interface Rope {
  /** `[n_rot / 2]` radians per position. */
  readonly inv_freq: Float32Array;
  /** Factor on cos and sin. */
  readonly mscale: number;
}

/** `theta^(-2i/d)`, i < d/2 */
function baseFrequencies(n_rot: number, theta: number): Float64Array {
  return Float64Array.from({ length: n_rot / 2 }, (_, i) => theta ** (-2 * i / n_rot));
}

/** The attention factor of YaRN: `1` up to scale 1, `0.1 m ln s + 1` above. */
export function yarnFactor(scale: number, m: number): number {
  return scale <= 1 ? 1 : 0.1 * m * Math.log(scale) + 1;
}

/** Options of a rotary table that a family sets itself. */
export interface RopeOptions {
  /** The base, where it is not `rope.freq_base`. */
  readonly freq_base?: number;
  /** false: the table is not scaled, whatever `rope.scaling.*` says. */
  readonly scaled?: boolean;
  /** The factor on cos and sin, whatever YaRN's keys say. */
  readonly mscale?: number;
  /** Whether the ends of YaRN's ramp are rounded, where the file does not say. */
  readonly truncate?: boolean;
}

/** LongRoPE's divisors (arXiv 2402.13753) up to `rope.scaling.original_context_length`. */
const SHORT_FACTORS = "rope_factors_short.weight";

/** Divisors of the angles: as llama 3 stores its scaling, and LongRoPE. */
const DIVISORS = ["rope_freqs.weight", SHORT_FACTORS];

/**
 * The longest sequence that the angles are right for. LongRoPE has other divisors for longer ones, whose first rows they change
 * too: they are not used, since what a row gives does not depend on the rows behind it.
 */
export function ropeContext(k: Keys, n_ctx: number): number {
  return k.file.has(SHORT_FACTORS) ? Math.min(k.u32("rope.scaling.original_context_length", n_ctx), n_ctx) : n_ctx;
}

function readDivisors(file: ModelFile, name: string, n: number): Float32Array | undefined {
  const tensor = file.find(name);
  if (!tensor) return undefined;
  if (tensor.type.name !== "f32" || tensor.ne[0] !== n) {
    throw new ModelError(
      "model.tensor_shape",
      `Cannot bind "${name}" of ${file.name}: found ${tensor.type.name} [${tensor.ne}], expected f32 [${n}]`,
      { at: { file: file.name, tensor: name, got: tensor.ne, expected: [n] } },
    );
  }
  const bytes = file.readTensor(tensor);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: n }, (_, i) => view.getFloat32(i * 4, true));
}

/**
 * Reads `rope.*` and the optional tensors `DIVISORS`.
 *
 * YaRN follows the released models: `yarn_truncate` false leaves the ramp's ends unrounded.
 *
 * @param n_rot Rotated numbers of a head, even.
 * @throws {ModelError} `model.rope_scaling` for a scaling type that is not known
 */
export function readRope(k: Keys, n_rot: number, options: RopeOptions = {}): Rope {
  const theta = options.freq_base ?? k.f32("rope.freq_base", 10000);
  let freqs = baseFrequencies(n_rot, theta);
  if (options.scaled === false) return { inv_freq: Float32Array.from(freqs), mscale: 1 };
  let mscale = k.f32("rope.scaling.attn_factor", 1);

  const { file } = k;
  for (const name of DIVISORS) {
    const divisors = readDivisors(file, name, n_rot / 2);
    if (divisors) freqs = freqs.map((f, i) => f / divisors[i]);
  }

  const factor = k.f32("rope.scaling.factor", k.f32("rope.scale_linear", 1)) || 1; // 0: none
  // llama.cpp reads a missing type as "linear"; with a factor of 1 that scales nothing.
  const type = k.str("rope.scaling.type", "linear");
  switch (type) {
    case "none":
      break;
    case "longrope":
      if (file.has(SHORT_FACTORS)) break;
      throw new ModelError(
        "model.missing_tensor",
        `Cannot use key "${k.arch}.rope.scaling.type" of ${file.name}: it is "longrope", and tensor "${SHORT_FACTORS}" is missing`,
        { at: { file: file.name, tensor: SHORT_FACTORS } },
      );
    case "linear":
      if (factor !== 1) freqs = freqs.map((f) => f / factor);
      break;
    case "yarn": {
      const yarn = readYarn(k, options.truncate);
      freqs = yarnFrequencies(freqs, theta, yarn);
      mscale *= k.f32("rope.scaling.yarn_attn_factor", 1) * yarnFactor(factor, 1) /
        (yarn.mscale_all_dim === 0 ? 1 : yarnFactor(factor, yarn.mscale_all_dim));
      break;
    }
    default:
      throw new ModelError(
        "model.rope_scaling",
        `Cannot use key "${k.arch}.rope.scaling.type" of ${file.name}: found "${type}", expected none, linear, yarn or longrope`,
        { at: { file: file.name, key: `${k.arch}.rope.scaling.type`, got: type } },
      );
  }
  return { inv_freq: Float32Array.from(freqs), mscale: options.mscale ?? mscale };
}

/**
 * Reads `rope.dimension_sections`: the axes whose positions parts of a head are rotated by. All axes of a text token are its position,
 * so that they have no effect.
 */
export function readSections(k: Keys): void {
  const order = k.str("rope.section_order", "tyxz");
  k.want(order === "tyxz", "rope.section_order", order, "tyxz");
  k.ints("rope.dimension_sections", []);
}

/** YaRN as the file states it. */
export interface Yarn {
  readonly factor: number;
  readonly n_orig: number;
  readonly beta_fast: number;
  readonly beta_slow: number;
  readonly ext: number;
  readonly truncate: boolean;
  /** `rope.scaling.yarn_log_multiplier`, as the file has it. */
  readonly mscale_all_dim: number;
}

export function readYarn(k: Keys, truncate = true): Yarn {
  return {
    factor: k.f32("rope.scaling.factor", 1),
    n_orig: k.u32("rope.scaling.original_context_length", k.u32("context_length")),
    beta_fast: k.f32("rope.scaling.yarn_beta_fast", 32),
    beta_slow: k.f32("rope.scaling.yarn_beta_slow", 1),
    ext: k.f32("rope.scaling.yarn_ext_factor", 1),
    truncate: k.bool("rope.scaling.yarn_truncate", truncate),
    mscale_all_dim: k.f32("rope.scaling.yarn_log_multiplier", 0),
  };
}

/** Low frequencies divided by the factor, high ones kept, a ramp between (YaRN §3.2). */
export function yarnFrequencies(freqs: Float64Array, theta: number, y: Yarn): Float64Array {
  const n_rot = 2 * freqs.length;
  const dim = (turns: number) => n_rot * Math.log(y.n_orig / (2 * Math.PI * turns)) / (2 * Math.log(theta));
  const [floor, ceil] = y.truncate ? [Math.floor, Math.ceil] : [(x: number) => x, (x: number) => x];
  const lo = Math.max(floor(dim(y.beta_fast)), 0);
  const hi = Math.min(ceil(dim(y.beta_slow)), n_rot - 1);
  return freqs.map((f, i) => {
    const ramp = Math.min(Math.max((i - lo) / Math.max(hi - lo, 0.001), 0), 1);
    const keep = (1 - ramp) * y.ext;
    return f / y.factor * (1 - keep) + f * keep;
  });
}
