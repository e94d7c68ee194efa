import assert from "node:assert/strict";
import { BloomeryError } from "../../core/errors.ts";
import { type GgmlType, ggmlType } from "../../core/gguf/types.ts";
import { bytesAs, candidates, defaultTypes } from "../measure/candidates.ts";
import type { MeasureFile } from "../measure/measure_file.ts";
import { parseTypePattern } from "../plan.ts";
import { openMemory } from "./_testing.ts";
import { type Budget, chooseTypes, patternOf, patternText } from "./choose.ts";

const type = (name: string) => ggmlType(name);

/** Losses that halve with each bit, from a tensor's weight in the sum. */
function measured(
  source: ReturnType<typeof openMemory>,
  weight: (name: string) => number,
  types = defaultTypes(),
): MeasureFile {
  const tensors = candidates(source, types, undefined).map(({ name, source: { ne }, types }) => ({
    name,
    ne,
    losses: types.map((t) => ({
      type: t,
      bytes: bytesAs({ ne }, t),
      loss: weight(name) * 2 ** (-8 * t.bytes / t.block),
      se: null,
    })),
  }));
  return { job: { model: "m", model_key: "k", by: "kl", imatrix: null, imatrix_key: null, over: {} }, tensors };
}

function choose(source: ReturnType<typeof openMemory>, measure: MeasureFile, budget: Budget, more = {}) {
  return chooseTypes(source, { budget, measure, measurePath: "f", modelKey: "k", quantize: more, output: "out.gguf" });
}

const typesOf = (chosen: ReturnType<typeof choose>) =>
  Object.fromEntries(
    chosen.tensorTypes.map((p) => [p.text.replace(/^\^|\$=.*$/g, "").replaceAll("\\.", "."), p.type.name]),
  );

Deno.test("candidates() offers what rows can hold, smaller than the source, and what needs no importance", () => {
  const source = openMemory({
    "blk.0.ffn_up.weight": [256, 8],
    "blk.0.attn_q.weight": [96, 8],
    "blk.0.ffn_norm.weight": [256],
  });
  const names = (types: readonly GgmlType[]) =>
    Object.fromEntries(candidates(source, types, undefined).map((c) => [c.name, c.types.map((t) => t.name)]));
  const some = ["iq2_xxs", "q2_K", "q4_K", "q5_K", "q6_K", "q8_0", "f16", "bf16"].map(type);
  // Rows of 96 are no whole blocks of 256: other types take the place.
  assert.deepEqual(names(some), {
    "blk.0.attn_q.weight": ["iq4_nl", "q4_0", "q5_0", "q5_1", "q8_0"],
    "blk.0.ffn_up.weight": ["q2_K", "q4_K", "q5_K", "q6_K", "q8_0"],
  });
  const entries = new Map([["blk.0.ffn_up.weight", new Float32Array(256).fill(1)]]);
  const weighted = candidates(source, some, { path: "i", dataset: undefined, n_chunks: 1, entries });
  const up = weighted.find((c) => c.name === "blk.0.ffn_up.weight")!;
  assert.deepEqual([up.types[0].name, up.importance?.length], ["iq2_xxs", 256]);
});

Deno.test("chooseTypes() gives bits to tensors that lose most, within the budget, and labels by most weights", () => {
  const source = openMemory({
    "blk.0.ffn_up.weight": [256, 64],
    "blk.0.ffn_down.weight": [256, 64],
    "blk.0.attn_q.weight": [96, 32],
    "blk.0.ffn_norm.weight": [256],
  });
  const measure = measured(source, (name) => name.includes("down") ? 1000 : 1);
  const chosen = choose(source, measure, { bpw: 5.5 });
  assert.ok(chosen.size <= 5.5 && chosen.size > 5 && chosen.isBest, String(chosen.size));
  const types = typesOf(chosen);
  assert.deepEqual(Object.keys(types).sort(), ["blk.0.attn_q.weight", "blk.0.ffn_down.weight", "blk.0.ffn_up.weight"]);
  const bits = (name: string) => ggmlType(types[name]).bytes / ggmlType(types[name]).block;
  assert.ok(bits("blk.0.ffn_down.weight") > bits("blk.0.ffn_up.weight"));
  const few = choose(source, measure, { bpw: 4 }, {
    tensorTypes: [parseTypePattern("ffn_(up|down)=q3_K", () => type("q3_K"))],
  });
  assert.equal(few.fileType.name, "Q3_K_M");
  assert.deepEqual([typesOf(few)["blk.0.ffn_up.weight"], typesOf(few)["blk.0.ffn_down.weight"]], ["q3_K", "q3_K"]);
  const rich = choose(source, measure, { bpw: 16.5 });
  assert.deepEqual([rich.loss, rich.fileType.name, new Set(Object.values(typesOf(rich)))], [
    0,
    "Q8_0",
    new Set(["bf16"]),
  ]);
});

