/**
 * A model over the host and a card, and over two logical devices of one card. `deno task test:gpu`.
 *
 * What can be expected: two logical devices of a card compute every op with that card's kernels, so they give the bits of one. Products
 * with quantized weights have the same bits on host and card, but exponentials, norms and attention are not promised to: so ids are equal,
 * but for near ties, and logits agree to rounding. Which rows share a step changes no bit in either case.
 */
import assert from "node:assert/strict";
import { Engine, type EngineOptions } from "../../core/engine/mod.ts";
import { openGguf } from "../../core/gguf/read.ts";
import type { PlaceOptions } from "../../core/plan/places.ts";
import type { Backend } from "../../core/program/backend.ts";
import { openBackend } from "../../ffi/mod.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "../family_models.ts";
import { testFolder } from "../models.ts";
import { hasCard } from "./card.ts";

const ignore = !hasCard();
const OPTIONS = { n_ctx: 256, n_ubatch: 32, n_seq: 3, n_cache: 768 } as const;
/** Families of plain, windowed, recurrent and latent caches, with and without experts. */
const FAMILIES = [
  "llama",
  "qwen3moe",
  "gpt-oss",
  "gemma3",
  "qwen3next",
  "deepseek2, V3",
  "mamba2",
  "granitehybrid",
];

const prompt = (n: number, seed: number) => Array.from({ length: n }, (_, i) => (i * 37 + seed * 11 + 5) % N_VOCAB);

interface Answer {
  /** Whole rows of logits: a prompt in passes, steps of two sequences, a fork. */
  readonly rows: Float32Array[];
  /** The same prompt one token a step. */
  readonly single: Float32Array;
}

async function answers(engine: Engine): Promise<Answer> {
  const rows: Float32Array[] = [];
  const step = async (...requests: Parameters<Engine["step"]>[0]) => {
    for (const out of await engine.step(requests.map((r) => ({ ...r, want: "logits" as const })))) {
      if (out.n_rows > 0) rows.push(out.full!);
    }
  };
  const ids = prompt(40, 1);
  using a = engine.createSequence();
  using b = engine.createSequence();
  await step({ sequence: a, tokens: ids, output: "last" });
  await step({ sequence: b, tokens: prompt(5, 2), output: "all" }, { sequence: a, tokens: [7], output: "last" });
  using c = a.fork();
  await step({ sequence: c, tokens: [9, 11], output: "all" }, { sequence: b, tokens: [3], output: "last" });
  using d = engine.createSequence();
  let single: Float32Array = new Float32Array(0);
  for (const id of ids) {
    const [out] = await engine.step([{ sequence: d, tokens: [id], output: "last", want: "logits" }]);
    single = out.full!;
  }
  return { rows, single };
}

async function run(path: string, backend: Backend, options: EngineOptions): Promise<Answer> {
  using file = openGguf(path);
  using engine = await Engine.load(file, backend, { ...OPTIONS, ...options });
  return await answers(engine);
}

const bytes = (row: Float32Array) => new Uint8Array(row.buffer, row.byteOffset, row.byteLength);

function sameBits(got: readonly Float32Array[], want: readonly Float32Array[], what: string): void {
  assert.equal(got.length, want.length, what);
  got.forEach((row, i) => assert.deepEqual(bytes(row), bytes(want[i]), `${what}, answer ${i}`));
}

/** The best token of each row is the same, or nearly as good; logits agree to rounding. */
function near(got: readonly Float32Array[], want: readonly Float32Array[], what: string): void {
  const tolerance = 0.02;
  got.forEach((rows, i) => {
    for (let at = 0; at < rows.length; at += N_VOCAB) {
      const x = rows.subarray(at, at + N_VOCAB), y = want[i].subarray(at, at + N_VOCAB);
      const scale = Math.max(...y) - Math.min(...y);
      x.forEach((v, k) => assert.ok(Math.abs(v - y[k]) <= tolerance * scale, `${what}, answer ${i}: ${v}, ${y[k]}`));
      const best = x.indexOf(Math.max(...x));
      assert.ok(Math.max(...y) - y[best] <= tolerance * scale, `${what}, answer ${i}: token ${best}`);
    }
  });
}

Deno.test({
  name: "two logical devices of a card give the bits of one",
  ignore,
  fn: async () => {
    using opened = openBackend("cuda:0,cuda:0");
    const { backend } = opened, card = opened.device.index;
    const other = backend.devices.find((d) => d.like === card)!.index;
    for (const name of FAMILIES) {
      const path = await writeFamilyModel(`${testFolder()}/cards-${name}.gguf`, FAMILY_MODELS[name], {
        type: "q8_0",
        backend,
      });
      const one = await run(path, backend, { device: card });
      sameBits([one.single], [one.rows[0]], `${name}, one device, one token a step`);
      const places: Record<string, PlaceOptions> = {
        "layers": { split: [{ device: card, layers: 1 }, { device: other }] },
        "experts elsewhere": { split: [{ device: card }], overrides: [{ pattern: /exps/, device: other }] },
      };
      for (const [what, place] of Object.entries(places)) {
        const got = await run(path, backend, { device: card, place });
        sameBits([...got.rows, got.single], [...one.rows, one.single], `${name}, ${what}`);
      }
      Deno.removeSync(path);
    }
  },
});

Deno.test({
  name: "host and card together answer what the host answers",
  ignore,
  fn: async () => {
    using opened = openBackend("cuda");
    const { backend } = opened, card = opened.device.index;
    for (const name of FAMILIES) {
      const path = await writeFamilyModel(`${testFolder()}/both-${name}.gguf`, FAMILY_MODELS[name], {
        type: "q8_0",
        backend,
      });
      const host = await run(path, backend, { device: 0 });
      const places: Record<string, PlaceOptions> = {
        "the first layer on the host": { split: [{ device: 0, layers: 1 }, { device: card }] },
        "the last layers on the host": { split: [{ device: card, layers: 1 }, { device: 0 }] },
        "experts on the host": { split: [{ device: card }], hostExperts: 99 },
        "only experts on the card": { split: [{ device: 0 }], overrides: [{ pattern: /exps/, device: card }] },
      };
      for (const [what, place] of Object.entries(places)) {
        const got = await run(path, backend, { device: card, place });
        near(got.rows, host.rows, `${name}, ${what}`);
        // Exact in itself: a prompt in passes leaves the bits that one token a step leaves.
        sameBits([got.single], [got.rows[0]], `${name}, ${what}, one token a step`);
        const again = await run(path, backend, { device: card, place });
        sameBits(again.rows, got.rows, `${name}, ${what}, again`);
      }
      Deno.removeSync(path);
    }
  },
});

Deno.test({
  name: "experts come to a card's model from a pool on the host",
  ignore,
  fn: async () => {
    using opened = openBackend("cuda");
    const { backend } = opened, card = opened.device.index;
    const path = await writeFamilyModel(`${testFolder()}/pooled.gguf`, FAMILY_MODELS.qwen3moe, {
      type: "q8_0",
      backend,
    });
    const place: PlaceOptions = { split: [{ device: card }], hostExperts: 99 };
    const resident = await run(path, backend, { device: card, place });
    const pooled = await run(path, backend, { device: card, place, slots: 1 });
    sameBits([...pooled.rows, pooled.single], [...resident.rows, resident.single], "from the smallest pool");
  },
});
