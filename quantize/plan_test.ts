import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError, PlanError, QuantizeError, UsageError } from "../core/errors.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { type GgmlType, ggmlType } from "../core/gguf/types.ts";
import { FILE_TYPES, findFileType, guessFileTypeId, parseFileType, parseTensorType } from "./file_types.ts";
import { categoryOf } from "./mixture.ts";
import {
  fallbackType,
  isQuantizable,
  parseTypePattern,
  type PlanOptions,
  planQuantization,
  type SourceTensor,
} from "./plan.ts";

function metadata(extra: Record<string, number> = {}, arch = "llama"): Metadata {
  const m = new Metadata("model.gguf", [["general.architecture", ggufValue.str(arch)]]);
  const keys = { block_count: 8, "attention.head_count": 8, "attention.head_count_kv": 8, ...extra };
  for (const [key, n] of Object.entries(keys)) m.set(`${arch}.${key}`, ggufValue.u32(n));
  return m;
}

function tensor(name: string, ne: number[], type = "f16", shard = 0): SourceTensor {
  return { name, ne, type: ggmlType(type), shard };
}

function model(n_layer: number, parts = ["attn_q", "attn_v", "ffn_down"]): SourceTensor[] {
  const layers = Array.from(
    { length: n_layer },
    (_, il) => parts.map((p) => tensor(`blk.${il}.${p}.weight`, [256, 8])),
  );
  return [tensor("token_embd.weight", [256, 8]), tensor("output.weight", [256, 8]), ...layers.flat()];
}

function types(tensors: SourceTensor[], type: string, options: Partial<PlanOptions> = {}, m = metadata()) {
  const plan = planQuantization(tensors, m, { fileType: parseFileType(type), ...options });
  return Object.fromEntries(plan.tensors.map((t) => [t.name, t.type.name]));
}

const named = (name: string): GgmlType => parseTensorType(name, "tensor-type");

Deno.test("findFileType() takes names in any case, and numbers, the first of the table", () => {
  assert.equal(findFileType("q4_k_m")?.name, "Q4_K_M");
  assert.equal(findFileType("15")?.name, "Q4_K");
  assert.equal(findFileType(" 0 or so")?.name, "F32");
  assert.equal(findFileType("copy")?.type, undefined);
  assert.equal(findFileType("4"), undefined);
  assert.equal(findFileType("out.gguf"), undefined);
  assert.throws(() => parseFileType("Q9"), UsageError);
});

Deno.test("guessFileTypeId() labels by the type that first reaches the highest count", () => {
  assert.equal(guessFileTypeId(["f32", "q4_0", "q4_0", "f32"].map(ggmlType)), 1024 + 2);
  assert.equal(guessFileTypeId([]), 1024);
});

Deno.test("categoryOf() sees what a tensor is for", () => {
  const cases = {
    "output.weight": "out",
    "token_embd.weight": "emb",
    "blk.3.attn_v.weight": "v",
    "blk.3.attn_qkv.weight": "qkv",
    "blk.3.ffn_gate_up_exps.weight": "gate",
    "blk.3.ffn_down_shexp.weight": "down",
    "blk.3.ssm_in.weight": "other",
  };
  for (const [name, category] of Object.entries(cases)) assert.equal(categoryOf(name), category, name);
});

Deno.test("isQuantizable() keeps vectors, norms, routers and what has no such name", () => {
  const yes = (name: string, ne = [64, 64], arch = "llama") => assert(isQuantizable({ name, ne }, arch), name);
  const no = (name: string, ne = [64, 64], arch = "llama") => assert(!isQuantizable({ name, ne }, arch), name);
  yes("blk.0.attn_q.weight");
  yes("abcde"); // the reference's quirk
  no("blk.0.attn_q.bias");
  no("blk.0.attn_q.weight", [64, 1]);
  no("blk.0.attn_norm.weight");
  no("blk.0.ffn_gate_inp.weight");
  no("position_embd.weight");
  yes("blk.0.hc_a.weight");
  no("blk.0.hc_a.weight", [64, 64], "glm5-next");
});

Deno.test("planQuantization() orders by layer, then by name", () => {
  const tensors = ["output.weight", "blk.10.a.weight", "blk.2.b.weight", "blk.2.a.weight", "token_embd.weight"];
  const plan = planQuantization(tensors.map((n) => tensor(n, [256, 2])), metadata(), {
    fileType: parseFileType("Q8_0"),
  });
  assert.deepEqual(plan.tensors.map((t) => t.name), [
    "output.weight",
    "token_embd.weight",
    "blk.2.a.weight",
    "blk.2.b.weight",
    "blk.10.a.weight",
  ]);
});

