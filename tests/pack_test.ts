/**
 * The packed form of a model: the same bits mapped, in pools and in any file of a set; refused where it is not the model's. Needs the CPU
 * library.
 * @module
 */
import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { bloomery } from "../cli/_testing.ts";
import { withAdapters } from "../core/arch/adapter.ts";
import { bindModel } from "../core/arch/model.ts";
import { Engine } from "../core/engine/mod.ts";
import { packModel } from "../core/engine/pack.ts";
import { planEngine } from "../core/engine/planning.ts";
import { BloomeryError, type PlanError } from "../core/errors.ts";
import { PACK_ALIGN, PACK_LAYOUT, packedPath, packMetadata, readPacked } from "../core/gguf/packed.ts";
import { ggufValue } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { GgufWriter } from "../core/gguf/write.ts";
import { describePlan } from "../core/plan/describe.ts";
import type { Backend, DeviceInfo } from "../core/program/backend.ts";
import { openBackend } from "../ffi/mod.ts";
import { testFolder } from "./models.ts";
import { type SyntheticModel, writeSynthetic } from "./quantize/synthetic.ts";

const SHAPE: SyntheticModel = { n_embd: 256, n_ff: 512, n_layer: 2, n_vocab: 100, n_head: 4, head_dim: 64 };
const EXPERTS: SyntheticModel = { ...SHAPE, arch: "qwen3moe", n_ff: 256, n_expert: 16, n_expert_used: 4 };
const OPTIONS = { n_ctx: 128, n_ubatch: 64 } as const;

function write(name: string, model: SyntheticModel): string {
  const path = `${testFolder()}/${name}.gguf`;
  writeSynthetic(path, model);
  return path;
}

/** Logits of a prompt and of some tokens after it. */
async function logits(
  path: string,
  backend: Backend,
  options = {},
): Promise<{ rows: Float32Array[]; engine: string[] }> {
  using file = openGguf(path);
  using engine = await Engine.load(file, backend, { ...OPTIONS, ...options });
  using sequence = engine.createSequence();
  const rows: Float32Array[] = [];
  let tokens: number[] = Array.from({ length: 40 }, (_, i) => i * 7 % 100);
  for (let i = 0; i < 5; i++) {
    const [out] = await engine.step([{ sequence, tokens, output: "last", want: "logits" }]);
    rows.push(out.full!);
    tokens = [out.ids[0]];
  }
  return { rows, engine: engine.plan.weights.map((w) => w.form) };
}

function sameBits(got: Float32Array[], want: Float32Array[], what: string): void {
  assert.equal(got.length, want.length);
  got.forEach((row, i) =>
    assert.deepEqual(new Uint8Array(row.buffer), new Uint8Array(want[i].buffer), `${what}, ${i}`)
  );
}

async function packFile(path: string, backend: Backend): Promise<void> {
  using file = openGguf(path);
  await packModel(file, backend);
}

Deno.test("the library's layouts are the ones that packed forms are written for", () => {
  using opened = openBackend("cpu");
  assert.equal(opened.backend.devices[0].pack_layout, PACK_LAYOUT);
});

for (const type of ["q4_0", "q8_0", "q4_K", "q5_K", "q6_K"]) {
  Deno.test(`a model of ${type} gives the same bits from its packed form, and keeps no copy of it`, async () => {
    const path = write(`packed-${type}`, { ...SHAPE, type, tied: type === "q4_K" });
    using opened = openBackend("cpu");
    const want = await logits(path, opened.backend);
    assert.ok(want.engine.includes("memory") && !want.engine.includes("packed"));
    await packFile(path, opened.backend);
    if (type === "q8_0") {
      using overridden = openGguf(path);
      overridden.metadata.set("llama.context_length", ggufValue.u32(77));
      assert.ok(readPacked(overridden) !== undefined, "a key that is overridden for a run changes no tensor");
    }
    const got = await logits(path, opened.backend);
    sameBits(got.rows, want.rows, type);
    assert.ok(got.engine.includes("packed"));
    using file = openGguf(path);
    using engine = await Engine.load(file, opened.backend, OPTIONS);
    const kept = engine.plan.weights.filter((w) => w.form === "memory" && w.type.name === type);
    assert.deepEqual(kept.map((w) => w.name), []);
  });
}

Deno.test("a model with a control vector beside it uses its packed form", async () => {
  const path = write("packed-adapted", { ...SHAPE, type: "q8_0" });
  using opened = openBackend("cpu");
  await packFile(path, opened.backend);
  using model = withAdapters(openGguf(path), [], new Map([[1, new Float32Array(256).fill(0.1)]]));
  const { plan } = planEngine(bindModel(model), opened.backend, OPTIONS);
  assert.ok(plan.weights.some((w) => w.form === "packed"));
});

