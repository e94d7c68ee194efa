/**
 * Puts a program on several devices: each op where its weights or caches lie, or else where most of what it reads is, and a COPY
 * wherever a value is read on another device than it was made on. What is computed stays the same.
 *
 * A cache becomes one cache for each device that has streams of it; they share page numbers.
 * @module
 */
import { NONE, OPS } from "./ops.ts";
import {
  type CacheDesc,
  KIND,
  type Ne,
  type OpDesc,
  type Program,
  type TensorDesc,
  USE,
  type WeightDesc,
} from "./program.ts";

/** Weights that lie elsewhere than their layer. */
export interface PlaceOverride {
  /** Of the weight's name. */
  readonly pattern: RegExp;
  /** Index of the device. */
  readonly device: number;
}

/** Which device has what. Devices are numbers here. */
export interface Placement {
  /** Of each layer: its weights, and the caches of its positions and states. */
  readonly layers: readonly number[];
  /** Of what comes behind the last layer. What comes before the first is on that one's device. */
  readonly output: number;
  /** The first that fits a weight's name decides. */
  readonly overrides: readonly PlaceOverride[];
}

/** The layer that a weight or a stream is of. */
export function layerOf(name: string): number | undefined {
  const found = /(?:^|\.)blk\.(\d+)\./.exec(name);
  return found ? Number(found[1]) : undefined;
}

/** Everything on one device. */
export function placedOn(device: number, n_layer: number): Placement {
  return { layers: new Array<number>(n_layer).fill(device), output: device, overrides: [] };
}

/** The device of a placement that has everything; undefined where there are several. */
export function onlyDevice(p: Placement): number | undefined {
  const all = new Set([...p.layers, p.output, ...p.overrides.map((o) => o.device)]);
  return all.size === 1 ? p.output : undefined;
}

/** Parameters of an op that name a cache, and the streams of it that go with each. */
const CACHES: Readonly<Record<string, readonly (readonly [cache: string, ...streams: string[]])[]>> = {
  STREAM_WRITE: [["cache", "stream"]],
  ATTENTION: [["a_cache", "a_k", "a_v"], ["b_cache", "b_k", "b_v"]],
  INDEX: [["k_cache", "k_stream"]],
  POOL: [["cache", "k_stream", "z_stream"]],
  CONV: [["cache", "stream"]],
  DELTA: [["cache", "stream"]],
  SQUARES: [["cache", "stream"]],
};

/** Where an op names caches: the places of these parameters. */
function cacheParams(op: OpDesc): { cache: number; streams: number[] }[] {
  const names = OPS[op.op].params.map(([name]) => name as string);
  return (CACHES[op.op] ?? []).map(([cache, ...streams]) => ({
    cache: names.indexOf(cache),
    streams: streams.map((s) => names.indexOf(s)),
  })).filter((c) => op.params[c.cache] !== NONE);
}

/** The streams that an op names, as keys. */
function streamKeys(op: OpDesc): string[] {
  return cacheParams(op).flatMap(({ cache, streams }) => streams.map((s) => `${op.params[cache]},${op.params[s]}`));
}

/** Elements of a tensor. */
function count(ne: readonly number[]): number {
  return ne.reduce((a, b) => a * b, 1);
}

/** The view shows all of the value that it looks at, in its order. */
function isWhole(view: TensorDesc, root: TensorDesc): boolean {
  if (view.offset !== 0 || count(view.ne) !== count(root.ne)) return false;
  let at = 1;
  return view.nb.every((nb, i) => (at *= view.ne[i], view.ne[i + 1] === 1 || nb === 0 || nb === at));
}

class Placer {
  readonly tensors: TensorDesc[];
  readonly ops: OpDesc[] = [];
  readonly weights: WeightDesc[] = [];
  readonly caches: CacheDesc[] = [];
  /** Of weights by index in the old program and device, of copies by what they show and device: the new tensor. */
  readonly #weightIds = new Map<string, number>();
  readonly #copies = new Map<string, number>();
  /** Of streams by cache and index in the old program. */
  readonly #streams = new Map<string, { device: number; cache: number; stream: number }>();
  /** What the last op of a layer was on. */
  #home: number;
  /** The last op that reads a weight of a layer: what comes behind is the output's. */
  readonly #lastLayerOp: number;

