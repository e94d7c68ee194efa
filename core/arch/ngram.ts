/**
 * Rows of a table that is addressed by hashes of the last tokens: for each number of tokens n = 2 .. , some heads, each with a
 * prime of its own. The hash is the XOR of products `id m` of the n tokens, exact in 63 bits.
 * Source: Engram (arXiv 2601.07372); the vendor's `inference/engram.py`; huggingface/transformers `modeling_qwen4_exp.py`.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Keys } from "./keys.ts";

export interface NgramSpec {
  /** The table's tensor, and how many rows it has. */
  readonly table: string;
  readonly n_rows: number;
  /** Numbers of a row. */
  readonly width: number;
  /** Of each token back, from the row's own. */
  readonly multipliers: readonly bigint[];
  /** Heads for each number of tokens. */
  readonly n_head: number;
  /** Of each head, those of two tokens first. */
  readonly primes: readonly bigint[];
  readonly offsets: readonly bigint[];
}

/** Checks the arrays of keys `names` against each other and the table. @throws {ModelError} `model.key_value`, ... */
export function checkNgram(
  k: Keys,
  s: NgramSpec,
  names: { multipliers: string; primes: string; offsets: string },
): NgramSpec {
  const n = s.n_head * (s.multipliers.length - 1);
  k.want(s.multipliers.length >= 2, names.multipliers, s.multipliers.length, "numbers of at least two tokens");
  k.want(s.primes.length === n && s.primes.every((p) => p > 0n), names.primes, s.primes, `${n} numbers above 0`);
  k.want(s.offsets.length === n, names.offsets, s.offsets.length, `${n} numbers`);
  const past = s.offsets.find((o, i) => o < 0n || o + s.primes[i] > BigInt(s.n_rows));
  k.want(past === undefined, names.offsets, past, `heads inside the ${s.n_rows} rows of ${s.table}`);
  return s;
}

/**
 * The rows of each token, one after the other: `[heads * width, n_tok]`.
 * @param ids What is hashed for the last tokens, from the token's own back.
 */
export function ngramRows(
  op: Ops,
  name: string,
  s: NgramSpec,
  ids: (token: (back: number) => number) => ArrayLike<bigint>,
): T {
  const { multipliers, primes, offsets, n_head } = s;
  const rows = op.derived({
    name,
    type: "i32",
    limit: s.n_rows,
    row(out, at, _position, token) {
      const id = ids(token);
      let hash = id[0] * multipliers[0];
      for (let back = 1; back < multipliers.length; back++) {
        hash ^= id[back] * multipliers[back];
        for (let b = (back - 1) * n_head; b < back * n_head; b++) out[at + b] = Number(hash % primes[b] + offsets[b]);
      }
    },
  }, [primes.length]);
  return op.get_rows(op.weights()(s.table, [s.width, s.n_rows]), rows, { host: true }).flat();
}
