/** Plans that are true: what a process takes for a model, resident or with its experts in a pool, beside what its plan says. */
import assert from "node:assert/strict";
import { testFolder } from "./models.ts";
import { writeSynthetic } from "./quantize/synthetic.ts";
import { repoDir } from "./shared.ts";

Deno.test({
  name: "a process takes within 2 % what the plan says, and at no time more",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const path = `${testFolder()}/memory.gguf`;
    writeSynthetic(path, {
      arch: "qwen3moe",
      n_embd: 1024,
      n_ff: 512,
      n_layer: 4,
      n_vocab: 8000,
      n_head: 8,
      n_head_kv: 4,
      head_dim: 128,
      n_expert: 64,
      n_expert_used: 4,
      type: "q4_K",
    });
    for (const slots of [[], ["150"]]) {
      const command = new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", "--no-check", `${repoDir}tests/places_memory.ts`, path, ...slots],
      });
      const { success, stdout, stderr } = await command.output();
      assert.ok(success, new TextDecoder().decode(stderr));
      const { plan, taken, peak } = JSON.parse(new TextDecoder().decode(stdout));
      const text = JSON.stringify({ plan, taken, peak });
      assert.equal(plan.pool_bytes > 0, slots.length > 0, text);
      assert.ok(Math.abs(taken - plan.total_bytes) <= 0.02 * plan.total_bytes, text);
      // Rows of the embedding table lie in the system's page cache; the engine's own objects take a little.
      assert.ok(peak <= plan.total_bytes + plan.table_bytes + 16e6, text);
    }
  },
});
