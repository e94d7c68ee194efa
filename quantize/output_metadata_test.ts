import assert from "node:assert/strict";
import { UsageError } from "../core/errors.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { parseFileType } from "./file_types.ts";
import { outputMetadata, parseOverride } from "./output_metadata.ts";
import type { QuantizePlan } from "./plan.ts";

function planOf(type: string, more: Partial<QuantizePlan> = {}): QuantizePlan {
  return {
    tensors: [],
    fileType: parseFileType(type),
    prunedLayers: undefined,
    n_parts: 1,
    unreached: [],
    warnings: [],
    ...more,
  };
}

Deno.test("parseOverride() reads the four types and refuses the rest", () => {
  assert.deepEqual(parseOverride("a.b=int:-7"), { key: "a.b", value: ggufValue.u32(7) });
  assert.deepEqual(parseOverride("a=float:0.5"), { key: "a", value: ggufValue.f32(0.5) });
  assert.deepEqual(parseOverride("a=bool:true"), { key: "a", value: ggufValue.bool(true) });
  assert.deepEqual(parseOverride("a=str:x=y:z"), { key: "a", value: ggufValue.str("x=y:z") });
  for (const text of ["a", "=int:1", "a=u32:1", "a=bool:yes", `a=str:${"x".repeat(128)}`]) {
    assert.throws(() => parseOverride(text), UsageError, text);
  }
});

Deno.test("outputMetadata() keeps order, sets at the end, and cuts strings at NUL", () => {
  const source = new Metadata("in", [
    ["general.file_type", ggufValue.u32(1)],
    ["general.name", ggufValue.str("a\0b")],
    ["split.no", ggufValue.u16(0)],
    ["tokens", ggufValue.strs(["x\0y", "z"])],
    ["general.architecture", ggufValue.str("llama")],
  ]);
  const [out] = outputMetadata(source, planOf("Q4_0", { prunedLayers: 3 }), "out", {
    overrides: [{ key: "general.name", value: ggufValue.str("renamed") }],
  });
  assert.deepEqual([...out.keys()], [
    "tokens",
    "general.architecture",
    "general.quantization_version",
    "general.file_type",
    "general.name",
    "llama.block_count",
  ]);
  assert.equal(out.u32("general.file_type"), 2);
  assert.deepEqual(out.strs("tokens").toArray(), ["x", "z"]);
});

Deno.test("outputMetadata() gives each part of a split output its keys", () => {
  const source = new Metadata("in", [["general.architecture", ggufValue.str("llama")]]);
  const parts = outputMetadata(source, planOf("COPY", { n_parts: 2 }), "out");
  assert.deepEqual([...parts[1].keys()], ["split.no", "split.count", "split.tensors.count"]);
  assert.deepEqual(parts.map((p) => p.u32("split.no")), [0, 1]);
  assert.equal(parts[0].u32("general.file_type"), 1024);
});
