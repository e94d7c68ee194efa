/**
 * The n-gram memory of DeepSeek V4.1: rows of a table are chosen by hashes of the last tokens. Files hold the tables and the
 * constants of the hash, which released code computes from the vocabulary and two numbers of the configuration.
 * @module
 */
import { ModelError } from "../../../core/errors.ts";
import type { Metadata } from "../../../core/gguf/metadata.ts";
import { tokenizerFromGguf } from "../../../core/tokenizer/mod.ts";
import type { Config } from "../config.ts";
import type { CheckpointFacts, FamilyOptions } from "../family.ts";
import type { Keys } from "../keys.ts";
import { numpyIntegers } from "../numpy_random.ts";
import type { Rules } from "../rules.ts";
import { concat, type View } from "../view.ts";
import { LAYER } from "./deepseek4.ts";

/** Limits above every release: a larger number is damage, and computing the constants must stay fast. */
const MAX_ROWS = 2 ** 28;
const MAX_SITES = 16;
const MAX_HEADS = 32;
const MAX_NGRAM = 8;

/** Blocks with a memory before them. */
function sites(c: Config): number[] {
  const layers = c.nums("engram_layer_ids") ?? [];
  const isBlock = (il: number) => Number.isInteger(il) && il >= 0 && il < c.n_layer;
  if (layers.length > MAX_SITES || new Set(layers).size !== layers.length || !layers.every(isBlock)) {
    const hint = "compare config.json with the one of the original release";
    throw wrong(c, "engram_layer_ids", layers, `at most ${MAX_SITES} different blocks of 0 to ${c.n_layer - 1}`, hint);
  }
  return layers;
}

interface Sizes {
  readonly layers: readonly number[];
  /** Longest n-gram; each length from 2 on has its own heads. */
  readonly n_gram: number;
  readonly n_head: number;
  readonly head_dim: number;
  readonly n_class: number;
}

function sizes(c: Config): Sizes {
  return {
    layers: sites(c),
    n_gram: c.needSize("engram_max_ngram_size", MAX_NGRAM),
    n_head: c.needSize("engram_n_heads", MAX_HEADS),
    head_dim: c.needSize("engram_head_dim"),
    n_class: c.needSize("engram_compressed_vocab_size"),
  };
}

/**
 * Root tensor of all tables one after the other. ASSUMPTION: no released file has this layout yet; the name is the one that
 * llama.cpp gives the n-gram table of `qwen4exp`.
 */
export const JOINT_TABLE = "per_layer_token_embd.weight";

export function engramRules(r: Rules, c: Config, { ngramLayout }: FamilyOptions): void {
  const layers = sites(c);
  if (layers.length === 0) return;
  const { n_gram, n_head, head_dim } = sizes(c);
  const streams = c.needInt("hc_mult");
  const width = (n_gram - 1) * n_head * head_dim;
  const blocks = (il: number) => layers.includes(il);
  const at = `${LAYER}.engram`;
  r.exact(`${at}.wkv.weight`, "blk.{il}.engram_wkv.weight", { shape: [(streams + 1) * c.n_embd, width], blocks })
    .exact(`${at}.q_weight`, "blk.{il}.engram_q.weight", { shape: [streams, c.n_embd], blocks })
    .exact(`${at}.k_weight`, "blk.{il}.engram_k.weight", { shape: [streams, c.n_embd], blocks });
  if (ngramLayout === "per-site") {
    r.exact(`${at}.embed.weight`, "blk.{il}.engram_embd.weight", { blocks });
    return;
  }
  const tables = new Map<number, View>();
  r.split(`${at}.embed.weight`, (view, il) => {
    tables.set(il, view);
    const all = layers.map((site) => tables.get(site));
    return all.every((v) => v !== undefined) ? [{ name: JOINT_TABLE, view: concat(all) }] : [];
  }, { blocks });
}

/** Odd multipliers for each site, small enough that products fit in 63 bits. */
function multipliers({ layers, n_gram, n_class }: Sizes): bigint[] {
  const bound = ((1n << 63n) - 1n) / BigInt(n_class) / 2n;
  return layers.flatMap((il) => numpyIntegers(10007 * il, bound, n_gram).map((x) => 2n * x + 1n));
}

function isPrime(n: number): boolean {
  if (n < 4) return n > 1;
  if (n % 2 === 0) return false;
  for (let d = 3; d * d <= n; d += 2) if (n % d === 0) return false;
  return true;
}

