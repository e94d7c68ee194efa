/**
 * Ops over streams of a cache: what earlier positions of a sequence left.
 * @module
 */
import { NONE, POOL_KIND } from "../ops.ts";
import type { OpDesc } from "../program.ts";
import { softmaxInPlace } from "./rows.ts";
import type { Step } from "./step.ts";
import type { ReferenceCache, RowList } from "./storage.ts";

export function streamWrite(s: Step, op: OpDesc): void {
  const [cacheIndex, stream] = op.params, cache = s.caches[cacheIndex];
  const { ne, ratio } = cache.spec.streams[stream];
  const x = s.values(op.src[0]), positions = s.ints(op.src[1]), seqs = s.ints(op.src[2]);
  for (let r = 0; r < positions.length; r++) {
    if ((positions[r] + 1) % ratio !== 0) continue;
    const { pages, at } = s.pagesOf(cacheIndex, seqs[r]);
    cache.write(stream, pages, at, (positions[r] + 1) / ratio - 1, x, r * ne);
  }
}

/** One segment of attention. */
interface Segment {
  readonly cacheIndex: number;
  readonly k: number;
  readonly v: number;
  readonly window: number;
  readonly unit: number;
  readonly select: number;
}

/** Row numbers of a segment that the row at position `p` sees, ascending; `last`: the last position it looks at. */
function visibleRows(s: Step, g: Segment, r: number, p: number, last: number): number[] {
  const { ratio } = s.caches[g.cacheIndex].spec.streams[g.k];
  const end = Math.floor((last + 1) / ratio);
  // The last position of row w is (w + 1) ratio - 1, and must be above p - window.
  const first = g.window > 0 ? Math.max(0, Math.floor((p - g.window + 1) / ratio)) : 0;
  const rows: number[] = [];
  if (g.select === NONE) {
    for (let w = first; w < end; w++) rows.push(w);
    return rows;
  }
  const n = s.size(g.select), select = s.ints(g.select);
  const listed: number[] = [];
  for (let i = 0; i < n; i++) if (select[r * n + i] >= 0) listed.push(select[r * n + i]);
  const incomplete = Math.floor(end / g.unit);
  if (g.unit > 1 && !listed.includes(incomplete)) listed.push(incomplete);
  for (const unit of listed) {
    for (let w = unit * g.unit; w < (unit + 1) * g.unit; w++) if (w >= first && w < end) rows.push(w);
  }
  return rows;
}

export function attention(s: Step, op: OpDesc): void {
  const [n_head_kv, scale, softcap, ...rest] = op.params;
  const q = s.values(op.src[0]), positions = s.ints(op.src[1]), seqs = s.ints(op.src[2]);
  const sinks = s.vector(op.src[3]);
  const segments: Segment[] = [0, 1].map((i) => {
    const [cacheIndex, k, v, window, unit] = rest.slice(5 * i);
    return { cacheIndex, k, v, window, unit, select: op.src[4 + i] };
  }).filter((g) => g.cacheIndex !== NONE);
  const [dk, H] = s.shape(op.src[0]), [dv] = s.shape(op.dst[0]), perKv = H / n_head_kv;
  const y = s.result(op.dst[0]), ahead = rest[10];
  const ends = new Map<number, number>(); // the last position of each sequence in the step
  for (let r = 0; r < positions.length; r++) ends.set(seqs[r], positions[r]);
  for (let r = 0; r < positions.length; r++) {
    const last = Math.min(positions[r] + ahead, ends.get(seqs[r])!);
    const keys: RowList = { page: [], at: [] }, values: RowList = { page: [], at: [] };
    // Values that are the first numbers of their keys are as far apart as those.
    const valueStep: number[] = [];
    for (const g of segments) {
      const cache = s.caches[g.cacheIndex], { pages, at } = s.pagesOf(g.cacheIndex, seqs[r]);
      const step = cache.spec.streams[g.v].ne / n_head_kv;
      for (const w of visibleRows(s, g, r, positions[r], last)) {
        cache.addRow(keys, g.k, pages, at, w);
        cache.addRow(values, g.v, pages, at, w);
        valueStep.push(step);
      }
    }
    const n = keys.page.length, scores = new Float64Array(n + (sinks ? 1 : 0));
    for (let h = 0; h < H; h++) {
      const hk = Math.floor(h / perKv), qAt = (r * H + h) * dk;
      for (let i = 0; i < n; i++) {
        const page = keys.page[i], at = keys.at[i] + hk * dk;
        let sum = 0;
        for (let d = 0; d < dk; d++) sum += page[at + d] * q[qAt + d];
        sum *= scale;
        scores[i] = softcap === 0 ? sum : softcap * Math.tanh(sum / softcap);
      }
      if (sinks) scores[n] = sinks[h];
      softmaxInPlace(scores, 0, scores.length);
      const o = (r * H + h) * dv;
      for (let i = 0; i < n; i++) {
        const page = values.page[i], at = values.at[i] + hk * valueStep[i], weight = scores[i];
        for (let d = 0; d < dv; d++) y[o + d] += weight * page[at + d];
      }
    }
  }
}