Deno.test("Q4_K_M gives the first, the last and every third layer between more bits", () => {
  const found = types(model(8), "Q4_K_M");
  const better = Array.from({ length: 8 }, (_, il) => found[`blk.${il}.ffn_down.weight`] === "q6_K");
  assert.deepEqual(better, [true, false, false, true, false, false, true, true]);
  assert.equal(found["output.weight"], "q6_K");
  assert.equal(found["token_embd.weight"], "q4_K");
  assert.equal(found["blk.0.attn_q.weight"], "q4_K");
});

Deno.test("a tied embedding is treated as the output head", () => {
  const tied = model(2).filter((t) => t.name !== "output.weight");
  assert.equal(types(tied, "Q4_K_M")["token_embd.weight"], "q6_K");
  assert.equal(types(tied, "Q4_K_M", { outputTensorType: ggmlType("q8_0") })["token_embd.weight"], "q8_0");
});

Deno.test("forced types: the first pattern wins, over the mixture but not over the embedding's own option", () => {
  const tensorTypes = ["ATTN_V=q8_0", "blk\\.1\\..*=iq4_nl", "attn=q5_0"].map((t) => parseTypePattern(t, named));
  const found = types(model(2), "Q4_K_M", { tensorTypes, tokenEmbeddingType: ggmlType("q5_1") });
  assert.equal(found["blk.1.attn_v.weight"], "q8_0");
  assert.equal(found["blk.1.ffn_down.weight"], "iq4_nl");
  assert.equal(found["blk.0.attn_q.weight"], "q5_0");
  assert.equal(found["token_embd.weight"], "q5_1");
});

Deno.test("parseTypePattern() names what is wrong", () => {
  for (const text of ["attn", "=q8_0", "attn=", "(=q8_0", "attn=q9"]) {
    assert.throws(() => parseTypePattern(text, named), UsageError, text);
  }
});

Deno.test("fallbackType() finds a type for every row of the widest block, or f16", () => {
  assert.equal(fallbackType(ggmlType("q4_K"), 96)?.name, "q5_0");
  assert.equal(fallbackType(ggmlType("iq2_xs"), 96)?.name, "iq4_nl");
  assert.equal(fallbackType(ggmlType("q6_K"), 100)?.name, "f16");
  assert.equal(fallbackType(ggmlType("q4_0"), 100)?.name, "f16");
  assert.equal(fallbackType(ggmlType("nvfp4"), 96), undefined);
});

Deno.test("pruned layers go, the others close up, and importance is looked up by the old names", () => {
  const entries = new Map([["blk.3.attn_q.weight", new Float32Array(256).fill(1)]]);
  const plan = planQuantization(model(5), metadata({ block_count: 5 }), {
    fileType: parseFileType("Q4_0"),
    pruneLayers: [2, 1, 7],
    imatrix: { path: "im", dataset: undefined, n_chunks: 0, entries },
  });
  assert.deepEqual(
    plan.tensors.filter((t) => t.name.includes("attn_q")).map((t) => [t.source.name, t.name]),
    [0, 3, 4].map((il, i) => [`blk.${il}.attn_q.weight`, `blk.${i}.attn_q.weight`]),
  );
  assert.equal(plan.prunedLayers, 3);
  assert.equal(plan.warnings[0], "the model has no layer 7 to prune");
  const weighted = plan.tensors.filter((t) => t.importance);
  assert.deepEqual(weighted.map((t) => t.name), ["blk.1.attn_q.weight"]);
});

Deno.test("every problem is in one refusal", () => {
  const tensors = [
    tensor("blk.0.attn_q.weight", [256, 8], "i32"),
    tensor("blk.0.attn_k.weight", [256, 8], "q8_0"),
    tensor("blk.0.ffn_up.weight", [100, 8]),
    tensor("blk.0.x.weight", [256, 2, 2, 2]),
  ];
  const tensorTypes = [parseTypePattern("ffn_up=q1_0", named)];
  assert.throws(
    () => planQuantization(tensors, metadata(), { fileType: parseFileType("Q4_0"), tensorTypes }),
    (e) => e instanceof QuantizeError && e.code === "quantize.plan" && (e.at.problems as string[]).length === 4,
  );
});

