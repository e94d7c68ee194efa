/** Control vectors: what is added where, in every family whose layers hand on one stream, and files that do not fit. */
import assert from "node:assert/strict";
import { fakeIo } from "../cli/_testing.ts";
import { controlOf } from "../cli/adapter_flags.ts";
import { Flags, type FlagValue } from "../cli/command.ts";
import { openModelFromFlags } from "../cli/open.ts";
import { readControlVectors } from "../core/arch/control_vector.ts";
import { bindModel } from "../core/arch/model.ts";
import { ModelError, UsageError } from "../core/errors.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { GgufWriter } from "../core/gguf/write.ts";
import { FAMILY_MODELS, familyFile, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { testFolder } from "./models.ts";

const N_EMBD = 64;
const TOKENS = Array.from({ length: 20 }, (_, i) => (29 * i + 3) % N_VOCAB);

/** Families whose layers hand on several streams, or sums of blocks. */
const REFUSED = ["deepseek4", "deepseek41", "gemma3n", "glm5-next", "glm5next", "kimi-k3", "qwen4exp"];

function direction(layer: number, n = N_EMBD): Float32Array {
  return Float32Array.from({ length: n }, (_, i) => 0.3 * Math.sin(1 + i * layer));
}

function writeVectors(
  path: string,
  vectors: Readonly<Record<string, Float32Array>>,
  type = ggmlType("f32"),
  ne: readonly number[] = [],
): string {
  const metadata = new Metadata(path, [["general.architecture", ggufValue.str("controlvector")]]);
  const tensors = Object.entries(vectors).map(([name, v]) => ({ name, type, ne: [v.length / (ne[0] ?? 1), ...ne] }));
  using writer = GgufWriter.create({ path, metadata, tensors });
  Object.values(vectors).forEach((v, i) => writer.writeTensor(i, new Uint8Array(v.buffer)));
  writer.finish();
  return path;
}

async function logits(flags: Record<string, FlagValue>): Promise<Float32Array> {
  const { io } = fakeIo();
  using opened = await openModelFromFlags(new Flags(new Map(Object.entries({ device: "cpu", ...flags }))), io, {
    n_ctx: 64,
  });
  using sequence = opened.model.engine.createSequence();
  const [row] = await opened.model.engine.step([{ sequence, tokens: TOKENS, output: "all", want: "logits" }]);
  return row.full!.slice();
}

Deno.test("a control vector adds what a bias behind the layer would", async () => {
  const dir = `${testFolder()}/control`;
  Deno.mkdirSync(dir);
  const family = { ...FAMILY_MODELS.llama, keys: { block_count: 3 }, with: /^output\.weight|ffn_down\.bias/ };
  const model = await writeFamilyModel(`${dir}/model.gguf`, family);
  /** The model with the bias of some layers' last matrix changed. */
  const biased = (name: string, add: Readonly<Record<number, Float32Array>>) => {
    using file = openGguf(model);
    using writer = GgufWriter.create({ path: `${dir}/${name}.gguf`, metadata: file.metadata, tensors: file.tensors });
    for (const [i, t] of file.tensors.entries()) {
      const bytes = file.readTensor(t).slice(), layer = /^blk\.(\d+)\.ffn_down\.bias$/.exec(t.name)?.[1];
      const more = layer === undefined ? undefined : add[Number(layer)];
      if (more) new Float32Array(bytes.buffer).forEach((x, j, all) => all[j] = x + more[j]);
      writer.writeTensor(i, bytes);
    }
    writer.finish();
    return `${dir}/${name}.gguf`;
  };
  const scaled = (v: Float32Array, by: number) => v.map((x) => by * x);
  const one = writeVectors(`${dir}/one.gguf`, {
    "direction.1": direction(1),
    "direction.2": direction(2),
    "direction.9": direction(9),
  });
  const two = writeVectors(`${dir}/two.gguf`, { "direction.2": direction(7) });
  const plain = await logits({ model });
  const same = async (flags: Record<string, FlagValue>, name: string, add: Readonly<Record<number, Float32Array>>) => {
    const got = await logits({ model, ...flags }), want = await logits({ model: biased(name, add) });
    const size = Math.max(...want.map(Math.abs)),
      off = (a: Float32Array) => a.reduce((m, x, i) => Math.max(m, Math.abs(x - want[i])), 0);
    assert.ok(off(plain) > 0.02 * size, `${name} changes ${off(plain)} of ${size}`);
    assert.ok(off(got) < 2e-5 * size, `${name}: ${off(got)} of ${size}`);
  };
  await same({ "control-vector": [one] }, "both", { 1: direction(1), 2: direction(2) });
  await same({ "control-vector-scaled": [`${one}:-0.5`] }, "scaled", {
    1: scaled(direction(1), -0.5),
    2: scaled(direction(2), -0.5),
  });
  await same({ "control-vector": [one], "control-vector-layer-range": "2,2" }, "second", { 2: direction(2) });
  await same({ "control-vector": [one], "control-vector-layer-range": "0,1" }, "first", { 1: direction(1) });
  await same({ "control-vector": [one], "control-vector-layer-range": "2,0" }, "last", { 2: direction(2) });
  await same(
    { "control-vector": [one], "control-vector-scaled": [`${two}:2`] },
    "sum",
    { 1: direction(1), 2: direction(2).map((x, i) => x + 2 * direction(7)[i]) },
  );
  assert.deepEqual(await logits({ model, "control-vector": [one], "control-vector-layer-range": "5,9" }), plain);
});

Deno.test("every family takes a control vector behind each layer, or says why not", () => {
  const refused = new Set<string>();
  for (const [name, { arch }] of Object.entries(FAMILY_MODELS)) {
    const file = familyFile(name), n_embd = file.metadata.u32(`${arch}.embedding_length`);
    const n_layer = bindModel(file).spec.n_layer;
    const control = new Map(Array.from({ length: n_layer }, (_, il) => [il, direction(il, n_embd)]));
    try {
      const { weights } = bindModel({ ...file, control });
      assert.equal(weights.filter((w) => w.name.startsWith("control.")).length, n_layer, name);
    } catch (e) {
      assert.ok(e instanceof ModelError && e.code === "model.control_vector", `${name}: ${e}`);
      refused.add(arch);
    }
  }
  assert.deepEqual([...refused].sort(), REFUSED);
});

Deno.test("files that are no control vectors, and ranges that are none, are refused by name", async () => {
  const dir = `${testFolder()}/control-refused`;
  Deno.mkdirSync(dir);
  const model = await writeFamilyModel(`${dir}/model.gguf`, FAMILY_MODELS.llama);
  const write = (
    name: string,
    v: Readonly<Record<string, Float32Array>>,
    type = ggmlType("f32"),
    ne: readonly number[] = [],
  ) => writeVectors(`${dir}/${name}.gguf`, v, type, ne);
  const good = write("good", { "direction.1": direction(1) });
  const refused = (path: string, what: RegExp) =>
    assert.throws(() => readControlVectors([{ path: good, scale: 1 }, { path, scale: 1 }]), (e) => {
      assert.ok(e instanceof ModelError && e.code === "model.control_vector", String(e));
      assert.match(e.message, what);
      return true;
    });
  refused(model, /"rope_freqs\.weight" is no direction/);
  refused(write("zero", { "direction.0": direction(1) }), /"direction\.0" is no direction of a layer from 1 on/);
  refused(write("empty", {}), /it has no tensors/);
  refused(
    write("two", { "direction.1": direction(1) }, ggmlType("f32"), [2]),
    /is f32 \[32,2\], expected f32 \[n_embd\]/,
  );
  refused(write("type", { "direction.1": direction(1) }, ggmlType("i32"), []), /is i32/);
  refused(write("short", { "direction.1": direction(1, 32) }), /has 32 numbers, another file 64/);
  await assert.rejects(
    logits({ model, "control-vector": [write("narrow", { "direction.1": direction(1, 32) })] }),
    (e) => e instanceof ModelError && /has 32 numbers, expected 64/.test(e.message),
  );
  for (const range of ["3,2", "a,b", "1", "1,2,3", ","]) {
    await assert.rejects(
      controlOf(
        new Flags(new Map<string, FlagValue>([["control-vector", [good]], ["control-vector-layer-range", range]])),
      ),
      (e) => e instanceof UsageError && e.code === "usage.value",
      range,
    );
  }
});
