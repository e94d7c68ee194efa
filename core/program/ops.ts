/**
 * The op set of programs: one table that the builder, the encoder and every backend agree on. `csrc/bloomery.h` numbers
 * the same ops for the native side (`scripts/check_abi.ts` compares) and says their shapes; `reference.ts` is the oracle.
 * @module
 */

/** How a parameter word is read. */
export type ParamKind = "u32" | "f32";

export interface OpInfo {
  readonly code: number;
  readonly n_dst: number;
  /** The least number of sources; `MUL_MAT_ID` may have more (experts in several places). */
  readonly n_src: number;
  readonly params: readonly (readonly [name: string, kind: ParamKind])[];
}

export const OPS = {
  EMBED_ROWS: { code: 1, n_dst: 1, n_src: 2, params: [] },
  RMS_NORM: { code: 2, n_dst: 1, n_src: 2, params: [["eps", "f32"]] },
  ADD: { code: 3, n_dst: 1, n_src: 2, params: [] },
  MUL_MAT: { code: 4, n_dst: 1, n_src: 2, params: [] },
  SILU_MUL: { code: 5, n_dst: 1, n_src: 2, params: [] },
  ROPE: { code: 6, n_dst: 1, n_src: 3, params: [["kind", "u32"], ["n_rot", "u32"], ["mscale", "f32"]] },
  KV_WRITE: { code: 7, n_dst: 0, n_src: 4, params: [["cache", "u32"], ["k_stream", "u32"], ["v_stream", "u32"]] },
  ATTENTION: {
    code: 8,
    n_dst: 1,
    n_src: 3,
    params: [["cache", "u32"], ["k_stream", "u32"], ["v_stream", "u32"], ["n_head_kv", "u32"], ["scale", "f32"], [
      "window",
      "u32",
    ]],
  },
  ROUTER: { code: 9, n_dst: 2, n_src: 1, params: [["score", "u32"], ["renorm", "u32"], ["scale", "f32"]] },
  MUL_MAT_ID: { code: 10, n_dst: 1, n_src: 3, params: [] },
  EXPERT_SUM: { code: 11, n_dst: 1, n_src: 2, params: [] },
  GET_ROWS: { code: 12, n_dst: 1, n_src: 2, params: [] },
  TOP_K: { code: 13, n_dst: 3, n_src: 1, params: [] },
  TARGET_LOGPROB: { code: 14, n_dst: 1, n_src: 3, params: [] },
} as const satisfies Record<string, OpInfo>;

export type OpName = keyof typeof OPS;

/** `bl_tensor_kind` */
export const KIND = { SCRATCH: 0, WEIGHT: 1, INPUT: 2, VIEW: 3 } as const;

/** `bl_input` */
export const INPUT = { TOKENS: 0, POSITIONS: 1, SEQS: 2, OUT_ROWS: 3, TARGETS: 4 } as const;

/** `BL_USE_*`: what a weight is read by. */
export const USE = { MUL_MAT: 1, ROWS: 2, VECTOR: 4 } as const;

export const ROPE_KIND = { pairs: 0, halves: 1 } as const;
export type RopeKind = keyof typeof ROPE_KIND;

export const SCORE_KIND = { softmax: 0, sigmoid: 1 } as const;
export type ScoreKind = keyof typeof SCORE_KIND;

/** The smallest divisor of a router's renormalisation (the half-precision minimum, as the field uses it). */
export const ROUTER_MIN_SUM = 6.103515625e-5;
