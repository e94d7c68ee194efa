import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../../core/errors.ts";
import { openGguf } from "../../core/gguf/read.ts";
import {
  floats,
  noise,
  testCheckpoint,
  type TestTensors,
  VOCAB_SIZE,
  withFolder,
  writeCheckpoint,
} from "./_testing.ts";
import { JOINT_TABLE, primes, tokenClasses } from "./arch/engram.ts";
import { openPrepared, prepare } from "./mod.ts";

const [n_embd, n_head, head_dim, qRank, n_expert, n_ff, n_layer] = [64, 2, 32, 32, 4, 32, 4];
const [n_index, index_dim, groups, oRank] = [4, 32, 2, 32];
const [streams, n_gram, n_hash, row] = [4, 3, 2, 32];
const SITES = [1, 2];
const ROWS = primes(11, SITES.length, n_gram - 1, n_hash);
const totals = ROWS.map((own) => own.reduce((a, b) => a + b));

/** Any 8-bit codes but NaN, with a scale per block of 32 by 32, or per 32 of a row. */
function fp8(tensors: TestTensors, name: string, shape: [number, number], scale: "block" | "row" = "block"): void {
  const [rows, columns] = shape;
  const codes = Uint8Array.from(noise(name, rows * columns), (x) => Math.floor((x + 1) * 127.99)).map((c) =>
    (c & 0x7f) === 0x7f ? 0 : c
  );
  const scales = [scale === "row" ? rows : Math.ceil(rows / 32), Math.ceil(columns / 32)];
  const exponents = Uint8Array.from(noise(`${name}s`, scales[0] * scales[1]), (x) => 122 + Math.floor((x + 1) * 4));
  tensors[`${name}.weight`] = { dtype: "F8_E4M3", shape, data: codes };
  tensors[`${name}.scale`] = { dtype: "F8_E8M0", shape: scales, data: exponents };
}

function checkpoint(change: Record<string, unknown> = {}) {
  const tensors: TestTensors = {};
  const put = (name: string, shape: number[], dtype: "F32" | "BF16" = "BF16") =>
    tensors[name] = floats(name, shape, dtype);
  put("embed.weight", [VOCAB_SIZE, n_embd]);
  put("norm.weight", [n_embd]);
  put("head.weight", [VOCAB_SIZE, n_embd]);
  fp8(tensors, "mtp.0.main_proj", [n_embd, 3 * n_embd]); // a draft model, which is left out
  for (let il = 0; il < n_layer; il++) {
    const at = `layers.${il}`;
    for (const norm of ["attn_norm", "ffn_norm"]) put(`${at}.${norm}.weight`, [n_embd]);
    for (const site of ["attn", "ffn"]) {
      put(`${at}.hc_${site}_fn`, [24, streams * n_embd], "F32");
      put(`${at}.hc_${site}_base`, [24], "F32");
      put(`${at}.hc_${site}_scale`, [3], "F32");
    }
    put(`${at}.attn.attn_sink`, [n_head], "F32");
    put(`${at}.attn.q_norm.weight`, [qRank]);
    put(`${at}.attn.kv_norm.weight`, [head_dim]);
    fp8(tensors, `${at}.attn.wq_a`, [qRank, n_embd]);
    fp8(tensors, `${at}.attn.wq_b`, [n_head * head_dim, qRank]);
    fp8(tensors, `${at}.attn.wkv`, [head_dim, n_embd]);
    fp8(tensors, `${at}.attn.wo_a`, [groups * oRank, n_head * head_dim / groups]);
    fp8(tensors, `${at}.attn.wo_b`, [n_embd, groups * oRank]);
    if (il >= 2) { // rows are made and chosen here
      put(`${at}.attn.compressor.wkv.weight`, [head_dim, n_embd]);
      put(`${at}.attn.compressor.norm.weight`, [head_dim]);
      if (il === 2) put(`${at}.attn.compressor.wgate.weight`, [head_dim, n_embd]);
      put(`${at}.attn.indexer.wk.weight`, [index_dim, head_dim]);
      put(`${at}.attn.indexer.k_norm.weight`, [index_dim]);
      put(`${at}.attn.indexer.weights_proj.weight`, [n_index, n_embd]);
      fp8(tensors, `${at}.attn.indexer.wq_b`, [n_index * index_dim, qRank]);
    }
    put(`${at}.ffn.gate.weight`, [n_expert, n_embd]);
    put(`${at}.ffn.gate.bias`, [n_expert], "F32");
    for (const w of ["w1", "w2", "w3"]) {
      const shape: [number, number] = w === "w2" ? [n_embd, n_ff] : [n_ff, n_embd];
      fp8(tensors, `${at}.ffn.shared_experts.${w}`, shape);
      for (let e = 0; e < n_expert; e++) fp8(tensors, `${at}.ffn.experts.${e}.${w}`, shape);
    }
    const site = SITES.indexOf(il);
    if (site < 0) continue;
    fp8(tensors, `${at}.engram.embed`, [totals[site], row], "row");
    fp8(tensors, `${at}.engram.wkv`, [(streams + 1) * n_embd, (n_gram - 1) * n_hash * row]);
    put(`${at}.engram.q_weight`, [streams, n_embd]);
    put(`${at}.engram.k_weight`, [streams, n_embd]);
  }
  const { n_class } = classes();
  const text_config = {
    ...testCheckpoint("llama").config,
    architectures: undefined,
    model_type: "deepseek_v41_text",
    hidden_size: n_embd,
    num_hidden_layers: n_layer,
    num_attention_heads: n_head,
    num_key_value_heads: 1,
    head_dim,
    intermediate_size: null,
    q_lora_rank: qRank,
    qk_rope_head_dim: 8,
    o_groups: groups,
    o_lora_rank: oRank,
    rope_scaling: { rope_type: "yarn", factor: 4, original_max_position_embeddings: 64 },
    swiglu_limit: 10,
    moe_intermediate_size: n_ff,
    n_routed_experts: n_expert,
    n_shared_experts: 1,
    num_experts_per_tok: 2,
    scoring_func: "sqrtsoftplus",
    routed_scaling_factor: 1.5,
    sliding_window: 32,
    compress_ratios: [0, 0, 2, 1],
    compress_rope_theta: 160000,
    kv_source_layer_ids: [2, 3],
    index_source_layer_ids: [2, 3],
    index_n_heads: n_index,
    index_head_dim: index_dim,
    index_topk: 8,
    hc_mult: streams,
    hc_sinkhorn_iters: 20,
    hc_eps: 1e-6,
    engram_layer_ids: SITES,
    engram_max_ngram_size: n_gram,
    engram_vocab_size: 11,
    engram_n_heads: n_hash,
    engram_head_dim: row,
    engram_pad_token_id: 2,
    engram_num_embeddings: totals,
    engram_compressed_vocab_size: n_class,
    tie_word_embeddings: false,
    ...change,
  };
  const quantization_config = { quant_method: "fp8", weight_block_size: [32, 32] };
  const config = {
    architectures: ["DeepseekV41ForCausalLM"],
    model_type: "deepseek_v41",
    text_config,
    quantization_config,
  };
  return { config, tensors };
}

