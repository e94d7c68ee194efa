/**
 * One model over several devices: two logical devices of this machine give the bits of one, for every family and however its layers and
 * experts are shared out. Needs the CPU library.
 * @module
 */
import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { Engine, type EngineOptions } from "../core/engine/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import type { PlaceOptions } from "../core/plan/places.ts";
import { ggmlType } from "../core/gguf/types.ts";
import type { Backend, StepInput } from "../core/program/backend.ts";
import { NONE } from "../core/program/ops.ts";
import { KIND, type OpDesc, Ops, type Program } from "../core/program/program.ts";
import { crossings, placeProgram } from "../core/program/place.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { Adapter, withAdapters } from "../core/arch/adapter.ts";
import { NativeError } from "../core/errors.ts";
import { openBackend } from "../ffi/mod.ts";
import { writeAdapter } from "./adapter_models.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { testFolder } from "./models.ts";

const OPTIONS = { n_ctx: 256, n_ubatch: 32, n_seq: 4, n_cache: 1024 } as const;

/** A backend with one more logical device of the host. */
function twoHosts() {
  const opened = openBackend("cpu");
  assert.equal(opened.backend.addDevice(0), 1);
  return opened;
}

const prompt = (n: number, seed: number) => Array.from({ length: n }, (_, i) => (i * 37 + seed * 11 + 5) % N_VOCAB);

/** Whole rows of logits of all that caches and states go through. */
async function answers(engine: Engine): Promise<Float32Array[]> {
  const rows: Float32Array[] = [];
  const step = async (...requests: Parameters<Engine["step"]>[0]) => {
    for (const out of await engine.step(requests.map((r) => ({ ...r, want: "logits" as const })))) {
      if (out.n_rows > 0) rows.push(out.full!);
    }
  };
  using a = engine.createSequence();
  using b = engine.createSequence();
  // Several passes, whose last page is a point to go back to.
  await step({ sequence: a, tokens: prompt(75, 1), output: 3 });
  await step({ sequence: b, tokens: prompt(5, 2), output: "all" }, { sequence: a, tokens: [7], output: "last" });
  using c = a.fork();
  await step({ sequence: c, tokens: [9, 11], output: "all" }, { sequence: b, tokens: [3], output: "none" });
  a.truncate(70);
  await step({ sequence: a, tokens: prompt(9, 3), output: "all" }, { sequence: c, tokens: [1], output: "last" });
  // Guesses that turn out wrong, and a page that was shared.
  await step({ sequence: b, tokens: [4, 5, 6], output: "all", guesses: 2 });
  b.rewind(b.length - 2);
  await step({ sequence: b, tokens: [8], output: "last" });
  using d = engine.restore(engine.snapshot(a));
  await step({ sequence: d, tokens: [2], output: "last" }, { sequence: a, tokens: [2], output: "last" });
  return rows;
}

function sameBits(got: readonly Float32Array[], want: readonly Float32Array[], what: string): void {
  assert.equal(got.length, want.length, what);
  got.forEach((row, i) => {
    assert.deepEqual(new Uint8Array(row.buffer), new Uint8Array(want[i].buffer), `${what}, answer ${i}`);
  });
}

async function run(path: string, backend: Backend, options: EngineOptions, place?: PlaceOptions) {
  using file = openGguf(path);
  using engine = await Engine.load(file, backend, { ...OPTIONS, ...options, ...(place ? { place } : {}) });
  return { rows: await answers(engine), plan: engine.plan };
}

for (const [cache, type] of [["f16", "q8_0"], ["q8_0", "bf16"]] as const) {
  Deno.test(`every family on two devices gives the bits of one, with a ${cache} cache`, async () => {
    using opened = twoHosts();
    const { backend } = opened, settings = { cacheTypeK: cache, cacheTypeV: cache } as const;
    let n_moved = 0;
    for (const [name, model] of Object.entries(FAMILY_MODELS)) {
      const path = await writeFamilyModel(`${testFolder()}/segments-${name}.gguf`, model, { type, backend });
      const one = await run(path, backend, settings);
      const n_layer = one.plan.placement.layers.length;
      assert.equal(one.plan.moved_bytes, 0);
      const places: Record<string, PlaceOptions> = {
        "layers in halves": { split: [{ device: 0, layers: n_layer >> 1 }, { device: 1 }] },
        "layers in turn": { split: Array.from({ length: n_layer }, (_, i) => ({ device: i % 2, layers: 1 })) },
        "experts elsewhere": { split: [{ device: 1 }], hostExperts: n_layer },
        "some weights elsewhere": { overrides: [{ pattern: /attn_(k|output)|ffn_(down|norm)|ssm_out/, device: 1 }] },
      };
      // What a cache's type changes is seen in one of them.
      const wanted = Object.entries(places).filter(([what]) => cache === "f16" || what === "layers in turn");
      for (const [what, place] of wanted) {
        const { rows, plan } = await run(path, backend, settings, place);
        sameBits(rows, one.rows, `${name}, ${what}`);
        if (plan.devices.length > 1) {
          assert.ok(plan.moved_bytes > 0, `${name}, ${what}`);
          n_moved++;
        }
      }
      Deno.removeSync(path);
    }
    assert.ok(n_moved > (cache === "f16" ? 3 : 0.9) * Object.keys(FAMILY_MODELS).length, `${n_moved}`);
  });
}

