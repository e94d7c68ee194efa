/**
 * Engram: rows of a table addressed by hashes of the last tokens are added to the streams of a residual, by a gate of each stream
 * and a key made of the rows. Tokens are hashed by class: ids that read the same, but for case, accents and spaces, share one.
 * Source: Engram (arXiv 2601.07372); the vendor's `inference/engram.py` of DeepSeek V4.1.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Spec } from "./architecture.ts";
import { linear } from "./decoder.ts";
import type { Keys } from "./keys.ts";
import { checkNgram, ngramRows, type NgramSpec } from "./ngram.ts";

export interface EngramSpec {
  /** By layer. */
  readonly sites: ReadonlyMap<number, NgramSpec>;
  /** Class of every token id, and that of the token which stands before a text. */
  readonly token_class: readonly bigint[];
  readonly pad_class: bigint;
  readonly norm_eps: number;
}

/**
 * Reads each site's share of the hash arrays. Its table is `blk.N.engram_embd`, or a part of `per_layer_token_embd` with offsets
 * that count from the first site's first row.
 * @throws {ModelError} `model.key_value`, `model.missing_key`, `model.missing_tensor`, ...
 */
export function readEngram(k: Keys, s: Spec): EngramSpec {
  const layers = k.ints("engram.layer_ids", []), norm_eps = k.f32("attention.layer_norm_rms_epsilon");
  if (layers.length === 0) return { sites: new Map(), token_class: [], pad_class: 0n, norm_eps };
  const names = { multipliers: "engram.multipliers", primes: "engram.primes", offsets: "engram.offsets" };
  const n_head = k.u32("engram.head_count"), n_token = k.u32("engram.max_ngram_size"), n = n_head * (n_token - 1);
  const part = (key: string, i: number, n: number) => k.bigints(key).slice(i * n, (i + 1) * n);
  const token_class = k.ints("engram.token_map").map(BigInt);
  k.want(token_class.length >= s.n_vocab, "engram.token_map", token_class.length, `classes of ${s.n_vocab} ids`);
  const sites = layers.map((il, i): [number, NgramSpec] => {
    const own = `blk.${il}.engram_embd.weight`, table = k.file.has(own) ? own : "per_layer_token_embd.weight";
    const site = {
      table,
      n_rows: k.file.tensor(table).ne[1] ?? 1,
      width: k.u32("engram.key_length"),
      multipliers: part(names.multipliers, i, n_token),
      n_head,
      primes: part(names.primes, i, n),
      offsets: part(names.offsets, i, n),
    };
    return [il, checkNgram(k, site, names)];
  });
  return { sites: new Map(sites), token_class, pad_class: BigInt(k.u32("engram.pad_id")), norm_eps };
}

/** The streams h `[n_embd, n, n_tok]` with what layer `il`'s table holds for the last tokens; as they are where it has none. */
export function engram(op: Ops, s: EngramSpec, il: number, h: T): T {
  const table = s.sites.get(il);
  if (!table) return h;
  const w = op.weights(`blk.${il}`), [D, n] = h.ne;
  const rows = ngramRows(op, `engram.${il}`, table, (token) => {
    // From the beginning of the text on, everything before it is the padding token.
    let before = false;
    return table.multipliers.map((_, back) => {
      const id = token(back);
      before ||= id < 0;
      return before ? s.pad_class : s.token_class[id];
    });
  });
  const kv = linear(op, w, "engram_wkv", rows, (n + 1) * D);
  const normed = (y: T, name: string) => op.rms_norm(y, w(name, [D, n]), s.norm_eps);
  const dot = op.dot(normed(h, "engram_q"), normed(kv.slice(0, n * D).heads(n), "engram_k")); // [1, n, n_tok]
  const gate = op.unary("sigmoid", op.unary("signed_sqrt", op.scale(dot, D ** -0.5), 1e-6));
  return op.add(h, op.mul(kv.slice(n * D, D).heads(1), gate));
}