let known: { map: Int32Array; n_class: number } | undefined;

/** Classes of the test vocabulary. */
function classes() {
  if (known) return known;
  const dir = Deno.makeTempDirSync();
  writeCheckpoint(dir, testCheckpoint("llama"));
  using source = openPrepared(dir, { vocabOnly: true });
  known = tokenClasses(source.metadata);
  Deno.removeSync(dir, { recursive: true });
  return known;
}

Deno.test("tokenClasses() joins tokens that differ in case and in spaces around them", () => {
  const { map, n_class } = classes();
  const id = (ch: string) => 33 <= ch.charCodeAt(0) && ch.charCodeAt(0) < 127 ? ch.charCodeAt(0) : NaN;
  assert.equal(map[id("A")], map[id("a")]);
  assert.notEqual(map[id("A")], map[id("b")]);
  assert.equal(Math.max(...map) + 1, n_class);
  assert.ok(map.every((c, i) => c <= Math.max(-1, ...map.slice(0, i)) + 1), "numbered by first appearance");
  assert.equal(map[266 - 1], map[id("t")], "a token of a space and t is t"); // the last merge
});

Deno.test("primes() gives every head rows of its own", () => {
  assert.deepEqual(primes(11, 2, 2, 2), [[11, 13, 17, 19], [23, 29, 31, 37]]);
  const first = nextPrime(16000000); // released tables are of this size
  assert.deepEqual(primes(16000000, 1, 1, 2), [[first, nextPrime(first + 1)]]);
});

/** The smallest prime from a number on, by trial of every divisor. */
function nextPrime(n: number): number {
  for (;; n++) {
    let d = 2;
    while (d * d <= n && n % d !== 0) d++;
    if (d * d > n) return n;
  }
}

Deno.test("prepare() writes the n-gram tables of DeepSeek V4.1 per site or as one", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, checkpoint());
    await prepare(`${dir}model`, `${dir}a.gguf`, { outtype: "f32" });
    await prepare(`${dir}model`, `${dir}b.gguf`, { outtype: "f32", ngramLayout: "concatenated" });
    using a = openGguf(`${dir}a.gguf`);
    using b = openGguf(`${dir}b.gguf`);
    const of = (file: typeof a, name: string) => file.tensors.find((t) => t.name === name)!;
    const tables = SITES.map((il) => of(a, `blk.${il}.engram_embd.weight`));
    assert.deepEqual(tables.map((t) => t.ne), totals.map((n) => [row, n]));
    assert.equal(of(a, JOINT_TABLE), undefined);
    const joint = of(b, JOINT_TABLE);
    assert.deepEqual(joint.ne, [row, totals[0] + totals[1]]);
    assert.deepEqual(
      b.readTensor(joint),
      new Uint8Array([...a.readTensor(tables[0]), ...a.readTensor(tables[1])]),
    );
    assert.ok(!b.tensors.some((t) => t.name.endsWith("engram_embd.weight")));
    const offsets = (file: typeof a) =>
      [...file.metadata.get("deepseek41.engram.offsets")!.value as BigUint64Array].map(Number);
    const starts = (own: number[], base = 0) => own.map((_, i) => base + own.slice(0, i).reduce((x, y) => x + y, 0));
    assert.deepEqual(offsets(a), [...starts(ROWS[0]), ...starts(ROWS[1])]);
    assert.deepEqual(offsets(b), [...starts(ROWS[0]), ...starts(ROWS[1], totals[0])]);
  }));