Deno.test("experts in pools come packed from the packed form, with the same bits", async () => {
  const path = write("packed-experts", { ...EXPERTS, type: "q4_K" });
  using opened = openBackend("cpu");
  const { rows } = await logits(path, opened.backend);
  await packFile(path, opened.backend);
  for (const slots of [4, 9, 20]) {
    sameBits((await logits(path, opened.backend, { slots })).rows, rows, `${slots} slots`);
  }
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, { ...OPTIONS, slots: 9 });
  assert.equal(engine.plan.pools[0].slot_bytes, 3 * Math.ceil(32 * 1184 / 4096) * 4096);
  assert.match(describePlan(engine.plan), /read from the drive, packed: /);
  using sequence = engine.createSequence();
  await engine.step([{ sequence, tokens: [1, 2, 3], output: "none" }]);
  const { read_bytes } = engine.residency!.stats;
  assert.ok(read_bytes > 0 && read_bytes % (32 * 1184) === 0, `${read_bytes} bytes: whole packed matrices`);
});

Deno.test("bloomery pack writes beside the file, and refuses to write over it", async () => {
  const path = write("packed-cli", { ...SHAPE, type: "q8_0" });
  const made = await bloomery(["pack", path]);
  assert.equal(made.code, 0, made.err);
  assert.match(made.out, /packed-cli\.gguf\.packed: 15 tensors, \d+\.\d MB\n$/);
  const { mtime } = Deno.statSync(packedPath(path));
  const again = await bloomery(["pack", path]);
  assert.deepEqual([again.code, /usage\.output_exists/.test(again.err)], [2, true], again.err);
  assert.deepEqual(Deno.statSync(packedPath(path)).mtime, mtime);
  const over = await bloomery(["pack", path, "--overwrite", "--json"]);
  assert.equal(JSON.parse(over.out).n_tensor, 15, over.err);
  assert.throws(() => Deno.statSync(`${packedPath(path)}.partial`), Deno.errors.NotFound);
  const nothing = await bloomery(["pack", write("packed-nothing", SHAPE)]); // f32 matrices are used as they are
  assert.match(nothing.err, /the host uses all of its weights as they are \[model\.nothing_to_pack\]/);
});

Deno.test("pieces of any size give the same packed form, and the progress ends at its size", async () => {
  using opened = openBackend("cpu");
  const path = write("packed-pieces", { ...EXPERTS, type: "q4_K" });
  using file = openGguf(path);
  const files: Uint8Array[] = [];
  for (const piece of [1, 20_000, 1 << 20, 64 << 20]) {
    let last: number[] = [];
    await packModel(file, opened.backend, { piece, onProgress: (...progress) => last = progress });
    files.push(Deno.readFileSync(packedPath(path)));
    assert.equal(last[0], last[1]);
    assert.ok(last[1] > 0.9 * files[0].length && last[1] < files[0].length, `${last}`);
  }
  for (const other of files.slice(1)) assert.deepEqual(other, files[0]);
});

Deno.test("a packed form whose tensors are no packed matrices is refused by name", () => {
  const path = write("packed-form", { ...SHAPE, type: "q8_0" });
  using file = openGguf(path);
  const refused = (type: string, ne: number[]) => {
    const tensors = [{ name: "output.weight", type: ggmlType(type), ne }];
    const metadata = packMetadata(file);
    using writer = GgufWriter.create({ path: packedPath(path), metadata, tensors, alignment: PACK_ALIGN });
    writer.writeTensor(0, new Uint8Array(ne.reduce((a, b) => a * b, ggmlType(type).bytes)));
    writer.finish();
    assert.throws(() => readPacked(file), { code: "format.packed", message: /tensor "output\.weight" is / });
  };
  refused("f32", [64, 1]);
  refused("i8", [63, 1]);
  refused("i8", [64, 2, 2]);
  const short = (ne: number[]) => {
    const tensors = [{ name: "output.weight", type: ggmlType("i8"), ne }];
    using writer = GgufWriter.create({
      path: packedPath(path),
      metadata: packMetadata(file),
      tensors,
      alignment: PACK_ALIGN,
    });
    writer.writeTensor(0, new Uint8Array(ne.reduce((a, b) => a * b, 1)));
    writer.finish();
    using again = openGguf(path);
    using opened = openBackend("cpu");
    assert.throws(() => planEngine(bindModel(again), opened.backend, OPTIONS), {
      code: "format.packed",
      message: /Cannot use "output\.weight" of .*: it has \d matrices of 64 bytes, expected 1 of \d+ or more$/,
    });
  };
  short([64, 1]);
  short([64, 2]);
});

