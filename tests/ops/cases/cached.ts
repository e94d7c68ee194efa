/** Cases of the ops in core/program/reference/cached.ts: rows of several sequences, over several pages, in caches of every type. */
import type { Segment, Stream, T } from "../../../core/program/program.ts";
import { type CacheType, type CaseBuilder, type Fill, NMSE, normal, type OpCase, type Size, whole } from "../case.ts";

const CACHE_TYPES: readonly CacheType[] = ["f32", "f16", "q8_0"];

/** f16 keeps activations that come from f32 tables as the reference does: to the bit. */
const nmseOf = (cache: CacheType) => cache === "q8_0" ? NMSE.q8_0 : NMSE.curve;

/** Whole numbers with a 127 in each 32, which every cache type keeps as they are. */
const exactKeys: Fill = (next, i) => i % 32 === 0 ? 127 : whole(-3, 3)(next, i);

/** Rows kept in a stream. */
function kept(b: CaseBuilder, name: string, n: number, options: {
  role?: "k" | "v" | "f32";
  ratio?: number;
  window?: number;
  fill?: Fill;
} = {}): Stream {
  const { fill, ...rest } = options;
  const stream = b.op.stream(name, n, { role: "k", ...rest });
  b.op.write(b.act(`${name} rows`, [n], fill), stream);
  return stream;
}

function attend(b: CaseBuilder, q: T, a: Segment, options: Omit<Parameters<typeof b.op.attention>[2], "scale">): void {
  b.out("y", b.op.attention(q, a, { scale: q.ne[0] ** -0.5, ...options }));
}

/** Keys and values of one width, for `n_head_kv` heads. */
function keysAndValues(b: CaseBuilder, d: number, n_head_kv: number, window = 0): Segment {
  return b.op.kv("l", b.act("k", [d, n_head_kv]), b.act("v", [d, n_head_kv]), { window });
}

export function cachedCases(size: Size): OpCase[] {
  return size === "bench" ? benchCases() : [...attentionCases(), ...indexCases(), ...poolCases()];
}

/** What rows see behind their own, and how wide heads are. */
const AHEAD: readonly [what: string, d: number, window: number, ahead: number][] = [
  ["all rows of a sequence", 64, 0, Infinity],
  ["a window to both sides", 64, 17, 16],
  ["a window to both sides, heads of 96", 96, 65, 64],
  ["three rows ahead", 32, 0, 3],
];