/** Rows of each head, by site: the next primes from the stated size on, none twice. */
export function primes(from: number, n_site: number, n_size: number, n_head: number): number[][] {
  const used = new Set<number>();
  return Array.from({ length: n_site }, () => {
    const own: number[] = [];
    for (let size = 0; size < n_size; size++) {
      let p = from;
      for (let head = 0; head < n_head; head++) {
        while (used.has(p) || !isPrime(p)) p++;
        used.add(p);
        own.push(p);
      }
    }
    return own;
  });
}

const ACCENT = /\p{Mn}/gu;
const ENDS = /^\p{White_Space}+|\p{White_Space}+$/gu;

/** What tokens are compared by: their text without case, accents and spaces around it. */
function classKey(text: string, raw: string): string {
  if (text.includes("\uFFFD")) return raw;
  // Lowercases letter by letter, so that a final sigma stays a plain sigma.
  const plain = Array.from(text.normalize("NFKC").normalize("NFD").replace(ACCENT, ""), (ch) => ch.toLowerCase()).join(
    "",
  )
    .replace(/[ \t\r\n]+/g, " ");
  const key = plain === " " ? plain : plain.replace(ENDS, "");
  return key === "" ? text : key;
}

/** Class of every token; classes are numbered in the order of their first tokens. */
export function tokenClasses(vocabulary: Metadata): { map: Int32Array; n_class: number } {
  const tokenizer = tokenizerFromGguf(vocabulary);
  const classes = new Map<string, number>();
  const map = Int32Array.from({ length: tokenizer.n_vocab }, (_, id) => {
    const text = tokenizer.isUnused(id) ? "" : tokenizer.decode([id], { special: true });
    const key = classKey(text, tokenizer.tokenText(id));
    let number = classes.get(key);
    if (number === undefined) classes.set(key, number = classes.size);
    return number;
  });
  return { map, n_class: classes.size };
}

function wrong(c: Config, field: string, got: unknown, expected: unknown, hint: string): ModelError {
  return new ModelError(
    "model.config",
    `Cannot use field "${field}" of ${c.file}: found ${JSON.stringify(got)}, expected ${JSON.stringify(expected)}`,
    { at: { file: c.file, field, got, expected }, hint },
  );
}

export function engramKeys(k: Keys, c: Config, facts: CheckpointFacts, { ngramLayout }: FamilyOptions): void {
  const layers = sites(c);
  if (layers.length === 0) return;
  const size = sizes(c);
  const { map, n_class } = tokenClasses(facts.vocabulary());
  if (n_class !== size.n_class) {
    const hint = "the n-gram tables were trained with another vocabulary: take the tokenizer files of the same release";
    throw wrong(c, "engram_compressed_vocab_size", size.n_class, n_class, hint);
  }
  const rows = primes(c.needSize("engram_vocab_size", MAX_ROWS), layers.length, size.n_gram - 1, size.n_head);
  const totals = rows.map((own) => own.reduce((a, b) => a + b, 0));
  const stated = c.nums("engram_num_embeddings");
  if (stated && stated.join() !== totals.join()) {
    throw wrong(c, "engram_num_embeddings", stated, totals, "the tables have other sizes than the hash needs");
  }
  for (const [site, il] of layers.entries()) {
    const shape = facts.shape(`layers.${il}.engram.embed.weight`);
    const expected = [totals[site], size.head_dim];
    if (!shape || shape.join() === expected.join()) continue;
    throw new ModelError(
      "model.tensor_shape",
      `Cannot use tensor "layers.${il}.engram.embed.weight" of ${c.file}: its shape is [${
        shape.join(", ")
      }], expected ` +
        `[${expected.join(", ")}]`,
      { at: { file: c.file, got: shape, expected }, hint: "the n-gram table is of another configuration" },
    );
  }
  let base = 0n;
  const offsets = rows.flatMap((own, site) => {
    let at = ngramLayout === "concatenated" ? base : 0n;
    base += BigInt(totals[site]);
    return own.map((n) => {
      const first = at;
      at += BigInt(n);
      return first;
    });
  });
  const pad = c.needInt("engram_pad_token_id");
  if (pad >= map.length) {
    throw wrong(c, "engram_pad_token_id", pad, `0 to ${map.length - 1}`, "compare it with the vocabulary");
  }
  k.i32s("engram.layer_ids", layers)
    .u32("engram.head_count", size.n_head)
    .u32("engram.key_length", size.head_dim)
    .u32("engram.max_ngram_size", size.n_gram)
    .u64s("engram.multipliers", multipliers(size))
    .u64s("engram.primes", rows.flat().map(BigInt))
    .u64s("engram.offsets", offsets)
    .i32s("engram.token_map", [...map])
    .u32("engram.pad_id", map[pad]);
}
