/**
 * Mamba and Falcon Mamba (`mamba`), Mamba 2 and Codestral Mamba (`mamba2`). Every layer is a state space layer alone.
 * Falcon Mamba norms the inputs of the step, B and C without weights.
 * Source: Mamba (arXiv 2312.00752); Mamba 2 (arXiv 2405.21060); Falcon Mamba (arXiv 2410.05355); state-spaces/mamba `mamba2.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Architecture, Spec } from "./architecture.ts";
import { embed, head, readSpec } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { mamba as mamba1, mamba2, type Mamba2Spec, type MambaSpec, readMamba, readMamba2 } from "./ssm.ts";

interface SsmModelSpec extends Spec {
  readonly norm_eps: number;
  readonly ssm: Mamba2Spec | MambaSpec;
  /** The inputs of the step, B and C are normed. */
  readonly normed: boolean;
}

function spec(k: Keys): SsmModelSpec {
  const ssm = k.arch === "mamba2" ? readMamba2(k) : readMamba(k);
  for (const key of ["attention.head_count", "feed_forward_length"]) k.u32(key, 0); // files have them, as 0
  return { ...readSpec(k), norm_eps: ssm.norm_eps, ssm, normed: k.bool("ssm.dt_b_c_rms", false) };
}

function mixer(op: Ops, w: Weights, s: SsmModelSpec, il: number, x: T): T {
  if ("n_group" in s.ssm) return mamba2(op, w, s.ssm, il, x);
  return mamba1(op, w, s.ssm, il, x, (y) => s.normed ? op.rms_norm(y, undefined, s.norm_eps) : y);
}

function build(op: Ops, s: SsmModelSpec): T {
  let x = embed(op, s); //                                                                 [n_embd, n_tok]
  for (let il = 0; il < s.n_layer; il++) {
    const w = op.weights(`blk.${il}`);
    x = op.layer_end(il, op.add(x, mixer(op, w, s, il, op.rms_norm(x, w("attn_norm", [s.n_embd]), s.norm_eps))));
  }
  return head(op, s, x);
}

export const mamba: Architecture<SsmModelSpec> = { names: ["mamba", "mamba2"], spec, build };
