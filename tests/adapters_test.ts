/** Low-rank adapters: the numbers of the merged model, rows of a step with different ones, and files that do not fit. */
import assert from "node:assert/strict";
import { Adapter, withAdapters } from "../core/arch/adapter.ts";
import { Engine, type StepOutput } from "../core/engine/mod.ts";
import { decodeSnapshot, encodeSnapshot } from "../core/engine/snapshot_file.ts";
import { ModelError } from "../core/errors.ts";
import { openGguf } from "../core/gguf/read.ts";
import type { Backend } from "../core/program/backend.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { openBackend } from "../ffi/mod.ts";
import { writeAdapter, writeMerged } from "./adapter_models.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { testFolder } from "./models.ts";

const TOKENS = Array.from({ length: 24 }, (_, i) => (37 * i + 5) % N_VOCAB);

async function engineOf(path: string, adapters: readonly string[], backend: Backend): Promise<Engine> {
  const file = withAdapters(openGguf(path), adapters.map((a) => Adapter.open(a)));
  return await Engine.load(file, backend, { n_ctx: 128, contexts: 4, n_ubatch: 64 });
}

/** Logits of all positions. */
async function logits(engine: Engine, scales: readonly number[], pieces = [TOKENS.length]): Promise<Float32Array> {
  using sequence = engine.createSequence(scales);
  const rows: Float32Array[] = [];
  let at = 0;
  for (const n of pieces) {
    const [out] = await engine.step([{ sequence, tokens: TOKENS.slice(at, at += n), output: "all", want: "logits" }]);
    rows.push(out.full!.slice());
  }
  return Float32Array.from(rows.flatMap((r) => [...r]));
}

function worst(got: Float32Array, want: Float32Array): number {
  assert.equal(got.length, want.length);
  return got.reduce((m, v, i) => Math.max(m, Math.abs(v - want[i])), 0);
}

const names = {
  llama: "dense, heads of its own",
  qwen3moe: "experts",
  qwen3: "tied head",
  mistral: "one matrix for q, k and v",
};
for (const [name, what] of Object.entries(names)) {
  Deno.test(`adapters of ${name} (${what}) give the merged model's numbers`, async () => {
    const dir = `${testFolder()}/lora-${name}`;
    Deno.mkdirSync(dir, { recursive: true });
    const model = await writeFamilyModel(`${dir}/model.gguf`, FAMILY_MODELS[name]);
    const tied = name === "qwen3" || name === "mistral";
    const of = tied ? { of: /(attn_\w+|ffn_(gate|up|down))\.weight$(?<!norm\.weight)/ } : {};
    const one = { ...of, seed: 1, rank: 4, alpha: 6 }, two = { ...of, seed: 2, rank: 2, alpha: 3 };
    const paths = [one, two].map((o, i) => writeAdapter(`${dir}/${i}.gguf`, model, o));
    const cases = [[1, 0], [0, -0.5], [0.75, 1.5]];
    const merged = cases.map(([a, b], i) =>
      writeMerged(`${dir}/merged-${i}.gguf`, model, [{ ...one, scale: a }, { ...two, scale: b }])
    );
    for (const backend of [openReferenceBackend(), openBackend("cpu").backend]) {
      using engine = await engineOf(model, paths, backend);
      using plain = await engineOf(model, [], backend);
      const without = await logits(plain, []);
      assert.equal(worst(await logits(engine, []), without), 0, "adapters that a sequence has none of");
      for (const [i, scales] of cases.entries()) {
        using other = await engineOf(merged[i], [], backend);
        const want = await logits(other, []), got = await logits(engine, scales);
        const size = Math.max(...want.map(Math.abs));
        assert.ok(worst(want, without) > 0.02 * size, `the adapter changes ${worst(want, without)} of ${size}`);
        assert.ok(worst(got, want) < 2e-4 * size, `${scales}: ${worst(got, want)} of ${size}`);
      }
      if (backend.devices[0].kind === "reference") continue;
      // Alone, in pieces, and beside sequences with other adapters: the same bits.
      const want: Float32Array[] = [];
      for (const scales of [...cases, []]) want.push(await logits(engine, scales));
      const pieces = await logits(engine, cases[2], [7, 1, 1, 15]);
      assert.deepEqual(pieces, want[2]);
      const sequences = [...cases, []].map((s) => engine.createSequence(s));
      const outputs: StepOutput[][] = [];
      for (let at = 0; at < TOKENS.length; at += 8) {
        const tokens = TOKENS.slice(at, at + 8);
        outputs.push(
          await engine.step(
            sequences.map((sequence) => ({ sequence, tokens, output: "all", want: "logits" as const })),
          ),
        );
      }
      sequences.forEach((s, i) => {
        assert.deepEqual(
          Float32Array.from(outputs.flatMap((o) => [...o[i].full!])),
          want[i],
          `sequence ${i} in a batch`,
        );
        s.dispose();
      });
    }
  });
}

