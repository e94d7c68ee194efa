/**
 * One model over several devices: two logical devices of this machine give the bits of one, for every family and however its layers and
 * experts are shared out. Needs the CPU library.
 * @module
 */
import assert from "node:assert/strict";
import { Engine, type EngineOptions } from "../core/engine/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import type { PlaceOptions } from "../core/plan/places.ts";
import type { Backend } from "../core/program/backend.ts";
import { openBackend } from "../ffi/mod.ts";
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

for (const [cache, types] of [["f16", ["q8_0"]], ["q8_0", ["bf16"]]] as const) {
  Deno.test(`every family on two devices gives the bits of one, with a ${cache} cache`, async () => {
    using opened = twoHosts();
    const { backend } = opened, settings = { cacheTypeK: cache, cacheTypeV: cache } as const;
    let n_moved = 0;
    for (const [name, model] of Object.entries(FAMILY_MODELS)) {
      const path = await writeFamilyModel(`${testFolder()}/segments-${name}.gguf`, model, { type: types[0], backend });
      const one = await run(path, backend, settings);
      const n_layer = one.plan.placement.layers.length;
      assert.equal(one.plan.moved_bytes, 0);
      const places: Record<string, PlaceOptions> = {
        "layers in halves": { split: [{ device: 0, layers: n_layer >> 1 }, { device: 1 }] },
        "layers in turn": { split: Array.from({ length: n_layer }, (_, i) => ({ device: i % 2, layers: 1 })) },
        "experts elsewhere": { split: [{ device: 1 }], hostExperts: n_layer },
        "some weights elsewhere": { overrides: [{ pattern: /attn_(k|output)|ffn_(down|norm)|ssm_out/, device: 1 }] },
      };
      for (const [what, place] of Object.entries(places)) {
        const { rows, plan } = await run(path, backend, settings, place);
        sameBits(rows, one.rows, `${name}, ${what}`);
        if (plan.devices.length > 1) {
          assert.ok(plan.moved_bytes > 0, `${name}, ${what}`);
          n_moved++;
        }
      }
      Deno.removeSync(path);
    }
    assert.ok(n_moved > 3 * Object.keys(FAMILY_MODELS).length, `${n_moved}`);
  });
}
