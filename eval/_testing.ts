/**
 * An engine for tests of what is made of its rows: small, in plain arithmetic, and honest about sequences.
 * @module
 */
import type { Engine, StepRequest } from "../core/engine/mod.ts";

/** What a fake engine was asked. */
export interface FakeEngine {
  readonly engine: Engine;
  /** Requests of each step, as `tokens:output`. */
  readonly steps: string[];
  /** The logits after these tokens. */
  logitsAfter(ids: ArrayLike<number>): Float32Array;
}

/** Log-sum-exp. */
export function lseOf(row: ArrayLike<number>): number {
  const values = Array.from(row), most = Math.max(...values);
  return most + Math.log(values.reduce((s, x) => s + Math.exp(x - most), 0));
}

/** @param seed Another one gives another model. */
export function fakeEngine(n_vocab: number, seed: number, n_ubatch = 16): FakeEngine {
  const topK = 2, steps: string[] = [];
  // Two models agree in part: most of a logit is of the tokens alone.
  const part = (ids: ArrayLike<number>, id: number, of: number) => {
    let state = of;
    for (let i = 0; i < ids.length; i++) state = (Math.imul(state, 31) + ids[i] + 7) >>> 0;
    return (Math.imul(state ^ Math.imul(id + 1, 0x9e3779b1), 0x2c1b3c6d) >>> 8) % 1000 / 250;
  };
  const logitsAfter = (ids: ArrayLike<number>) =>
    Float32Array.from({ length: n_vocab }, (_, id) => part(ids, id, 1) + part(ids, id, seed) / 2);
  const create = (before: number[] = []) => {
    const tokens = [...before];
    return {
      tokens,
      fork: () => create(tokens),
      dispose() {},
      [Symbol.dispose]() {},
    };
  };
  const engine = {
    n_vocab,
    topK,
    n_ubatch,
    createSequence: () => create(),
    step(requests: (Omit<StepRequest, "sequence"> & { sequence: ReturnType<typeof create> })[]) {
      steps.push(requests.map((r) => `${r.tokens.length}:${r.output}`).join(" "));
      return Promise.resolve(requests.map((r) => {
        const rows: Float32Array[] = [];
        for (const id of Array.from(r.tokens)) {
          r.sequence.tokens.push(id);
          rows.push(logitsAfter(r.sequence.tokens));
        }
        const shown = r.output === "all" ? rows : r.output === "last" ? rows.slice(-1) : [];
        const order = shown.map((row) => [...row.keys()].sort((a, b) => row[b] - row[a] || a - b).slice(0, topK));
        return {
          n_rows: shown.length,
          ids: Int32Array.from(order.flat()),
          logits: Float32Array.from(order.flatMap((ids, i) => ids.map((id) => shown[i][id]))),
          lse: Float32Array.from(shown, lseOf),
          targetLogprob: Float32Array.from(shown, (row, i) => {
            const target = r.targets?.[i] ?? -1;
            return target < 0 ? 0 : row[target] - lseOf(row);
          }),
          ...(r.want === "logits" ? { full: Float32Array.from(shown.flatMap((row) => [...row])) } : {}),
        };
      }));
    },
  };
  return { engine: engine as unknown as Engine, steps, logitsAfter };
}