Deno.test("forks and snapshots keep a sequence's adapters", async () => {
  const dir = `${testFolder()}/lora-fork`;
  Deno.mkdirSync(dir);
  const model = await writeFamilyModel(`${dir}/model.gguf`, FAMILY_MODELS.llama);
  using opened = openBackend("cpu");
  using engine = await engineOf(model, [writeAdapter(`${dir}/a.gguf`, model)], opened.backend);
  using sequence = engine.createSequence([0.5]);
  await engine.step([{ sequence, tokens: TOKENS, output: "none" }]);
  const owner = { model: "m", build: "b" };
  const saved = await decodeSnapshot(
    await encodeSnapshot(engine.snapshot(sequence), owner) as Uint8Array<ArrayBuffer>,
    owner,
    "x",
  );
  using restored = engine.restore(saved);
  using fork = sequence.fork();
  const rows = [];
  for (const s of [sequence, restored, fork]) {
    assert.deepEqual(s.adapters, [0.5]);
    const [out] = await engine.step([{ sequence: s, tokens: [3], output: "last", want: "logits" }]);
    rows.push(out.full!.slice());
  }
  assert.deepEqual(rows[1], rows[0]);
  assert.deepEqual(rows[2], rows[0]);
});

Deno.test("adapters that do not fit are refused by name", async () => {
  const dir = `${testFolder()}/lora-refused`;
  Deno.mkdirSync(dir);
  const model = await writeFamilyModel(`${dir}/model.gguf`, FAMILY_MODELS.llama);
  const other = await writeFamilyModel(`${dir}/other.gguf`, {
    ...FAMILY_MODELS.llama,
    keys: { ...FAMILY_MODELS.llama.keys, feed_forward_length: 128 },
  });
  const tied = await writeFamilyModel(`${dir}/tied.gguf`, {
    ...FAMILY_MODELS.llama,
    with: /attn_q\.bias|attn_output\.bias/,
  });
  using opened = openBackend("cpu");
  const refused = async (adapter: string, code: string, what: RegExp, of = model) => {
    await assert.rejects(() => engineOf(of, [adapter], opened.backend), (e: unknown) => {
      assert.ok(e instanceof ModelError, String(e));
      assert.equal(e.code, code);
      assert.match(e.message, what);
      return true;
    });
  };
  await refused(model, "model.adapter", /general\.type is nothing, expected adapter/);
  const write = (name: string, options: Parameters<typeof writeAdapter>[2], of = model) =>
    writeAdapter(`${dir}/${name}.gguf`, of, options);
  await refused(write("type", { keys: { "adapter.type": "dora" } }), "model.adapter", /adapter\.type is dora/);
  await refused(
    write("arch", { keys: { "general.architecture": "qwen3" } }),
    "model.adapter",
    /is for qwen3, expected llama/,
  );
  await refused(write("other", {}, other), "model.tensor_shape", /adapter\.0\.blk\.0\.ffn_gate\.weight\.b/);
  await refused(write("norms", { of: /attn_norm\.weight/ }), "model.adapter", /changes blk\.0\.attn_norm\.weight/);
  await refused(write("empty", { of: /nothing/ }), "model.adapter", /has no tensors/);
  // A table that is the head as well would be changed in one of two places.
  await refused(write("tied-table", { of: /token_embd/ }, tied), "model.tensor_shape", /token_embd/, tied);
});