/** A family's model on disk. */
const modelOf = (name: string, backend: Backend, type = "q8_0") =>
  writeFamilyModel(`${testFolder()}/segments-of-${name}.gguf`, FAMILY_MODELS[name], { type, backend });
const HALVES: PlaceOptions = { split: [{ device: 0, layers: 1 }, { device: 1 }] };

Deno.test("experts in a pool of one device give the bits of resident ones to a trunk on another", async () => {
  using opened = twoHosts();
  const path = await modelOf("qwen3moe", opened.backend), place = { split: [{ device: 1 }], hostExperts: 99 };
  const one = await run(path, opened.backend, {});
  for (const slots of [1, 9]) {
    const { rows, plan } = await run(path, opened.backend, { slots }, place);
    assert.deepEqual(plan.pools.map((p) => p.device), [0]);
    assert.ok(plan.devices[0].pool_bytes > 0 && plan.devices[1].pool_bytes === 0);
    sameBits(rows, one.rows, `${slots} slots`);
  }
});

Deno.test("a sequence is saved with one placement and restored with another", async () => {
  using opened = twoHosts();
  const { backend } = opened;
  // Windows, states and plain caches.
  for (const name of ["gemma3", "qwen3next", "granitehybrid"]) {
    const path = await modelOf(name, backend);
    using file = openGguf(path);
    using one = await Engine.load(file, backend, OPTIONS);
    const n_layer = one.plan.placement.layers.length;
    const turns = Array.from({ length: n_layer }, (_, i) => ({ device: i % 2, layers: 1 }));
    using both = await Engine.load(file, backend, { ...OPTIONS, place: { split: turns } });
    for (const [from, to] of [[one, both], [both, one]]) {
      using a = from.createSequence();
      await from.step([{ sequence: a, tokens: prompt(70, 4), output: "none" }]);
      const saved = from.snapshot(a);
      using b = to.restore(saved);
      assert.deepEqual(to.snapshot(b), saved, name);
      const [x] = await from.step([{ sequence: a, tokens: [5, 6], output: "all", want: "logits" }]);
      const [y] = await to.step([{ sequence: b, tokens: [5, 6], output: "all", want: "logits" }]);
      sameBits([x.full!], [y.full!], name);
    }
  }
});

Deno.test("sums of inputs, adapters, hidden rows and an engine that slept are those of one device", async () => {
  using opened = twoHosts();
  const { backend } = opened, path = await modelOf("qwen3moe", backend);
  const adapter = writeAdapter(`${testFolder()}/segments-adapter.gguf`, path, { seed: 1, rank: 4, alpha: 6 });
  const results = async (place: PlaceOptions) => {
    using file = withAdapters(openGguf(path), [Adapter.open(adapter)]);
    using engine = await Engine.load(file, backend, { ...OPTIONS, place });
    const of = async () => {
      using a = engine.createSequence([0.7]);
      using b = engine.createSequence([]);
      const tokens = prompt(9, 5), want = "logits";
      const out = await engine.step([{ sequence: a, tokens, output: 2, want }, {
        sequence: b,
        tokens,
        output: 2,
        want,
      }]);
      using c = engine.createSequence();
      const [{ hidden }] = await engine.step([{ sequence: c, tokens, output: "all", want: "hidden" }]);
      return [...out.map((o) => o.full!), hidden!];
    };
    const first = await of();
    engine.sleep();
    await engine.wake();
    sameBits(await of(), first, "after sleep");
    using plain = openGguf(path);
    using summing = await Engine.load(plain, backend, { ...OPTIONS, place, collect: () => true });
    using s = summing.createSequence();
    await summing.step([{ sequence: s, tokens: prompt(40, 6), output: "none" }]);
    return { first, sums: summing.collected(s) };
  };
  const one = await results({});
  assert.ok(one.sums.length > 4 && one.sums.every((s) => s.counts.some((n) => n > 0)));
  assert.notDeepEqual(one.first[0], one.first[1]);
  for (const place of [HALVES, { split: [{ device: 1 }], hostExperts: 1 }]) {
    const other = await results(place);
    sameBits(other.first, one.first, JSON.stringify(place));
    assert.deepEqual(other.sums, one.sums);
  }
});

