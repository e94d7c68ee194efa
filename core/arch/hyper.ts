/**
 * Manifold-constrained hyper-connections: the residual is `n_stream` streams. A sublayer reads a weighted sum of them (`pre`) and
 * its result goes to all of them (`post`), which are mixed among themselves by a matrix that Sinkhorn's iteration makes doubly
 * stochastic (`comb`).
 * Source: mHC (arXiv 2512.24880); huggingface/transformers `modeling_deepseek_v4.py`, `modeling_glm5_next.py`.
 * @module
 */
import type { Ops, T, Weights } from "../program/program.ts";
import type { Keys } from "./keys.ts";

export interface HyperSpec {
  readonly n_stream: number;
  readonly iterations: number;
  readonly eps: number;
  readonly norm_eps: number;
}

/** @throws {ModelError} `model.key_value`, `model.missing_key`, `model.key_type` */
export function readHyper(k: Keys): HyperSpec {
  const n_stream = k.u32("hyper_connection.count"), iterations = k.u32("hyper_connection.sinkhorn_iterations");
  k.want(n_stream >= 1 && n_stream <= 16, "hyper_connection.count", n_stream, "1 to 16");
  k.want(iterations >= 1 && iterations <= 1000, "hyper_connection.sinkhorn_iterations", iterations, "1 to 1000");
  return {
    n_stream,
    iterations,
    eps: k.f32("hyper_connection.epsilon"),
    norm_eps: k.f32("attention.layer_norm_rms_epsilon"),
  };
}

/** `n` streams that are all x: `[n_embd, n_tok]` -> `[n_embd, n, n_tok]`. */
export function streamsOf(op: Ops, x: T, n: number): T {
  return op.mix(x.heads(1), op.constant(`ones.${n}`, new Float32Array(n).fill(1), [1, n]));
}

/** The weighted sum of the streams: h `[n_embd, n, n_tok]`, pre `[n, 1, n_tok]` or a weight `[n, 1]` -> `[n_embd, n_tok]`. */
export function collapse(op: Ops, h: T, pre: T): T {
  return op.mix(h, pre).flat();
}

/** Weights of one site, `attn` or `ffn`, worked out from the streams before it. */
export interface Site {
  /** `[n, 1, n_tok]` */
  readonly pre: T;
  /** The streams after a sublayer whose result is y `[n_embd, n_tok]`. */
  write(y: T): T;
}

export function site(op: Ops, w: Weights, s: HyperSpec, name: "attn" | "ffn", h: T): Site {
  const n = s.n_stream, m = n * n + 2 * n;
  const f = op.rms_norm(h.flat(), undefined, s.norm_eps);
  const { pre, post, comb } = op.sinkhorn(
    op.mul_mat(w(`hc_${name}_fn`, [f.ne[0], m]), f),
    w(`hc_${name}_scale`, [3]),
    w(`hc_${name}_base`, [m]),
    { n, iterations: s.iterations, eps: s.eps },
  );
  return { pre: pre.heads(1), write: (y) => op.add(op.mix(h, comb), op.mul(y.heads(1), post.heads(n))) };
}

/** A sublayer between the two halves of its site. */
export function around(
  op: Ops,
  w: Weights,
  s: HyperSpec,
  name: "attn" | "ffn",
  h: T,
  sublayer: (x: T) => T,
): T {
  const { pre, write } = site(op, w, s, name, h);
  return write(sublayer(collapse(op, h, pre)));
}

/** The streams of the rows a step wants results of: `[n_embd, n, n_out]`. */
export function outStreams(op: Ops, h: T): T {
  return op.out_rows(h.flat()).heads(h.ne[1]);
}