Deno.test("chooseTypes() keeps what is quantized already, and types that the options name", () => {
  const source = openMemory({
    "token_embd.weight": [256, 32],
    "output.weight": [256, 32],
    "blk.0.ffn_up.weight": [256, 32],
  });
  const measure = measured(source, () => 1);
  const kept = openMemory(
    { "token_embd.weight": [256, 32], "output.weight": [256, 32], "blk.0.ffn_up.weight": [256, 32] },
    { "blk.0.ffn_up.weight": "q8_0" },
  );
  assert.equal(typesOf(choose(kept, measure, { bpw: 5 }))["blk.0.ffn_up.weight"], "q8_0");
  const named = typesOf(
    choose(source, measure, { bpw: 6 }, { outputTensorType: type("q6_K"), tokenEmbeddingType: type("q5_K") }),
  );
  assert.deepEqual([named["output.weight"], named["token_embd.weight"]], ["q6_K", "q5_K"]);
  const left = typesOf(choose(source, measure, { bpw: 9 }, { leaveOutputTensor: true }));
  assert.equal(left["output.weight"], "bf16");
});

Deno.test("chooseTypes() refuses by name", () => {
  const source = openMemory({ "blk.0.ffn_up.weight": [256, 64], "blk.1.ffn_up.weight": [256, 64] });
  const measure = measured(source, () => 1);
  const refusal = (change: Partial<MeasureFile["job"]>, budget: Budget, tensors = measure.tensors, more = {}) => {
    try {
      choose(source, { job: { ...measure.job, ...change }, tensors }, budget, more);
    } catch (error) {
      assert.ok(error instanceof BloomeryError);
      return [error.code, error.at];
    }
    assert.fail("it was taken");
  };
  assert.equal(refusal({ model_key: "other" }, { bpw: 4 })[0], "quantize.stale_measure");
  assert.equal(refusal({ imatrix_key: "some" }, { bpw: 4 })[0], "quantize.stale_measure");
  const entries = new Map([["blk.0.ffn_up.weight", new Float32Array(256).fill(1)]]);
  const imatrix = { path: "i", dataset: undefined, n_chunks: 1, entries };
  assert.equal(refusal({}, { bpw: 4 }, measure.tensors, { imatrix })[0], "quantize.stale_measure");
  const [code, at] = refusal({}, { bpw: 4 }, measure.tensors.slice(0, 1)) as [string, Record<string, unknown>];
  assert.deepEqual([code, at.tensors], ["quantize.not_measured", ["blk.1.ffn_up.weight"]]);
  assert.deepEqual(refusal({}, { bpw: 2.6 }), ["quantize.budget", { got: 2.6, smallest: 8 * 84 / 256 }]);
});

Deno.test("patternOf() fits one tensor alone, in a file for --tensor-type-file", () => {
  const p = patternOf("blk.1.ffn_up+x.weight", type("q4_K"));
  assert.equal(p.text, "^blk\\.1\\.ffn_up\\+x\\.weight$=q4_K");
  assert.ok(p.pattern.test("blk.1.ffn_up+x.weight"));
  assert.ok(!p.pattern.test("blk.11.ffn_up+x.weight") && !p.pattern.test("ablk.1.ffn_up+x.weight"));
  assert.equal(patternText([p, p]), `${p.text}\n${p.text}\n`);
});
