/**
 * What an op must move and compute for the rows of a step: the floor of its time. Every number is read and written once, whatever a
 * kernel does.
 * @module
 */
import { ggmlType, rowBytes } from "../../core/gguf/types.ts";
import { NONE } from "../../core/program/ops.ts";
import type { OpDesc, Program } from "../../core/program/program.ts";
import { type CacheType, count } from "./case.ts";

export interface Cost {
  readonly bytes: number;
  /** Multiplications and additions. */
  readonly flops: number;
}

/** A row of a step. */
export interface StepRow {
  readonly seq: number;
  readonly position: number;
}

export function addCosts(costs: readonly Cost[]): Cost {
  return costs.reduce((a, b) => ({ bytes: a.bytes + b.bytes, flops: a.flops + b.flops }), { bytes: 0, flops: 0 });
}

/** Visible rows of a stream at a position. */
function visible(position: number, ratio: number, window: number): number {
  const end = Math.floor((position + 1) / ratio);
  return end - (window > 0 ? Math.max(0, Math.floor((position - window + 1) / ratio)) : 0);
}

export function costOf(p: Program, op: OpDesc, rows: readonly StepRow[], cache: CacheType): Cost {
  const n_rows = rows.length;
  /** Numbers of a tensor in this step. */
  const size = (id: number) => {
    const t = p.tensors[id], laidOut = t.rows === "tok" ? p.n_tok : t.rows === "out" ? p.n_out : 1;
    return count(t.ne) / laidOut * (t.rows === "none" ? 1 : n_rows);
  };
  const bytes = (id: number) => {
    const t = p.tensors[id];
    return rowBytes(t.type, t.ne[0]) * size(id) / t.ne[0];
  };
  const ne = (id: number) => p.tensors[id].ne;
  const written = op.dst.reduce((sum, id) => sum + bytes(id), 0);
  const read = op.src.reduce((sum, id) => sum + (id === NONE ? 0 : bytes(id)), 0);
  const streamRow = (c: number, s: number) => {
    const { role, ne } = p.caches[c].streams[s];
    return rowBytes(ggmlType(role === "f32" ? "f32" : cache), ne);
  };
  /** Rows of a stream that anybody reads, and over all rows of the step. */
  const reach = (c: number, s: number, window: number, most = Infinity) => {
    const { ratio } = p.caches[c].streams[s];
    const perRow = rows.map((r) => Math.min(most, visible(r.position, ratio, window)));
    const bySeq = new Map<number, number>();
    rows.forEach((r, i) => bySeq.set(r.seq, Math.max(bySeq.get(r.seq) ?? 0, perRow[i])));
    return { distinct: [...bySeq.values()].reduce((a, b) => a + b, 0), all: perRow.reduce((a, b) => a + b, 0) };
  };
  switch (op.op) {
    case "GET_ROWS":
      return { bytes: 2 * written + bytes(op.src[1]), flops: 0 };
    case "MUL_MAT":
      return { bytes: read + written, flops: 2 * ne(op.src[0])[0] * size(op.dst[0]) };
    case "MUL_MAT_ID": {
      const used = Math.min(1, size(op.src[2]) / ne(op.src[0])[2]);
      const w = bytes(op.src[0]);
      return { bytes: read - w + used * w + written, flops: 2 * ne(op.src[0])[0] * size(op.dst[0]) };
    }
    case "ATTENTION": {
      const dk = ne(op.src[0])[0], dv = ne(op.dst[0])[0], H = ne(op.src[0])[1];
      const costs = [0, 1].map((i): Cost => {
        const [c, k, v, window, unit] = op.params.slice(3 + 5 * i, 8 + 5 * i), select = op.src[4 + i];
        if (c === NONE) return { bytes: 0, flops: 0 };
        const { distinct, all } = reach(c, k, window, select === NONE ? Infinity : ne(select)[0] * unit);
        const row = streamRow(c, k) + (v === k ? 0 : streamRow(c, v));
        return { bytes: distinct * row, flops: 2 * all * H * (dk + dv) };
      });
      return addCosts([...costs, { bytes: read + written, flops: 0 }]);
    }
    case "INDEX": {
      const [d, H] = ne(op.src[0]), { distinct, all } = reach(op.params[0], op.params[1], 0);
      return { bytes: read + written + distinct * streamRow(op.params[0], op.params[1]), flops: 2 * all * H * d };
    }
    case "STREAM_WRITE":
      return { bytes: read + n_rows * streamRow(op.params[0], op.params[1]), flops: 0 };
    case "POOL": {
      const group = op.params[4] * (op.params[5] ? 2 : 1), ends = n_rows / op.params[4];
      return { bytes: written + 2 * ends * group * streamRow(op.params[1], op.params[2]), flops: 0 };
    }
    case "DELTA": {
      const sequences = new Set(rows.map((r) => r.seq)).size, state = streamRow(op.params[0], op.params[1]);
      return { bytes: read + written + 2 * sequences * state, flops: 7 * n_rows * state / 4 };
    }
    case "CONV":
      return { bytes: read + written, flops: 2 * ne(op.src[1])[0] * size(op.dst[0]) };
    case "MIX":
      return { bytes: read + written, flops: 2 * ne(op.src[0])[1] * size(op.dst[0]) };
    default:
      return { bytes: read + written, flops: size(op.dst[0]) };
  }
}