function attentionCases(): OpCase[] {
  const cases: OpCase[] = [];
  for (const cache of CACHE_TYPES) {
    const attention = (what: string, sequences: number[], build: OpCase["build"], whole = false) =>
      cases.push({ name: `ATTENTION ${cache}: ${what}`, sequences, cache, nmse: nmseOf(cache), whole, build });
    attention("groups of 4 heads", [150, 3, 70], (b) => {
      attend(b, b.act("q", [64, 8]), keysAndValues(b, 64, 2), { n_head_kv: 2 });
    });
    attention("a key head for each head, heads of 32", [70, 64, 1], (b) => {
      attend(b, b.act("q", [32, 3]), keysAndValues(b, 32, 3), { n_head_kv: 3 });
    });
    for (const [what, n, window, ahead] of AHEAD) {
      attention(
        what,
        [150, 1, 70, 33],
        (b) => attend(b, b.act("q", [n, 4]), keysAndValues(b, n, 2, window), { n_head_kv: 2, ahead }),
        true,
      );
    }
    attention("compressed rows that look ahead", [150, 9, 3], (b) => {
      attend(b, b.act("q", [64, 3]), { k: kept(b, "near", 64, { window: 9 }) }, {
        n_head_kv: 1,
        b: { k: kept(b, "far", 64, { ratio: 4 }) },
        ahead: 8,
      });
    }, true);
    attention("selected rows before and behind", [100, 40], (b) => {
      const list = b.rowsOf("a", [20], (next) => {
        const all = [...new Set(Array.from({ length: 20 }, () => Math.floor(next() * 100)))].sort((x, y) => x - y);
        return [...all, ...new Array<number>(20 - all.length).fill(-1)];
      });
      attend(b, b.act("q", [64, 2]), { ...keysAndValues(b, 64, 1), select: list }, { n_head_kv: 1, ahead: 30 });
    }, true);
    attention("values narrower than keys, sinks, window", [150, 20], (b) => {
      const seg = b.op.kv("l", b.act("k", [96, 2]), b.act("v", [64, 2]), { window: 33 });
      attend(b, b.act("q", [96, 4]), seg, { n_head_kv: 2, sinks: b.weight("sinks", [4]) });
    });
    attention("a window with pages given back", [330, 5], (b) => {
      attend(b, b.act("q", [32, 2]), keysAndValues(b, 32, 1, 70), { n_head_kv: 1 });
    });
    attention("values are the first numbers of the keys, one head for all", [140, 65], (b) => {
      attend(b, b.act("q", [96, 5]), { k: kept(b, "latent", 96) }, { n_head_kv: 1, dv: 64 });
    });
    attention("values are the first numbers of two key heads", [66, 3], (b) => {
      attend(b, b.act("q", [64, 4]), { k: kept(b, "latent", 128) }, { n_head_kv: 2, dv: 32 });
    });
    attention("heads of 256, 8 to a key head", [40, 2], (b) => {
      attend(b, b.act("q", [256, 16]), keysAndValues(b, 256, 2), { n_head_kv: 2 });
    });
    attention("33 sequences at once", Array.from({ length: 33 }, (_, i) => 1 + (i * 31) % 70), (b) => {
      attend(b, b.act("q", [32, 2]), keysAndValues(b, 32, 1), { n_head_kv: 1 });
    });
    attention("scores far apart", [70], (b) => {
      attend(b, b.act("q", [64, 2], normal(20)), keysAndValues(b, 64, 1), { n_head_kv: 1 });
    });
    attention("scores through a soft cap, q a slice", [90], (b) => {
      attend(b, b.act("q", [80, 4], normal(3)).slice(8, 64), keysAndValues(b, 64, 2), { n_head_kv: 2, softcap: 2.5 });
    });
    attention("a window and compressed rows of ratio 4, sinks", [150, 9, 3], (b) => {
      attend(b, b.act("q", [64, 3]), { k: kept(b, "near", 64, { window: 32 }) }, {
        n_head_kv: 1,
        sinks: b.weight("sinks", [3]),
        b: { k: kept(b, "far", 64, { ratio: 4 }) },
      });
    });
    attention("a window and compressed rows of ratio 128", [400, 129], (b) => {
      attend(b, b.act("q", [32, 2]), { k: kept(b, "near", 32, { window: 20 }) }, {
        n_head_kv: 1,
        b: { k: kept(b, "far", 32, { ratio: 128 }) },
      });
    });
    attention("selected rows", [150, 6], (b) => {
      const select = b.op.index(b.act("iq", [32, 2], whole(-2, 2)), kept(b, "ik", 32, { fill: exactKeys }), 16, {
        scale: 0.5,
      });
      attend(b, b.act("q", [64, 4]), { ...keysAndValues(b, 64, 1), select }, { n_head_kv: 1 });
    });
    attention("selected groups of 4 rows and the last incomplete one", [150, 6], (b) => {
      const pooled = kept(b, "ik", 32, { ratio: 4, fill: exactKeys });
      const select = b.op.index(b.act("iq", [32, 2], whole(-2, 2)), pooled, 5, { scale: 0.5 });
      attend(b, b.act("q", [64, 4]), { k: kept(b, "latent", 64), select, unit: 4 }, { n_head_kv: 1, dv: 32 });
    });
    attention("selected compressed rows behind a window, both segments selected", [150, 40], (b) => {
      const near = kept(b, "near", 32, { window: 64 }), far = kept(b, "far", 32, { ratio: 2 });
      // Numbers of rows that are not there yet are passed over.
      const list = (name: string, n: number, to: number) =>
        b.rowsOf(name, [n], (next) => {
          const all = [...new Set(Array.from({ length: n }, () => Math.floor(next() * to)))].sort((x, y) => x - y);
          return [...all, ...new Array<number>(n - all.length).fill(-1)];
        });
      attend(b, b.act("q", [32, 2]), { k: near, select: list("a", 40, 150) }, {
        n_head_kv: 1,
        sinks: b.weight("sinks", [2]),
        b: { k: far, select: list("b", 12, 75) },
      });
    });
  }
  return cases;
}

