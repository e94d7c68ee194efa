import assert from "node:assert/strict";
import { Engine } from "../../core/engine/mod.ts";
import { openGguf } from "../../core/gguf/read.ts";
import { openBackend } from "../../ffi/mod.ts";
import { testFolder } from "../models.ts";
import { writeSynthetic } from "./synthetic.ts";

/** Rows of each expert of a layer, the most used first. */
async function routed(skew: number): Promise<number[]> {
  const path = `${testFolder()}/skew-${skew}.gguf`;
  writeSynthetic(path, {
    arch: "qwen3moe",
    n_embd: 512,
    n_ff: 256,
    n_layer: 1,
    n_vocab: 2048,
    n_head: 4,
    head_dim: 64,
    n_expert: 64,
    n_expert_used: 4,
    type: "q4_K",
    skew,
  });
  using opened = openBackend("cpu");
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, { n_ctx: 1024, n_out: 1, n_ubatch: 256, slots: 64 });
  using sequence = engine.createSequence();
  const tokens = Int32Array.from({ length: 1000 }, (_, i) => (i * 997) % 2048);
  await engine.step([{ sequence, tokens, output: "none" }]);
  const [rows] = [...engine.residency!.counts.values()];
  return Array.from(rows).sort((a, b) => b - a);
}

Deno.test("a skewed model routes about as Zipf's law says, another evenly", async () => {
  const share = (rows: number[], n: number) => rows.slice(0, n).reduce((a, b) => a + b) / 4000;
  const zipf = await routed(1), even = await routed(0);
  // Zipf's law with exponent 1 over 64: the first 16 get 71 %, the last 32 get 15 %.
  assert.ok(Math.abs(share(zipf, 16) - 0.71) < 0.1, `${share(zipf, 16)}`);
  assert.ok(1 - share(zipf, 32) > 0.08 && 1 - share(zipf, 32) < 0.22, `${1 - share(zipf, 32)}`);
  assert.ok(share(even, 16) < share(zipf, 16) - 0.1, `${share(even, 16)}`);
});