  constructor(readonly program: Program, readonly placement: Placement) {
    this.tensors = [...program.tensors];
    this.#home = this.#layer(0);
    this.#lastLayerOp = program.ops.findLastIndex((op) =>
      this.#weightsOf(op).some((w) => layerOf(w.name) !== undefined)
    );
    this.#placeStreams();
  }

  run(): Program {
    this.program.ops.forEach((op, i) => this.#place(op, i));
    // Weights that no op reads are declared still.
    this.program.tensors.forEach((t, id) => {
      if (t.kind !== KIND.WEIGHT || this.tensors[id] !== t) return;
      const w = this.program.weights[t.ref], device = this.#weightDevice(w, true, 0) ?? this.#layer(0);
      this.tensors[id] = { ...t, ref: this.weights.push({ ...w, device }) - 1, device };
    });
    this.tensors.forEach((t, id) => {
      if (t.kind === KIND.VIEW) this.tensors[id] = { ...t, device: this.tensors[t.ref].device };
    });
    return { ...this.program, tensors: this.tensors, ops: this.ops, weights: this.weights, caches: this.caches };
  }

  #layer(il: number): number {
    return this.placement.layers[il] ?? this.placement.output;
  }

  #weightsOf(op: OpDesc): WeightDesc[] {
    return op.src.flatMap((id) => {
      const t = this.program.tensors[id];
      return t?.kind === KIND.WEIGHT ? [this.program.weights[t.ref]] : [];
    });
  }

  /** Where a weight lies; undefined: wherever it is read. */
  #weightDevice(w: WeightDesc, isMatrix: boolean, index: number): number | undefined {
    if (w.constant) return undefined;
    const moved = this.placement.overrides.find((o) => o.pattern.test(w.name));
    if (moved) return moved.device;
    const il = layerOf(w.name);
    if (il !== undefined) return this.#layer(il);
    if (!isMatrix) return undefined;
    return index > this.#lastLayerOp ? this.placement.output : this.#layer(0);
  }

  /** Streams are on their layer's device; where an op reads those of several layers, on that of the first. */
  #placeStreams(): void {
    const first = new Map<string, number>();
    const all = this.program.caches.flatMap((c, of) =>
      c.streams.map((s, i) => [`${of},${i}`, layerOf(s.name)] as const)
    );
    for (const [key, il] of all) first.set(key, il ?? Infinity);
    const read = this.program.ops.map((op) => streamKeys(op)).filter((keys) => keys.length > 1);
    for (let changed = true; changed;) {
      changed = false;
      for (const keys of read) {
        const least = Math.min(...keys.map((k) => first.get(k)!));
        changed ||= keys.some((k) => first.get(k) !== least);
        for (const k of keys) first.set(k, least);
      }
    }
    this.program.caches.forEach((c, of) => {
      c.streams.forEach((s, i) => {
        const device = this.#layer(first.get(`${of},${i}`)!);
        let cache = this.caches.findIndex((p) => p.of === of && p.device === device);
        if (cache < 0) cache = this.caches.push({ ...c, of, device, streams: [] }) - 1;
        const stream = this.caches[cache].streams.push(s) - 1;
        this.#streams.set(`${of},${i}`, { device, cache, stream });
      });
    });
  }

  #place(op: OpDesc, index: number): void {
    const device = this.#deviceOf(op, index);
    const src = op.src.map((id, i) => id === NONE ? NONE : this.#operand(id, device, op, i));
    const params = [...op.params];
    for (const { cache, streams } of cacheParams(op)) {
      const places = streams.map((s) => this.#streams.get(`${op.params[cache]},${op.params[s]}`)!);
      params[cache] = places[0].cache;
      streams.forEach((s, i) => params[s] = places[i].stream);
    }
    for (const id of op.dst) this.tensors[id] = { ...this.tensors[id], device };
    this.ops.push({ ...op, device, src, params });
  }

  #deviceOf(op: OpDesc, index: number): number {
    const [stream] = streamKeys(op);
    if (stream !== undefined) return this.#home = this.#streams.get(stream)!.device;
    const isMatrix = op.op === "MUL_MAT" || op.op === "MUL_MAT_ID" || op.op === "GET_ROWS";
    for (const w of this.#weightsOf(op)) {
      const device = this.#weightDevice(w, isMatrix, index), il = layerOf(w.name);
      if (device === undefined) continue;
      // Where an override puts a weight tells nothing of where its layer goes on.
      this.#home = il === undefined ? device : this.#layer(il);
      return device;
    }
    return this.#cheapest(op);
  }

  /** The device with most of what the op reads; where several have as much, the one that its layer is on. */
  #cheapest(op: OpDesc): number {
    const held = new Map<number, number>([[this.#home, 0]]);
    for (const id of new Set(op.src)) {
      const t = this.tensors[id];
      if (id === NONE || t.kind === KIND.WEIGHT || this.#isInput(id)) continue;
      const root = t.kind === KIND.VIEW ? t.ref : id;
      const on = new Set([this.tensors[root].device]);
      for (const device of held.keys()) if (this.#copies.has(`${root},${device}`)) on.add(device);
      for (const device of on) held.set(device, (held.get(device) ?? 0) + count(t.ne));
    }
    // The home comes first in the map.
    return [...held].reduce((best, next) => next[1] > best[1] ? next : best)[0];
  }

  #isInput(id: number): boolean {
    const t = this.tensors[id];
    return t.kind === KIND.INPUT || (t.kind === KIND.VIEW && this.tensors[t.ref].kind === KIND.INPUT);
  }

  /** A source as an op on a device reads it. */
  #operand(id: number, device: number, op: OpDesc, i: number): number {
    const t = this.tensors[id];
    if (t.kind === KIND.WEIGHT) return this.#weight(id, device, op, i);
    if (this.#isInput(id)) return id;
    const root = t.kind === KIND.VIEW ? t.ref : id;
    if (this.tensors[root].device === device) return id;
    if (t.kind !== KIND.VIEW) return this.#copy(id, `${id},${device}`, device);
    const key = `${root},${device}`;
    if (!this.#copies.has(key) && !isWhole(t, this.tensors[root])) {
      return this.#copy(id, `${root},${t.offset},${t.nb},${t.ne},${device}`, device);
    }
    const ref = this.#copy(root, key, device), shown = `${ref},${t.offset},${t.nb},${t.ne}`;
    return this.#once(shown, () => this.tensors.push({ ...t, ref, device }) - 1);
  }

  #once(key: string, make: () => number): number {
    const id = this.#copies.get(key) ?? make();
    this.#copies.set(key, id);
    return id;
  }

  #copy(id: number, key: string, device: number): number {
    return this.#once(key, () => {
      const { type, ne, rows } = this.tensors[id];
      const dst = this.tensors.push({
        kind: KIND.SCRATCH,
        type,
        ne,
        ref: 0,
        device,
        offset: 0,
        nb: [0, 0, 0],
        limit: 0,
        rows,
      }) - 1;
      this.ops.push({ op: "COPY", device, dst: [dst], src: [id], params: [] });
      return dst;
    });
  }

  /** A weight on a device, for what it is read by there. */
  #weight(id: number, device: number, op: OpDesc, i: number): number {
    const t = this.program.tensors[id];
    const old = this.program.weights[t.ref], key = `${t.ref},${device}`;
    const isTable = op.op === "GET_ROWS", isMatrix = (op.op === "MUL_MAT" || op.op === "MUL_MAT_ID") && i === 0;
    const use = isTable ? USE.ROWS | (old.uses & USE.HOST) : isMatrix ? USE.MUL_MAT : USE.VECTOR;
    const known = this.#weightIds.get(key);
    if (known !== undefined) {
      this.weights[this.tensors[known].ref].uses |= use;
      return known;
    }
    const ref = this.weights.push({ ...old, device, uses: use }) - 1;
    const placed = { ...t, ref, device }, isFirst = this.tensors[id] === t;
    if (isFirst) this.tensors[id] = placed;
    const made = isFirst ? id : this.tensors.push(placed) - 1;
    this.#weightIds.set(key, made);
    return made;
  }
}

/** The program on the devices of a placement. */
export function placeProgram(program: Program, placement: Placement): Program {
  return new Placer(program, placement).run();
}

/** Bytes of one value, and what its rows count, that cross between devices in a step. */
export interface Crossing {
  readonly from: number;
  readonly to: number;
  readonly shape: Ne;
  readonly rows: TensorDesc["rows"];
  /** Of one row. */
  readonly bytes: number;
}

/** What crosses between devices. */
export function crossings(p: Program): Crossing[] {
  return p.ops.flatMap((op) => {
    if (op.op !== "COPY") return [];
    const src = p.tensors[op.src[0]], dst = p.tensors[op.dst[0]];
    const root = src.kind === KIND.VIEW ? p.tensors[src.ref] : src;
    if (root.kind === KIND.INPUT || src.device === dst.device) return [];
    const rows = dst.rows === "out" ? p.n_out : p.n_tok;
    return [{ from: src.device, to: dst.device, shape: dst.ne, rows: dst.rows, bytes: 4 * count(dst.ne) / rows }];
  });
}