function indexCases(): OpCase[] {
  const cases: OpCase[] = [];
  for (const cache of CACHE_TYPES) {
    const q = (b: CaseBuilder) => b.act("q", [32, 3], whole(-3, 3));
    const w = (b: CaseBuilder) => b.act("w", [3], whole(0, 4));
    const index = (what: string, sequences: number[], build: OpCase["build"]) =>
      cases.push({ name: `INDEX ${cache}: ${what}`, sequences, cache, nmse: 0, build });
    index("rows, heads weighted", [150, 7], (b) => {
      b.out("ids", b.op.index(q(b), kept(b, "k", 32, { fill: exactKeys }), 12, { scale: 0.25, w: w(b) }));
    });
    index("rows of ratio 4, more asked for than there are", [150, 7], (b) => {
      b.out("ids", b.op.index(q(b), kept(b, "k", 32, { ratio: 4, fill: exactKeys }), 50, { scale: 0.25 }));
    });
    index("rows of ratio 4, the best", [200, 33], (b) => {
      b.out("ids", b.op.index(q(b), kept(b, "k", 32, { ratio: 4, fill: exactKeys }), 6, { scale: 0.25, w: w(b) }));
    });
    index("blocks of 8 rows", [200, 33], (b) => {
      b.out("ids", b.op.index(q(b), kept(b, "k", 32, { fill: exactKeys }), 5, { scale: 0.25, w: w(b), unit: 8 }));
    });
    index("blocks of 8 rows, the last kept", [200, 33], (b) => {
      const k = kept(b, "k", 32, { fill: exactKeys });
      b.out("ids", b.op.index(q(b), k, 5, { scale: 0.25, w: w(b), unit: 8, pin: true }));
    });
    index("rows of the best blocks", [200, 33], (b) => {
      const k = kept(b, "k", 32, { ratio: 2, fill: exactKeys });
      const candidates = b.op.index(q(b), k, 4, { scale: 0.25, w: w(b), unit: 8, pin: true });
      const q2 = b.act("q2", [32, 2], whole(-3, 3));
      b.out("ids", b.op.index(q2, k, 10, { scale: 0.5, candidates, candidateUnit: 8 }));
    });
    index("many equal scores", [150], (b) => {
      const k = kept(b, "k", 32, { fill: (next, i) => i % 32 === 0 ? 127 : whole(0, 0)(next, i) });
      b.out("ids", b.op.index(q(b), k, 9, { scale: 1 }));
    });
  }
  return cases;
}

function poolCases(): OpCase[] {
  const cases: OpCase[] = [];
  const pool = (what: string, sequences: number[], build: OpCase["build"]) =>
    cases.push({ name: `POOL ${what}`, sequences, nmse: NMSE.curve, build });
  for (const window of [0, 8]) {
    const where = window > 0 ? ", streams of a window" : "";
    pool(`mean of 4${where}`, [75, 3, 12], (b) => {
      b.out("y", b.op.pool("mean", kept(b, "k", 20, { role: "f32", window }), 4));
    });
    pool(`softmax of 4${where}`, [75, 3, 12], (b) => {
      const k = kept(b, "k", 20, { role: "f32", window }), z = kept(b, "z", 20, { role: "f32", window });
      b.out("y", b.op.pool("softmax", k, 4, { z }));
    });
    pool(`softmax of 4 and a weight for each place${where}`, [75, 3, 12], (b) => {
      const k = kept(b, "k", 20, { role: "f32", window }), z = kept(b, "z", 20, { role: "f32", window });
      b.out("y", b.op.pool("softmax", k, 4, { z, ape: b.weight("ape", [20, 4]) }));
    });
    pool(`softmax of 4 with the group before${where}`, [75, 3, 12], (b) => {
      const k = kept(b, "k", 40, { role: "f32", window }), z = kept(b, "z", 40, { role: "f32", window });
      b.out("y", b.op.pool("softmax", k, 4, { z, ape: b.weight("ape", [40, 4]), overlap: true }));
    });
  }
  pool("softmax of 128, pooled again into rows that attention reads", [300, 127], (b) => {
    const k = kept(b, "k", 32, { role: "f32", window: 128 }), z = kept(b, "z", 32, { role: "f32", window: 128 });
    const far = b.op.stream("far", 32, { role: "k", ratio: 128 });
    const y = b.op.pool("softmax", k, 128, { z, ape: b.weight("ape", [32, 128]) });
    b.op.write(y, far);
    b.out("pooled", y);
    attend(b, b.act("q", [32, 2]), { k: kept(b, "near", 32, { window: 16 }) }, { n_head_kv: 1, b: { k: far } });
  });
  return cases;
}

/** Decoding by 8 sequences and the end of a prompt, over long contexts. */
function benchCases(): OpCase[] {
  const cases: OpCase[] = [];
  for (const cache of CACHE_TYPES) {
    for (const [sequences, timed] of [[new Array<number>(8).fill(4096), 1], [[4096], 512]] as const) {
      const rows = `${sequences.length * timed} rows over 4096`;
      const add = (name: string, build: OpCase["build"]) =>
        cases.push({ name: `${name}, ${rows}`, sequences, timed, cache, nmse: nmseOf(cache), build });
      add(`ATTENTION ${cache}: 32 heads of 128, 8 of keys`, (b) => {
        attend(b, b.act("q", [128, 32]), keysAndValues(b, 128, 8), { n_head_kv: 8 });
      });
      add(`ATTENTION ${cache}: 128 heads over a latent of 576`, (b) => {
        attend(b, b.act("q", [576, 128]), { k: kept(b, "latent", 576) }, { n_head_kv: 1, dv: 512 });
      });
      add(`INDEX ${cache}: the best 2048, 64 heads of 128`, (b) => {
        const k = kept(b, "k", 128, { fill: exactKeys });
        b.out("ids", b.op.index(b.act("q", [128, 64], whole(-3, 3)), k, 2048, { scale: 0.25 }));
      });
    }
  }
  return cases;
}
