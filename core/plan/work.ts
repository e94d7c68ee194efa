/**
 * What a step of a model does, in bytes and multiply-adds: the terms that a prediction is made of.
 * @module
 */
import { buildProgram, type Model } from "../arch/model.ts";
import { rowBytes } from "../gguf/types.ts";
import { NONE, OPS } from "../program/ops.ts";
import { KIND, type OpDesc, type Program } from "../program/program.ts";
import { partOf } from "./cache.ts";
import type { Plan } from "./plan.ts";

/** Where something is computed. */
export type Place = "host" | "card";

/** Products with one weight. */
export interface ProductWork {
  readonly name: string;
  readonly type: string;
  readonly place: Place;
  /** Of all its matrices. */
  readonly bytes: number;
  /** Multiply-adds of a row. */
  readonly macs: number;
  /** Computed for output rows only. */
  readonly outputs: boolean;
  /** Of a routed weight: which layer's, how many experts that has, and how many a row uses. */
  readonly routed?: { readonly layer: number; readonly n_expert: number; readonly n_used: number };
}

/** Attention of one layer over one cache. */
export interface AttentionWork {
  readonly place: Place;
  /** Of a row and a position that it sees. */
  readonly macs: number;
  /** Of a position, read for each sequence. */
  readonly bytes: number;
  /** The most positions that a row sees; Infinity for all. */
  readonly most: number;
}

/** Slots of experts. */
export interface PoolWork {
  readonly n_slots: number;
  readonly layers: readonly number[];
}

export interface Work {
  readonly products: readonly ProductWork[];
  readonly attention: readonly AttentionWork[];
  /** How often a step goes on from host to card or back, and the bytes of a row's values that pass. */
  readonly n_crossing: number;
  readonly crossing_bytes: number;
  /** Ops of a step. */
  readonly n_op: Readonly<Record<Place, number>>;
  /** Names of routed weights, by layer. */
  readonly layers: readonly (readonly string[])[];
  readonly pools: readonly PoolWork[];
}

/** A parameter of an op by its name. */
function param(op: OpDesc, name: string): number {
  return op.params[OPS[op.op].params.findIndex(([own]) => own === name)];
}

function attentionOf(p: Program, op: OpDesc, plan: Plan, place: Place): AttentionWork[] {
  const [dk, n_head] = p.tensors[op.src[0]].ne, dv = p.tensors[op.dst[0]].ne[0];
  return ["a", "b"].flatMap((segment, i) => {
    const cache = param(op, `${segment}_cache`);
    if (cache === NONE) return [];
    const { plan: whole, part } = partOf(plan.caches, p.caches[cache]);
    const [k, v] = ["k", "v"].map((s) => whole.streams[whole.parts[part].streams[param(op, `${segment}_${s}`)]]);
    const bytes = [...new Set([k, v])].reduce((n, s) => n + rowBytes(s.type, s.ne), 0);
    const select = op.src[4 + i] ?? NONE, window = param(op, `${segment}_window`);
    const listed = select === NONE ? Infinity : p.tensors[select].ne[0] * param(op, `${segment}_unit`);
    const { ratio } = k;
    const most = Math.min(listed * ratio, window === 0 ? Infinity : window);
    return [{ place, macs: n_head * (dk + dv) / ratio, bytes: bytes / ratio, most }];
  });
}

/** The work of a planned model. */
export function workOf(model: Model, plan: Plan): Work {
  const p = buildProgram(model, { n_tok: 2, n_out: 1, n_seq: 1, n_page: 1 }, 1, plan.placement);
  const kinds = new Map(plan.devices.map(({ device }) => [device.index, device.kind]));
  const placeOf = (op: OpDesc): Place => kinds.get(op.device) === "cuda" ? "card" : "host";
  const layers: string[][] = [], layerOf = new Map<number, number>();
  const products: ProductWork[] = [], attention: AttentionWork[] = [];
  const n_op = { host: 0, card: 0 };
  let n_crossing = 0, before: Place | undefined;
  for (const op of p.ops) {
    const w = op.op === "MUL_MAT" || op.op === "MUL_MAT_ID" ? p.tensors[op.src[0]] : undefined;
    const weight = w?.kind === KIND.WEIGHT ? p.weights[w.ref] : undefined;
    const place = placeOf(op);
    n_op[place]++;
    if (before !== undefined && place !== before) n_crossing++;
    before = place;
    if (op.op === "ATTENTION") attention.push(...attentionOf(p, op, plan, place));
    if (weight === undefined) continue;
    const [n_in, n_out, n_expert] = weight.ne, matrices = weight.ne[2] * weight.ne[3];
    const routed = op.op === "MUL_MAT_ID";
    const n_used = routed ? p.tensors[op.src[2]].ne[0] : matrices;
    if (routed && !layerOf.has(op.src[2])) layerOf.set(op.src[2], layers.push([]) - 1);
    const layer = layerOf.get(op.src[2])!;
    if (routed) layers[layer].push(weight.name);
    products.push({
      name: weight.name,
      type: weight.type.name,
      place,
      bytes: rowBytes(weight.type, n_in) * n_out * matrices,
      macs: n_in * n_out * n_used,
      outputs: p.tensors[op.dst[0]].rows === "out",
      ...(routed ? { routed: { layer, n_expert, n_used } } : {}),
    });
  }
  const pools = plan.pools.map(({ n_slots, groups }) => ({
    n_slots,
    layers: groups.map((g) => layers.findIndex((names) => names.includes(g.weights[0].name))),
  }));
  return {
    products,
    attention,
    n_crossing,
    crossing_bytes: n_crossing === 0 ? 0 : plan.moved_bytes,
    n_op,
    layers,
    pools,
  };
}