Deno.test("tensors with the same trouble share a line that names them all", () => {
  const fileType = parseFileType("IQ2_XXS");
  const names = ["attn_k", "attn_output", "attn_q", "ffn_up"].map((w) => `blk.0.${w}.weight`);
  const tensors = names.map((name) => tensor(name, [256, 8]));
  assert.throws(() => planQuantization(tensors, metadata(), { fileType }), (e) => {
    assert.ok(e instanceof QuantizeError);
    assert.match(
      e.message,
      /each of \d tensors becomes iq2_xxs, which needs an importance matrix, and none is given: "blk/,
    );
    for (const p of e.at.problems as string[]) assert.match(p, /^tensor "blk\.0\.\w+\.weight" becomes/);
    return true;
  });
  const dry = planQuantization(tensors, metadata(), { fileType, dryRun: true });
  assert.equal(dry.warnings.length, 1);
});

Deno.test("a warning names entries of an importance matrix that belong to no tensor", () => {
  const names = ["blk.0.attn_q.weight", "blk.64.attn_q.weight", "blk.64.nextn.eh_proj.weight"];
  const entries = new Map(names.map((name) => [name, new Float32Array(256).fill(1)]));
  const { warnings } = planQuantization(model(1), metadata({ block_count: 1 }), {
    fileType: parseFileType("Q4_K_M"),
    imatrix: { path: "im", dataset: undefined, n_chunks: 0, entries },
  });
  assert.match(
    warnings[0],
    /^2 of the 3 entries .* belong to no tensor of the model: blk\.64\.attn_q\.weight, blk\.64/,
  );
  assert.match(warnings[1], /tensors have no entry in the importance matrix/);
});

Deno.test("an expert tensor without a layer of the model is refused", () => {
  const tensors = [tensor("blk.9.ffn_down_exps.weight", [256, 8, 4])];
  assert.throws(
    () => types(tensors, "Q4_K_M", {}, metadata({ expert_count: 4 })),
    (e) => e instanceof PlanError && e.code === "plan.layer_number",
  );
});

Deno.test("a plan is whole and consistent whatever the model and the options (property)", () => {
  const parts = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "attn_norm",
    "ffn_up",
    "ffn_gate",
    "ffn_down_exps",
    "odd",
  ];
  const anyTensor = fc.record({
    part: fc.constantFrom(...parts),
    layer: fc.nat(7),
    row: fc.constantFrom(32, 64, 96, 100, 128, 256, 512, 1024),
    rows: fc.integer({ min: 1, max: 5 }),
    experts: fc.constantFrom(1, 1, 3),
    type: fc.constantFrom("f32", "f16", "bf16"),
  });
  fc.assert(fc.property(
    fc.uniqueArray(anyTensor, { selector: (t) => `${t.layer}.${t.part}`, maxLength: 30 }),
    fc.constantFrom(...FILE_TYPES),
    fc.record({ pure: fc.boolean(), leaveOutputTensor: fc.boolean(), keepSplit: fc.boolean() }),
    fc.constantFrom(0, 4, 8, 64),
    (list, fileType, options, expert_count) => {
      const tensors = list.map((t) => tensor(`blk.${t.layer}.${t.part}.weight`, [t.row, t.rows, t.experts], t.type));
      let plan;
      try {
        plan = planQuantization(tensors, metadata({ expert_count }), { fileType, dryRun: true, ...options });
      } catch (error) {
        assert(error instanceof BloomeryError, String(error));
        return;
      }
      assert.deepEqual(plan.tensors.map((t) => t.source.name).sort(), tensors.map((t) => t.name).sort());
      for (const t of plan.tensors) {
        assert.equal(t.ne[0] % t.type.block, 0, `${t.name} ${t.type.name}`);
        assert.equal(t.convert, t.type.id !== t.source.type.id);
        assert(Number.isInteger(t.bytes) && t.bytes > 0);
        if (t.name.includes("norm")) assert(!t.convert);
      }
      const again = planQuantization(tensors.toReversed(), metadata({ expert_count }), {
        fileType,
        dryRun: true,
        ...options,
        keepSplit: false,
      });
      if (!options.keepSplit) {
        assert.deepEqual(again.tensors.map((t) => t.type.name), plan.tensors.map((t) => t.type.name));
      }
    },
  ));
});