const N_TOK = 5, N_OUT = 3;

/** Slices, other shapes, values that are read early and late, and outputs that nobody else reads. */
function elements(): Program {
  const op = new Ops({ n_tok: N_TOK, n_out: N_OUT, n_seq: N_TOK, n_page: 1 }, {
    find: () => ({ type: ggmlType("f32"), ne: [8, 10] }),
  });
  const x = op.get_rows(op.weights()("t", [8, 10]), op.tokens), y = op.scale(x, 2);
  const z = op.add(y.heads(2).slice(1, 2).heads(1), x.heads(2).slice(1, 2).heads(1));
  const w = op.mul(y.heads(4), op.unary("tanh", x).heads(4)), out = op.wanted_rows(w.flat());
  const both = op.concat([z.flat(), op.gate("silu", w.flat(), x)]);
  for (const [name, t] of Object.entries({ z, out, both, last: op.unary("tanh", out), first: x })) op.output(name, t);
  return op.finish();
}

/** The program with each op where `devices` says, and a COPY of what it reads of others. */
function moved(p: Program, devices: readonly number[], n = 3): Program {
  const tensors = [...p.tensors], ops: OpDesc[] = [], copies = new Map<string, number>();
  const rootOf = (id: number) => tensors[id].kind === KIND.VIEW ? tensors[id].ref : id;
  const copied = (id: number, device: number, key = `${id},${device}`) => {
    const known = copies.get(key);
    if (known !== undefined) return known;
    const { type, ne, rows } = tensors[id], packed = { offset: 0, nb: [0, 0, 0] as const, limit: 0, ref: 0 };
    const dst = tensors.push({ kind: KIND.SCRATCH, type, ne, rows, device, ...packed }) - 1;
    ops.push({ op: "COPY", device, dst: [dst], src: [id], params: [] });
    copies.set(key, dst);
    return dst;
  };
  p.ops.forEach((op, i) => {
    const device = i === 0 ? 0 : devices[i % devices.length]; // the table is on device 0
    const src = op.src.map((id) => {
      if (id === NONE || tensors[rootOf(id)].kind !== KIND.SCRATCH || tensors[rootOf(id)].device === device) return id;
      return copied(id, device);
    });
    for (const id of op.dst) tensors[id] = { ...tensors[id], device };
    tensors.forEach((t, id) => {
      if (t.kind === KIND.VIEW) tensors[id] = { ...t, device: tensors[t.ref].device };
    });
    ops.push({ ...op, device, src });
  });
  // Copies of copies, the last of which only outputs read.
  const outputs = p.outputs.map((o, i) => ({
    ...o,
    tensor: copied(copied(o.tensor, (i + 1) % n, `a${i}`), i % n, `b${i}`),
  }));
  return { ...p, tensors, ops, outputs: [...outputs, ...p.outputs.map((o) => ({ ...o, name: `${o.name} itself` }))] };
}

Deno.test("values that cross between three devices in any order arrive as they left", async () => {
  using opened = openBackend("cpu");
  const { backend } = opened;
  assert.deepEqual([backend.addDevice(0), backend.addDevice(1)], [1, 2]);
  assert.deepEqual(backend.devices.map((d) => [d.index, d.like]), [[0, undefined], [1, 0], [2, 0]]);
  const data = new Uint8Array(Float32Array.from({ length: 80 }, (_, i) => Math.sin(i)).buffer);
  const program = elements(), [{ type, ne, uses }] = program.weights;
  using table = await backend.loadTensor({ device: 0, type, ne, uses, source: { data } });
  const names = program.outputs.map((o) => o.name);
  const step = async (p: Program, input: StepInput) => {
    using handle = backend.createProgram(p, [table], []);
    const out = await handle.step(input, p.outputs.map((o) => o.name));
    return { out, scratchBytes: handle.scratchBytes };
  };
  const input = (n: number, n_out: number): StepInput => ({
    tokens: Int32Array.from({ length: n }, (_, i) => (3 * i + 1) % 10),
    positions: new Int32Array(n),
    seqs: Int32Array.from({ length: n }, (_, i) => i),
    outRows: Int32Array.from({ length: n_out }, (_, i) => n - 1 - i),
    targets: new Int32Array(n_out).fill(-1),
    pages: [],
    n_page: [],
    n_seq: n,
    derived: [],
  });
  const shape = fc.tuple(fc.integer({ min: 1, max: N_TOK }), fc.integer({ min: 0, max: N_OUT }));
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(2), { minLength: 1, maxLength: 12 }), shape, async (devices, [n, n_out]) => {
      const rows = input(n, Math.min(n, n_out)), want = await step(program, rows);
      const p = moved(program, devices), got = await step(p, rows);
      for (const name of names) {
        assert.deepEqual(got.out[name], want.out[name], name);
        assert.deepEqual(got.out[`${name} itself`], want.out[name], name);
      }
      const buffers = crossings(p).reduce((sum, c) => sum + c.bytes * (c.rows === "out" ? N_OUT : N_TOK), 0);
      assert.ok(buffers > 0 && got.scratchBytes > buffers);
      const parts = [0, 1, 2].map((d) => backend.measureProgram(p, d, [])!);
      assert.equal(parts.reduce((a, b) => a + b), got.scratchBytes); // the host's has what passes between them
    }),
    { numRuns: 60 },
  );
});