Deno.test("packing that is stopped leaves nothing", async () => {
  const path = write("packed-stopped", { ...SHAPE, type: "q8_0" });
  using opened = openBackend("cpu");
  using file = openGguf(path);
  const stop = new AbortController();
  const packed = await packModel(file, opened.backend, { signal: stop.signal, onProgress: () => stop.abort() });
  assert.equal(packed, undefined);
  const left = [...Deno.readDirSync(testFolder())].map((e) => e.name).filter((n) => n.startsWith("packed-stopped"));
  assert.deepEqual(left, ["packed-stopped.gguf"]);
});

Deno.test("a packed form that is not the model's is refused by name", async () => {
  const path = write("packed-stale", { ...SHAPE, type: "q8_0" }), packed = packedPath(path);
  using opened = openBackend("cpu");
  await packFile(path, opened.backend);
  const refused = (message: RegExp) => {
    using file = openGguf(path);
    assert.throws(() => readPacked(file), { code: "format.packed", message });
    assert.throws(() => planEngine(bindModel(file), opened.backend, OPTIONS), { code: "format.packed" });
  };
  const poke = (file: string, at: number, byte: number) => {
    using out = Deno.openSync(file, { read: true, write: true });
    out.seekSync(at, Deno.SeekMode.Start);
    const was = new Uint8Array(1);
    out.readSync(was);
    out.seekSync(at, Deno.SeekMode.Start);
    out.writeSync(Uint8Array.of(byte));
    return was[0];
  };
  // The weights have changed, and neither header nor size.
  const [t] = openGguf(path).tensors, middle = t.offset + t.bytes / 2;
  const was = poke(path, middle, 1);
  poke(path, middle, was ^ 1);
  refused(
    /Cannot use .*packed-stale\.gguf\.packed as the packed form of .*: it was made of another file, key \w{12}, expected \w{12}$/,
  );
  poke(path, middle, was);
  // Other layouts.
  const bytes = Deno.readFileSync(packed), key = new TextEncoder().encode("packed.layout");
  const at = bytes.findIndex((_, i) => key.every((b, k) => bytes[i + k] === b)) + key.length + 4;
  poke(packed, at, 9);
  refused(/its layouts are number 9, expected 1$/);
  Deno.copyFileSync(path, packed);
  refused(/it is a model of llama$/);
});

Deno.test("whatever bytes a packed form has, it is read as one or refused by name", async () => {
  const path = write("packed-fuzz", { ...SHAPE, n_layer: 1, type: "q8_0" }), packed = packedPath(path);
  using opened = openBackend("cpu");
  await packFile(path, opened.backend);
  const whole = Deno.readFileSync(packed), { devices } = opened.backend;
  using first = openGguf(packed);
  const head = first.shards[0].dataStart;
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(head - 1), fc.nat(255)), { minLength: 1, maxLength: 6 }),
      fc.option(fc.nat(whole.length)),
      (edits, end) => {
        const bytes = whole.slice(0, end ?? whole.length);
        for (const [at, byte] of edits) if (at < bytes.length) bytes[at] = byte;
        Deno.writeFileSync(packed, bytes);
        using file = openGguf(path);
        try {
          const { plan } = planEngine(bindModel(file), { devices, measureProgram: () => 1e6 }, OPTIONS);
          for (const w of plan.weights) {
            const place = w.form === "packed" ? file.packed(w.name)! : undefined;
            assert.ok(place === undefined || place.offset + place.stride * place.n_matrix <= bytes.length, w.name);
          }
        } catch (error) {
          assert.ok(error instanceof BloomeryError, String(error));
        }
      },
    ),
    { numRuns: 150 },
  );
});

const host = (free_bytes: number): DeviceInfo => ({
  index: 0,
  kind: "cpu",
  name: "box",
  memory_bytes: free_bytes,
  free_bytes,
  features: [],
});

Deno.test("a model larger than memory is refused with pack as the setting that fits, and fits packed", async () => {
  const path = write("packed-large", { ...SHAPE, type: "q8_0" });
  using opened = openBackend("cpu");
  const plan = (free: number) => {
    using file = openGguf(path);
    return planEngine(bindModel(file), { devices: [host(free)], measureProgram: () => 1e5 }, { n_ctx: 64, n_ubatch: 1 })
      .plan;
  };
  const whole = plan(2 ** 40), small = whole.total_bytes - whole.resident_bytes / 2;
  assert.equal(whole.devices[0].file_bytes, 0);
  assert.throws(() => plan(small), (error: PlanError) => {
    assert.equal(error.code, "plan.does_not_fit");
    assert.match(error.hint!, /^run bloomery pack .*packed-large\.gguf: /);
    return true;
  });
  await packFile(path, opened.backend);
  const fits = plan(small);
  assert.ok(fits.total_bytes > small && fits.devices[0].file_bytes > whole.resident_bytes / 2);
  assert.match(
    describePlan(fits),
    /mapped from the packed form\n.* more than memory holds: read from the file again and again/,
  );
  assert.throws(() => plan(fits.total_bytes - fits.devices[0].file_bytes - 1), { code: "plan.does_not_fit" });
});
