import assert from "node:assert/strict";
import type { Command } from "./command.ts";
import { commands } from "./commands.ts";
import { parseArgs } from "./parse.ts";
import { SLOT_FLAGS, slotCacheOf, slotsOf } from "./slots.ts";

const command: Command = {
  name: "serve",
  summary: "",
  arguments: [],
  flags: Object.values(SLOT_FLAGS),
  run: () => Promise.resolve(0),
};

function slots(line: string) {
  const parsed = parseArgs(["serve", ...line.split(" ").filter((w) => w !== "")], [command], "");
  assert.ok(parsed.kind === "run");
  const { n_slots, n_ctx = 1000, n_cache, contexts } = slotsOf(parsed.flags);
  return [n_slots, n_ctx, Math.max(n_cache ?? n_ctx * contexts, n_ctx)]; // as the engine has it
}

Deno.test("slotsOf() divides --ctx-size among the slots as llama-server does", () => {
  assert.deepEqual(slots(""), [4, 1000, 1000]);
  assert.deepEqual(slots("--no-kv-unified"), [4, 1000, 4000]);
  assert.deepEqual(slots("-c 0 -np 2"), [2, 1000, 2000]);
  assert.deepEqual(slots("-c 8192 -np 4"), [4, 2048, 8192]);
  assert.deepEqual(slots("-c 8192"), [4, 8192, 8192]);
  assert.deepEqual(slots("-c 8192 -np auto"), [4, 8192, 8192]);
  assert.deepEqual(slots("-c 8192 -np 4 -kvu"), [4, 8192, 8192]);
  assert.deepEqual(slots("-c 8192 -no-kvu"), [4, 2048, 8192]);
  assert.deepEqual(slots("-np 3 --kv-unified-per-slot 500"), [3, 500, 1500]);
  assert.deepEqual(slots("-c 4096 --kv-unified-per-slot 500"), [4, 500, 4096]);
  assert.deepEqual(slots("--kv-unified-per-slot 500"), [4, 500, 2000]);
  assert.deepEqual(slots("-np 2 --cache-size 1500"), [2, 1000, 1500]);
  assert.deepEqual(slots("-np 2 --cache-size 10"), [2, 1000, 1000]);
  assert.throws(() => slots("-c 3 -np 4"), { code: "usage.context" });
});

Deno.test("slotCacheOf() reads what becomes of computed prompts, and wants a folder that is there", () => {
  const of = (...argv: string[]) => {
    const parsed = parseArgs(["serve", "-m", "x", ...argv], commands, "");
    return parsed.kind === "run" ? slotCacheOf(parsed.flags) : undefined;
  };
  const standard = { promptCacheBytes: 0, similarity: 0.1, sleepAfterMs: 0, contextShift: false, n_keep: 0 };
  assert.deepEqual(of(), standard);
  assert.deepEqual(of("-cram", "2", "-sps", "0.5", "--context-shift", "--keep", "-1", "--sleep-idle-seconds", "2"), {
    promptCacheBytes: 2 << 20,
    similarity: 0.5,
    sleepAfterMs: 2000,
    contextShift: true,
    n_keep: -1,
  });
  assert.equal(of("-cram", "-1")?.promptCacheBytes, Infinity);
  assert.equal(of("--slot-save-path", "/tmp")?.slotSavePath, "/tmp");
  assert.throws(() => of("--slot-save-path", "/nowhere/at/all"), { code: "usage.file" });
});