Deno.test("a program for several devices is refused where an op and what it reads are apart, or a device is not there", async () => {
  using opened = twoHosts();
  const { backend } = opened, program = elements(), [{ type, ne, uses }] = program.weights;
  const data = new Uint8Array(320);
  using table = await backend.loadTensor({ device: 0, type, ne, uses, source: { data } });
  const create = (p: Program) => backend.createProgram(p, [table], [])[Symbol.dispose]();
  const refused = (p: Program, text: RegExp) =>
    assert.throws(() => create(p), (e) => e instanceof NativeError && text.test(e.message) || assert.fail(`${e}`));
  create(moved(program, [0, 1], 2));
  refused(moved(program, [0, 2], 2), /Cannot use device 2: there are 2/);
  const apart = moved(program, [0, 1], 2), copy = apart.ops.findIndex((o) => o.op === "COPY");
  const without = apart.ops.map((o) => ({
    ...o,
    src: o.src.map((id) => id === apart.ops[copy].dst[0] ? apart.ops[copy].src[0] : id),
  }));
  refused({ ...apart, ops: without }, /op \d+ \(\w+\): source \d is on device 0, the op on device 1/);
  const wrong = apart.ops.map((o, i) => i === copy ? { ...o, device: 0 } : o);
  refused({ ...apart, ops: wrong }, /COPY.*result 0 is on another device than the op/);
  assert.throws(() => backend.addDevice(7), { code: "native.argument", message: /Cannot use device 7: there are 2/ });
});

Deno.test("the reference runs programs for several devices too", async () => {
  using backend = openReferenceBackend();
  assert.equal(backend.addDevice(0), 1);
  using opened = openBackend("cpu");
  const path = await modelOf("llama", opened.backend);
  sameBits((await run(path, backend, {}, HALVES)).rows, (await run(path, backend, {})).rows, "reference");
});

Deno.test("what crosses is what is read: a slice alone, a whole value once whatever its shape", () => {
  const ne: Record<string, number[]> = {
    "token_embd.weight": [8, 10],
    "blk.1.a.weight": [4],
    "blk.1.b.weight": [4, 2],
  };
  const bytes = (build: (op: Ops) => void) => {
    const op = new Ops({ n_tok: 3, n_out: 3, n_seq: 3, n_page: 1 }, {
      find: (name) => ne[name] && { type: ggmlType("f32"), ne: ne[name] },
    });
    build(op);
    const p = placeProgram(op.finish(), { layers: [0, 1], output: 1, overrides: [] });
    return crossings(p).map((c) => [c.from, c.to, c.bytes]);
  };
  const embed = (op: Ops) => op.get_rows(op.weights()("token_embd", [8, 10]), op.tokens);
  const by = (op: Ops, name: string) => op.weights("blk.1")(name, ne[`blk.1.${name}.weight`]);
  for (const start of [0, 2]) {
    assert.deepEqual(bytes((op) => op.output("y", op.mul(embed(op).slice(start, 4), by(op, "a")))), [[0, 1, 16]]);
  }
  assert.deepEqual(
    bytes((op) => {
      const x = embed(op), y = op.mul(x.heads(2), by(op, "b"));
      op.output("y", op.add(y.flat(), op.mul(x.heads(2), by(op, "b")).flat()));
      op.output("z", op.mul(x.slice(0, 4), by(op, "a"))); // a part of what is there already
    }),
    [[0, 1, 32]],
  );
});