/** Scores of the visible rows for one token, as a backend compares them: f32. */
function indexScores(
  cache: ReferenceCache,
  rows: RowList,
  q: ArrayLike<number>,
  qAt: number,
  [d, H]: readonly number[],
  w: ArrayLike<number> | undefined,
  wAt: number,
  scale: number,
  stream: number,
): Float64Array {
  if (cache.spec.streams[stream].ne !== d) {
    throw new Error(`INDEX: keys of ${cache.spec.streams[stream].ne}, q of ${d}`);
  }
  return Float64Array.from(rows.page, (page, i) => {
    const at = rows.at[i];
    let score = 0;
    for (let h = 0; h < H; h++) {
      let sum = 0;
      for (let j = 0; j < d; j++) sum += page[at + j] * q[qAt + h * d + j];
      score += (w ? w[wAt + h] : 1) * Math.max(scale * sum, 0);
    }
    return Math.fround(score);
  });
}

export function index(s: Step, op: OpDesc): void {
  const [cacheIndex, stream, scale, unit, pin, candidateUnit] = op.params, cache = s.caches[cacheIndex];
  const q = s.values(op.src[0]), positions = s.ints(op.src[1]), seqs = s.ints(op.src[2]);
  const w = op.src[3] === NONE ? undefined : s.values(op.src[3]);
  const candidates = op.src[4] === NONE ? undefined : s.ints(op.src[4]);
  const m = candidates ? s.size(op.src[4]) : 0;
  const shape = s.shape(op.src[0]), [d, H] = shape, [n] = s.shape(op.dst[0]);
  const ids = s.intResult(op.dst[0]).fill(-1);
  const { ratio } = cache.spec.streams[stream];
  for (let r = 0; r < positions.length; r++) {
    const visible = Math.floor((positions[r] + 1) / ratio);
    const { pages, at } = s.pagesOf(cacheIndex, seqs[r]);
    const rows = cache.rows(stream, pages, at, 0, visible);
    const scores = indexScores(cache, rows, q, r * d * H, shape, w, r * H, scale, stream);
    const listed = candidates && new Set(candidates.subarray(r * m, (r + 1) * m));
    const best = new Float64Array(Math.ceil(visible / unit)).fill(-Infinity);
    const takesPart = new Uint8Array(best.length);
    for (let row = 0; row < visible; row++) {
      if (listed && !listed.has(Math.floor(row / candidateUnit))) continue;
      const block = Math.floor(row / unit);
      takesPart[block] = 1;
      best[block] = Math.max(best[block], scores[row]);
    }
    if (pin && best.length > 0) {
      takesPart[best.length - 1] = 1;
      best[best.length - 1] = Infinity;
    }
    const ranked = [...best.keys()].filter((i) => takesPart[i]).sort((a, b) => best[b] - best[a] || a - b);
    ids.set(ranked.slice(0, n).sort((a, b) => a - b), r * n);
  }
}

export function pool(s: Step, op: OpDesc): void {
  const [kind, cacheIndex, kStream, zStream, ratio, overlap] = op.params, cache = s.caches[cacheIndex];
  const positions = s.ints(op.src[0]), seqs = s.ints(op.src[1]), ape = s.vector(op.src[2]);
  const y = s.result(op.dst[0]), [n] = s.shape(op.dst[0]), width = cache.spec.streams[kStream].ne;
  for (let r = 0; r < positions.length; r++) {
    const end = positions[r] + 1;
    if (end % ratio !== 0) continue;
    const { pages, at } = s.pagesOf(cacheIndex, seqs[r]);
    const from = overlap ? Math.max(0, end - 2 * ratio) : end - ratio, count = end - from;
    const k = cache.rows(kStream, pages, at, from, end), z = cache.rows(zStream, pages, at, from, end);
    const weights = new Float64Array(count);
    for (let c = 0; c < n; c++) {
      // The second half of a row belongs to its own group, the first to the next one.
      const part = (i: number) => c + (overlap && from + i >= end - ratio ? n : 0);
      if (kind === POOL_KIND.mean) weights.fill(1 / count);
      else {
        for (let i = 0; i < count; i++) {
          const j = (from + i) % ratio;
          weights[i] = z.page[i][z.at[i] + part(i)] + (ape ? ape[j * width + part(i)] : 0);
        }
        softmaxInPlace(weights, 0, count);
      }
      let sum = 0;
      for (let i = 0; i < count; i++) sum += weights[i] * k.page[i][k.at[i] + part(i)];
      y[r * n + c] = sum;
    }
  }
}
