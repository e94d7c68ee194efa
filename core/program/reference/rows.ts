/**
 * Ops that make a row of numbers from rows of numbers, without weights that are matrices and without a cache.
 * @module
 */
import { GATE_KIND, NORM_KIND, ROPE_KIND, UNARY_KIND } from "../ops.ts";
import type { OpDesc } from "../program.ts";
import type { Step, Values } from "./step.ts";

/** `2 / sqrt(pi) e^-x^2 sum 2^n x^(2n+1) / (1 3 5 .. (2n+1))`: terms of one sign. */
function erf(x: number): number {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  let term = a, sum = a;
  for (let n = 1; term > sum * 1e-17; n++) sum += term *= 2 * a * a / (2 * n + 1);
  return Math.sign(x) * 2 / Math.sqrt(Math.PI) * Math.exp(-a * a) * sum;
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const silu = (x: number) => x / (1 + Math.exp(-x));
const geluTanh = (x: number) => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const geluErf = (x: number) => x / 2 * (1 + erf(x / Math.SQRT2));
const relu = (x: number) => Math.max(x, 0);
export const softplus = (x: number) => x > 20 ? x : Math.log1p(Math.exp(x));
const clamp = (x: number, lo: number, hi: number) => Math.min(Math.max(x, lo), hi);
const negative = (x: number) => x < 0 || Object.is(x, -0);

const UNARY: Readonly<Record<number, (x: number, a: number, b: number) => number>> = {
  [UNARY_KIND.scale]: (x, a, b) => a * x + b,
  [UNARY_KIND.silu]: silu,
  [UNARY_KIND.gelu_tanh]: geluTanh,
  [UNARY_KIND.gelu_erf]: geluErf,
  [UNARY_KIND.relu]: relu,
  [UNARY_KIND.relu2]: (x) => relu(x) ** 2,
  [UNARY_KIND.sigmoid]: sigmoid,
  [UNARY_KIND.tanh]: Math.tanh,
  [UNARY_KIND.softplus]: softplus,
  [UNARY_KIND.softcap]: (x, a) => a * Math.tanh(x / a),
  [UNARY_KIND.clamp]: clamp,
  [UNARY_KIND.signed_sqrt]: (x, a) => (negative(x) ? -1 : 1) * Math.sqrt(Math.max(Math.abs(x), a)),
  [UNARY_KIND.exp]: Math.exp,
};

export function unary(s: Step, op: OpDesc): void {
  const [kind, a, b] = op.params, f = UNARY[kind];
  const x = s.values(op.src[0]), y = s.result(op.dst[0]);
  for (let i = 0; i < y.length; i++) y[i] = f(x[i], a, b);
}

const GATE: Readonly<Record<number, (x: number, y: number, a: number, b: number) => number>> = {
  [GATE_KIND.silu]: (x, y) => silu(x) * y,
  [GATE_KIND.gelu_tanh]: (x, y) => geluTanh(x) * y,
  [GATE_KIND.gelu_erf]: (x, y) => geluErf(x) * y,
  [GATE_KIND.sigmoid]: (x, y) => sigmoid(x) * y,
  [GATE_KIND.silu_clamp]: (x, y, a) => silu(Math.min(x, a)) * clamp(y, -a, a),
  [GATE_KIND.situ]: (x, y, a, b) => a * Math.tanh(x / a) * sigmoid(x) * (b > 0 ? b * Math.tanh(y / b) : y),
  [GATE_KIND.oai]: (x, y, a, b) => {
    const g = Math.min(x, a);
    return g * sigmoid(b * g) * (clamp(y, -a, a) + 1);
  },
  [GATE_KIND.relu2]: (x, y) => relu(x) ** 2 * y,
};

export function gate(s: Step, op: OpDesc): void {
  const [kind, a, b] = op.params, f = GATE[kind];
  const x = s.values(op.src[0]), y = s.values(op.src[1]), z = s.result(op.dst[0]);
  for (let i = 0; i < z.length; i++) z[i] = f(x[i], y[i], a, b);
}

export function add(s: Step, op: OpDesc): void {
  pair(s, op, (a, b) => a + b);
}

export function mul(s: Step, op: OpDesc): void {
  pair(s, op, (a, b) => a * b);
}

/** Axes of length 1 are repeated. */
function pair(s: Step, op: OpDesc, f: (a: number, b: number) => number): void {
  const a = s.operand(op.src[0]), b = s.operand(op.src[1]), y = s.result(op.dst[0]);
  const [n0, n1, n2] = s.shape(op.dst[0]), rows = s.rows(op.dst[0]);
  const strides = ({ shape: [m0, m1, m2] }: typeof a) => [
    m0 === 1 ? 0 : 1,
    m1 === 1 ? 0 : m0,
    m2 === 1 ? 0 : m0 * m1,
  ];
  const [a0, a1, a2] = strides(a), [b0, b1, b2] = strides(b);
  let o = 0;
  for (let r = 0; r < rows; r++) {
    for (let i2 = 0; i2 < n2; i2++) {
      for (let i1 = 0; i1 < n1; i1++) {
        const ai = r * a.step + i1 * a1 + i2 * a2, bi = r * b.step + i1 * b1 + i2 * b2;
        for (let i0 = 0; i0 < n0; i0++) y[o++] = f(a.data[ai + i0 * a0], b.data[bi + i0 * b0]);
      }
    }
  }
}

export function norm(s: Step, op: OpDesc): void {
  const [kind, eps] = op.params;
  const x = s.values(op.src[0]), w = s.vector(op.src[1]), b = s.vector(op.src[2]), y = s.result(op.dst[0]);
  const [n, m] = s.shape(op.dst[0]);
  for (let at = 0, i1 = 0; at < y.length; at += n, i1 = (i1 + 1) % m) {
    let mean = 0, squares = 0;
    if (kind === NORM_KIND.layer) {
      for (let i = 0; i < n; i++) mean += x[at + i];
      mean /= n;
    }
    for (let i = 0; i < n; i++) squares += (x[at + i] - mean) ** 2;
    const scale = 1 / Math.sqrt((kind === NORM_KIND.l2 ? squares : squares / n) + eps);
    const wi = w && w.length > n ? i1 * n : 0, bi = b && b.length > n ? i1 * n : 0;
    for (let i = 0; i < n; i++) y[at + i] = (x[at + i] - mean) * scale * (w ? w[wi + i] : 1) + (b ? b[bi + i] : 0);
  }
}

/** The softmax of `n` numbers from `at` on, in place. */
export function softmaxInPlace(x: Float64Array, at: number, n: number): void {
  let max = -Infinity, sum = 0;
  for (let i = 0; i < n; i++) max = Math.max(max, x[at + i]);
  for (let i = 0; i < n; i++) sum += x[at + i] = Math.exp(x[at + i] - max);
  for (let i = 0; i < n; i++) x[at + i] /= sum;
}

export function softmax(s: Step, op: OpDesc): void {
  const y = s.result(op.dst[0]), [n] = s.shape(op.dst[0]);
  y.set(s.values(op.src[0]));
  for (let at = 0; at < y.length; at += n) softmaxInPlace(y, at, n);
}

export function rope(s: Step, op: OpDesc): void {
  const [kind, n_rot, offset, inverse, shift, mscale] = op.params;
  const x = s.values(op.src[0]), positions = s.ints(op.src[1]), freqs = s.vector(op.src[2])!;
  const y = s.result(op.dst[0]), [d, H] = s.shape(op.dst[0]), half = n_rot / 2;
  y.set(x);
  for (let r = 0; r < positions.length; r++) {
    const p = Math.max(positions[r] + shift, 0);
    for (let i = 0; i < half; i++) {
      const cos = Math.cos(p * freqs[i]) * mscale, sin = Math.sin(inverse ? -p * freqs[i] : p * freqs[i]) * mscale;
      for (let h = 0; h < H; h++) {
        const base = (r * H + h) * d + offset;
        const a = kind === ROPE_KIND.halves ? base + i : base + 2 * i;
        const b = kind === ROPE_KIND.halves ? a + half : a + 1;
        y[a] = x[a] * cos - x[b] * sin;
        y[b] = x[b] * cos + x[a] * sin;
      }
    }
  }
}

export function mix(s: Step, op: OpDesc): void {
  const x = s.values(op.src[0]), w = s.operand(op.src[1]), y = s.result(op.dst[0]);
  const [n, J] = s.shape(op.src[0]), M = s.shape(op.dst[0])[1], rows = s.rows(op.dst[0]);
  for (let r = 0; r < rows; r++) {
    for (let m = 0; m < M; m++) {
      const o = (r * M + m) * n;
      for (let j = 0; j < J; j++) {
        const f = w.data[r * w.step + m * J + j], at = (r * J + j) * n;
        for (let i = 0; i < n; i++) y[o + i] += f * x[at + i];
      }
    }
  }
}

export function dot(s: Step, op: OpDesc): void {
  const a = s.values(op.src[0]), b = s.operand(op.src[1]), y = s.result(op.dst[0]);
  const [n, n1, n2] = s.shape(op.src[0]), [, m1, m2] = b.shape;
  let o = 0;
  for (let r = 0; r < s.rows(op.dst[0]); r++) {
    for (let i2 = 0; i2 < n2; i2++) {
      for (let i1 = 0; i1 < n1; i1++) {
        const at = o * n, bt = r * b.step + n * ((m1 === 1 ? 0 : i1) + m1 * (m2 === 1 ? 0 : i2));
        let sum = 0;
        for (let i = 0; i < n; i++) sum += a[at + i] * b.data[bt + i];
        y[o++] = sum;
      }
    }
  }
}

export function concat(s: Step, op: OpDesc): void {
  const [axis] = op.params, rows = s.rows(op.dst[0]);
  const parts = op.src.map((id): [Values, number] => {
    const shape = s.shape(id);
    return [s.values(id), shape.slice(0, axis + 1).reduce((a, b) => a * b, 1)];
  });
  const first = s.values(op.src[0]);
  const y = first instanceof Int32Array ? s.intResult(op.dst[0]) : s.result(op.dst[0]);
  // What lies behind the axis repeats the run of each part.
  const runs = rows * s.shape(op.dst[0]).slice(axis + 1).reduce((a, b) => a * b, 1);
  let o = 0;
  for (let run = 0; run < runs; run++) {
    for (const [x, n] of parts) for (let i = 0; i < n; i++) y[o++] = x[run * n + i];
  }
}

export function copy(s: Step, op: OpDesc): void {
  const x = s.values(op.src[0]);
  (x instanceof Int32Array ? s.intResult(op.dst[0]) : s.result(op.dst[0])).set(x);
}

export function sinkhorn(s: Step, op: OpDesc): void {
  const [n, iterations, eps] = op.params;
  const m = s.values(op.src[0]), scale = s.vector(op.src[1])!, base = s.vector(op.src[2])!;
  const pre = s.result(op.dst[0]), post = s.result(op.dst[1]), comb = s.result(op.dst[2]);
  const width = n * n + 2 * n, A = new Float64Array(n * n);
  for (let r = 0; r < s.rows(op.dst[0]); r++) {
    const at = r * width;
    for (let j = 0; j < n; j++) {
      pre[r * n + j] = sigmoid(m[at + j] * scale[0] + base[j]) + eps;
      post[r * n + j] = 2 * sigmoid(m[at + n + j] * scale[1] + base[n + j]);
    }
    for (let i = 0; i < n * n; i++) A[i] = m[at + 2 * n + i] * scale[2] + base[2 * n + i];
    for (let j = 0; j < n; j++) softmaxInPlace(A, j * n, n);
    for (let i = 0; i < n * n; i++) A[i] += eps;
    for (let t = 0; t < iterations; t++) {
      if (t > 0) divideBySums(A, n, n, 1, eps);
      divideBySums(A, n, 1, n, eps);
    }
    // comb[j, k] has j as its first axis.
    for (let j = 0; j < n; j++) for (let k = 0; k < n; k++) comb[(r * n + k) * n + j] = A[j * n + k];
  }
}

/** Lines of `n` numbers, `inner` apart and `outer` from line to line, each divided by its sum + eps. */
function divideBySums(A: Float64Array, n: number, outer: number, inner: number, eps: number): void {
  for (let line = 0; line < n; line++) {
    let sum = eps;
    for (let i = 0; i < n; i++) sum += A[line * outer + i * inner];
    for (let i = 0; i < n; i++) A[line * outer + i * inner] /= sum;
  }
}
