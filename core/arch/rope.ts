/**
 * Rotary frequencies from metadata. Every scaling rule becomes one table of `n_rot / 2` angles per position and one factor
 * on cos and sin, so that backends know a single rope.
 *
 * Sources: RoFormer (arXiv 2104.09864); YaRN (arXiv 2309.00071); llama.cpp's `rope.scaling.*` keys.
 * @module
 */
import { ModelError } from "../errors.ts";
import type { ModelFile } from "./architecture.ts";

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
function yarnFactor(scale: number, m: number): number {
  return scale <= 1 ? 1 : 0.1 * m * Math.log(scale) + 1;
}

/**
 * Reads `{arch}.rope.*` and the optional tensor `rope_freqs.weight` (divisors, as llama 3 stores its scaling).
 *
 * @param n_rot Rotated numbers of a head, even.
 * @throws {ModelError} `model.rope_scaling` for a scaling type that is not known
 */
export function readRope(file: ModelFile, arch: string, n_rot: number): Rope {
  const m = file.metadata;
  const theta = m.f32(`${arch}.rope.freq_base`, 10000);
  let freqs = baseFrequencies(n_rot, theta);
  let mscale = m.f32(`${arch}.rope.scaling.attn_factor`, 1);

  const divisors = file.find("rope_freqs.weight");
  if (divisors) {
    if (divisors.type.name !== "f32" || divisors.ne[0] !== n_rot / 2) {
      throw new ModelError(
        "model.tensor_shape",
        `Cannot bind "rope_freqs.weight" of ${file.name}: found ${divisors.type.name} [${divisors.ne}], expected f32 [${
          n_rot / 2
        }]`,
        { at: { file: file.name, tensor: "rope_freqs.weight", got: divisors.ne, expected: [n_rot / 2] } },
      );
    }
    const bytes = file.readTensor(divisors);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    freqs = freqs.map((f, i) => f / view.getFloat32(i * 4, true));
  }

  const factor = m.f32(`${arch}.rope.scaling.factor`, m.f32(`${arch}.rope.scale_linear`, 1));
  // llama.cpp reads a missing type as "linear"; with a factor of 1 that scales nothing.
  const type = m.str(`${arch}.rope.scaling.type`, "linear");
  switch (type) {
    case "none":
      break;
    case "linear":
      if (factor !== 1) freqs = freqs.map((f) => f / factor);
      break;
    case "yarn": {
      const n_orig = m.u32(`${arch}.rope.scaling.original_context_length`, m.u32(`${arch}.context_length`));
      const betaFast = m.f32(`${arch}.rope.scaling.yarn_beta_fast`, 32);
      const betaSlow = m.f32(`${arch}.rope.scaling.yarn_beta_slow`, 1);
      const ext = m.f32(`${arch}.rope.scaling.yarn_ext_factor`, 1);
      const logMul = m.f32(`${arch}.rope.scaling.yarn_log_multiplier`, 0);
      const dim = (n: number) => n_rot * Math.log(n_orig / (2 * Math.PI * n)) / (2 * Math.log(theta));
      const lo = Math.max(Math.floor(dim(betaFast)), 0);
      const hi = Math.min(Math.ceil(dim(betaSlow)), n_rot - 1);
      freqs = freqs.map((f, i) => {
        const ramp = Math.min(Math.max((i - lo) / Math.max(hi - lo, 0.001), 0), 1);
        const keep = (1 - ramp) * ext;
        return f / factor * (1 - keep) + f * keep;
      });
      mscale *= m.f32(`${arch}.rope.scaling.yarn_attn_factor`, 1) * yarnFactor(factor, 1) /
        (logMul === 0 ? 1 : yarnFactor(factor, logMul));
      break;
    }
    default:
      throw new ModelError(
        "model.rope_scaling",
        `Cannot use key "${arch}.rope.scaling.type" of ${file.name}: found "${type}", expected none, linear or yarn`,
        { at: { file: file.name, key: `${arch}.rope.scaling.type`, got: type } },
      );
  }
  return { inv_freq: Float32Array.from(freqs), mscale };
}
