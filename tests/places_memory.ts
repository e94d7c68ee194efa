/**
 * Loads a model, touches all memory that its plan counts, and prints what the process took for it: the plan's total, the anonymous
 * memory before and after, and the peak of the whole process. Run by `places_memory_test.ts`, alone in its process. Linux only.
 *
 *   deno run -A tests/places_memory.ts FILE [SLOTS]
 * @module
 */
import { Engine } from "../core/engine/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import { openBackend } from "../ffi/mod.ts";

function memory(key: string): number {
  return 1024 * Number(new RegExp(`${key}:\\s+(\\d+) kB`).exec(Deno.readTextFileSync("/proc/self/status"))![1]);
}

const [path, slots] = Deno.args;
using opened = openBackend("cpu");
using file = openGguf(path);
const options = { n_ctx: 1024, n_ubatch: 256, n_out: 64, ...(slots === undefined ? {} : { slots: Number(slots) }) };
using engine = Engine.plan(file, opened.backend, options);
const before = memory("RssAnon"), atStart = memory("VmRSS");
await engine.loadWeights();
using sequence = engine.createSequence();
// Every page of the cache, and every program's rows.
const tokens = Int32Array.from({ length: 1023 }, (_, i) => (i * 131) % engine.n_vocab);
await engine.step([{ sequence, tokens, output: "none" }]);
await engine.step([{ sequence, tokens: [1], output: "last" }]);
sequence.truncate(900);
await engine.step([{ sequence, tokens: tokens.subarray(0, 64), output: "all" }]);
const { total_bytes, resident_bytes, table_bytes, pool_bytes, cache_bytes, scratch_bytes } = engine.plan;
console.log(JSON.stringify({
  plan: { total_bytes, resident_bytes, table_bytes, pool_bytes, cache_bytes, scratch_bytes },
  taken: memory("RssAnon") - before,
  peak: memory("VmHWM") - atStart,
}));
