/**
 * Ops that carry a state from row to row. The state is f32 between rows, so that pieces of a prompt give what the whole gives.
 * @module
 */
import { DELTA_RULE, NONE } from "../ops.ts";
import type { OpDesc } from "../program.ts";
import type { Step } from "./step.ts";

/** The state of a row's sequence in one stream; zeros where the sequence begins. */
function stateOf(s: Step, cacheIndex: number, stream: number, seq: number, position: number): Float32Array {
  const { pages, at } = s.pagesOf(cacheIndex, seq);
  const state = s.caches[cacheIndex].page(stream, pages[at]);
  return position === 0 ? state.fill(0) : state;
}

export function conv(s: Step, op: OpDesc): void {
  const [cacheIndex, stream, dilation, silu] = op.params;
  const x = s.values(op.src[0]), w = s.vector(op.src[1])!, b = s.vector(op.src[2]);
  const positions = s.ints(op.src[3]), seqs = s.ints(op.src[4]), y = s.result(op.dst[0]);
  const [K, C] = s.shape(op.src[1]), kept = (K - 1) * dilation;
  for (let r = 0; r < positions.length; r++) {
    const p = positions[r], state = stateOf(s, cacheIndex, stream, seqs[r], p);
    for (let c = 0; c < C; c++) {
      let sum = b ? b[c] : 0;
      for (let j = 0; j < K; j++) {
        const from = p - (K - 1 - j) * dilation;
        if (from < 0) continue;
        sum += w[c * K + j] * (j === K - 1 ? x[r * C + c] : state[(from % kept) * C + c]);
      }
      y[r * C + c] = silu ? sum / (1 + Math.exp(-sum)) : sum;
    }
    for (let c = 0; c < C && kept > 0; c++) state[(p % kept) * C + c] = x[r * C + c];
  }
}

export function delta(s: Step, op: OpDesc): void {
  const [cacheIndex, stream, rule, tiled] = op.params;
  const [q, k, v, g, beta] = op.src.slice(0, 5).map((id) => s.values(id));
  const positions = s.ints(op.src[5]), seqs = s.ints(op.src[6]), y = s.result(op.dst[0]);
  const [dk, Hk] = s.shape(op.src[0]), [dv, Hv] = s.shape(op.src[2]), [dg] = s.shape(op.src[3]);
  const S = new Float64Array(dk); // one column of a head's state
  for (let r = 0; r < positions.length; r++) {
    const state = stateOf(s, cacheIndex, stream, seqs[r], positions[r]);
    for (let h = 0; h < Hv; h++) {
      const hk = tiled ? h % Hk : Math.floor(h / (Hv / Hk));
      const qAt = (r * Hk + hk) * dk, gAt = (r * Hv + h) * dg;
      for (let j = 0; j < dv; j++) {
        const at = (h * dv + j) * dk;
        let seen = 0, sum = 0;
        for (let i = 0; i < dk; i++) {
          S[i] = Math.exp(g[gAt + (dg === 1 ? 0 : i)]) * state[at + i];
          seen += S[i] * k[qAt + i];
        }
        const value = v[(r * Hv + h) * dv + j];
        const u = beta[r * Hv + h] * (rule === DELTA_RULE.delta ? value - seen : value);
        for (let i = 0; i < dk; i++) {
          S[i] += k[qAt + i] * u;
          sum += S[i] * q[qAt + i];
          state[at + i] = S[i];
        }
        y[(r * Hv + h) * dv + j] = sum;
      }
    }
  }
}

export function squares(s: Step, op: OpDesc): void {
  const [cacheIndex, stream, n_mat] = op.params;
  const x = s.values(op.src[0]), positions = s.ints(op.src[1]), seqs = s.ints(op.src[2]);
  const ids = op.src[3] === NONE ? undefined : s.ints(op.src[3]);
  const [n, n1, n2] = s.shape(op.src[0]), n_own = n1 * n2;
  const n_vector = ids ? s.shape(op.src[3])[0] : n_own;
  for (let r = 0; r < positions.length; r++) {
    const state = stateOf(s, cacheIndex, stream, seqs[r], positions[r]);
    for (let j = 0; j < n_vector; j++) {
      const m = ids ? ids[r * n_vector + j] : n_mat > 1 ? j : 0;
      const from = (r * n_own + (n_own === 1 ? 0 : j)) * n, hi = m * 2 * (n + 1), lo = hi + n + 1;
      for (let i = 0; i <= n; i++) {
        const v = i < n ? x[from + i] : 1, sum = state[hi + i] + state[lo + i] + v * v;
        state[hi + i] = sum;
        state[lo + i] = sum - state[hi + i];
      }
    }
  }
}
