import assert from "node:assert/strict";
import { contentKey } from "./content_key.ts";
import { ggufValue, Metadata } from "./metadata.ts";
import { openGguf } from "./read.ts";
import { ggmlType } from "./types.ts";
import { GgufWriter } from "./write.ts";

const dir = Deno.makeTempDirSync();
globalThis.addEventListener("unload", () => Deno.removeSync(dir, { recursive: true }));
let n_files = 0;

/** The key of a file with two tensors, the second of 6000 values. */
function keyOf(change: { eps?: number; note?: string; at?: number; name?: string; first?: string } = {}): string {
  const path = `${dir}/${n_files++}.gguf`, f32 = ggmlType("f32");
  const metadata = new Metadata(path)
    .set("general.architecture", ggufValue.str("llama"))
    .set("llama.norm_eps", ggufValue.f32(change.eps ?? 1))
    .set("general.description", ggufValue.str(change.note ?? ""));
  const big = new Float32Array(6000).fill(0.5);
  if (change.at !== undefined) big[change.at] = 1;
  const tensors = [{ name: change.first ?? "a", ne: [4], data: Float32Array.of(1, 2, 3, 4) }, {
    name: change.name ?? "b",
    ne: [60, 100],
    data: big,
  }].map((t) => ({ ...t, type: f32 }));
  using writer = GgufWriter.create({ path, metadata, tensors });
  tensors.forEach(({ data }, i) => writer.writeTensor(i, new Uint8Array(data.buffer)));
  writer.finish();
  using file = openGguf(path);
  return contentKey(file, (t) => file.place(t));
}

Deno.test("contentKey() knows a model by what is in it, not by its name or description", () => {
  const key = keyOf();
  assert.match(key, /^[0-9a-f]{64}$/);
  assert.equal(keyOf({ note: "other words" }), key);
  const others = [{ eps: 2 }, { name: "c" }, { first: "c" }, { at: 0 }, { at: 3000 }, { at: 5999 }].map(keyOf);
  assert.equal(new Set([key, ...others]).size, 7);
});

Deno.test("contentKey() of tensors without a place knows their names, types and shapes", () => {
  const metadata = new Metadata("m").set("general.architecture", ggufValue.str("x"));
  const keyOf = (type: string, ne: number[]) =>
    contentKey({ metadata, tensors: [{ name: "a", type: ggmlType(type), ne }] }, () => undefined);
  assert.equal(keyOf("f32", [4]), keyOf("f32", [4]));
  assert.equal(new Set([keyOf("f32", [4]), keyOf("f16", [4]), keyOf("f32", [2, 2])]).size, 3);
});