Deno.test("prepare() keeps the scales of each row of an n-gram table", () =>
  withFolder(async (dir) => {
    const { config, tensors } = checkpoint();
    const table = tensors["layers.1.engram.embed.weight"];
    const scale = tensors["layers.1.engram.embed.scale"];
    table.data.fill(0x38); // one
    scale.data.forEach((_, i) => scale.data[i] = 127 + (i % 3));
    writeCheckpoint(`${dir}model`, { config, tensors });
    await prepare(`${dir}model`, `${dir}o.gguf`, { outtype: "f32" });
    using file = openGguf(`${dir}o.gguf`);
    const bytes = file.readTensor(file.tensors.find((t) => t.name === "blk.1.engram_embd.weight")!).slice();
    const values = new Float32Array(bytes.buffer);
    for (let r = 0; r < totals[0]; r++) assert.equal(values[r * row + row - 1], 2 ** (r % 3), `row ${r}`);
  }));

Deno.test("openPrepared() refuses n-gram constants that do not fit the vocabulary or the tables", () =>
  withFolder((dir) => {
    const refuses = (change: Record<string, unknown>, message: RegExp) => {
      writeCheckpoint(`${dir}model`, checkpoint(change));
      assert.throws(() => openPrepared(`${dir}model`), { code: "model.config", message });
    };
    refuses({ engram_compressed_vocab_size: 7 }, /"engram_compressed_vocab_size" .*found 7, expected \d+/);
    refuses({ engram_num_embeddings: [60, 121] }, /"engram_num_embeddings" .*found \[60,121\], expected \[60,120\]/);
    refuses({ engram_layer_ids: [1, 1] }, /"engram_layer_ids" .*found \[1,1\], expected "at most 16 different blocks/);
    refuses({ engram_layer_ids: [1, 4] }, /blocks of 0 to 3/);
    refuses({ engram_n_heads: 33 }, /"engram_n_heads" .*found 33, expected a whole number of 1 to 32/);
    refuses({ engram_pad_token_id: 5000 }, /"engram_pad_token_id" .*found 5000/);
  }));

Deno.test("openPrepared() refuses an n-gram table of another size", () =>
  withFolder((dir) => {
    const made = checkpoint({ engram_num_embeddings: null });
    fp8(made.tensors, "layers.2.engram.embed", [totals[1] - 1, row], "row");
    writeCheckpoint(`${dir}model`, made);
    assert.throws(() => openPrepared(`${dir}model`), {
      code: "model.tensor_shape",
      message: /"layers\.2\.engram\.embed\.weight" .* is \[119, 32\], expected \[120, 32\]/,
    });
  }));

Deno.test("FP8 weights of DeepSeek V4.1 become Q8_0, or what is asked for", () =>
  withFolder((dir) => {
    writeCheckpoint(`${dir}model`, checkpoint());
    const types = (outtype: "auto" | "bf16" | "f32") => {
      using source = openPrepared(`${dir}model`, { outtype });
      const of = (name: string) => source.tensors.find((t) => t.name === name)!.type.name;
      return ["blk.1.attn_q_a.weight", "blk.1.engram_embd.weight", "token_embd.weight", "blk.1.engram_q.weight"].map(
        of,
      );
    };
    assert.deepEqual(types("auto"), ["q8_0", "q8_0", "bf16", "f32"]);
    assert.deepEqual(types("bf16"), ["bf16", "bf16", "bf16", "f32"]);
    assert.deepEqual(types("f32"), ["f32", "f32", "f32", "f32"]);
  }));

Deno.test("openPrepared() answers any configuration of DeepSeek V4.1 with a plan or a refusal of its own", () =>
  withFolder((dir) => {
    const made = checkpoint();
    writeCheckpoint(`${dir}model`, made);
    const { text_config } = made.config;
    const odd = fc.oneof(
      fc.constantFrom(null, 0, 1, -1, 7, 1.5, 2 ** 28, 2 ** 31, 2 ** 53, "", true, [], {}, [1], [2, 3], [1e9], ["x"]),
      fc.integer({ min: 0, max: 300 }),
    );
    const change = fc.tuple(fc.constantFrom(...Object.keys(text_config)), odd);
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 3 }), (changes) => {
        const config = { ...made.config, text_config: { ...text_config, ...Object.fromEntries(changes) } };
        Deno.writeTextFileSync(`${dir}model/config.json`, JSON.stringify(config));
        try {
          openPrepared(`${dir}model`).close();
        } catch (error) {
          if (!(error instanceof BloomeryError)) throw error;
        }
      }),
      { numRuns: 100 },
    );
  }));
