import assert from "node:assert/strict";
import { fakeIo } from "./_testing.ts";
import { smallInput } from "../quantize/_reshard_input.ts";
import type { Command } from "./command.ts";
import { inspect } from "./inspect.ts";
import { merge } from "./merge.ts";
import { parseArgs } from "./parse.ts";
import { parseSize } from "./size.ts";
import { splice } from "./splice.ts";
import { split } from "./split.ts";

/** Runs a command line and gives back its exit code and what it printed. */
async function run(
  ...argv: string[]
): Promise<{ code: number; out: string; json: any; events: any[]; notes: string[] }> {
  const parsed = parseArgs(argv, [inspect, split, merge, splice] as readonly Command[], "");
  assert.equal(parsed.kind, "run");
  if (parsed.kind !== "run") throw new Error("printed");
  const { io, printed } = fakeIo();
  const code = await parsed.command.run({ args: parsed.args, flags: parsed.flags, io });
  const { out, documents, notes } = printed;
  return { code, out, json: documents.at(-1), events: documents, notes };
}

Deno.test("inspect, split, merge and splice do their work from the command line", async () => {
  const dir = await Deno.makeTempDir() + "/";
  try {
    const small = dir + "small.gguf";
    Deno.writeFileSync(small, smallInput());
    const shown = await run("inspect", small);
    assert.equal(shown.code, 0);
    assert.match(shown.out, /architecture +llama\n[^]*5 tensors/);
    assert.equal((await run("inspect", "--json", small)).json.schema, "bloomery.inspect.v1");
    const checked = await run("inspect", "--check", "--json", small);
    assert.deepEqual([checked.code, checked.json.schema], [checked.json.ok ? 0 : 3, "bloomery.check.v1"]);
    const made = await run("split", "--split-max-tensors", "2", small, dir + "s", "--json");
    assert.deepEqual([made.code, made.json.paths.length, made.json.n_tensors], [0, 3, 5]);
    const merged = await run("merge", made.json.paths[0], dir + "m.gguf");
    assert.deepEqual(
      made.events.slice(0, -1).map((e) => [e.event, e.index]),
      [0, 1, 2, 3, 4].map((i) => ["tensor", i]),
    );
    assert.equal(merged.notes[0], "[1/5] blk.0.ffn_up.weight: f32");
    assert.match(merged.notes[5], /^wrote .*m\.gguf: 5 tensors/);
    assert.equal((await run("inspect", "--diff", small, dir + "m.gguf")).code, 0);
    const spliced = await run(
      "splice",
      "--take",
      "blk.[01]*",
      "--take",
      "*.4.*",
      small,
      small,
      dir + "p.gguf",
      "--json",
    );
    assert.deepEqual(spliced.json.replaced, ["blk.4.ffn_up.weight"]);
    await assert.rejects(run("inspect", small, small), { code: "usage.arguments" });
    await assert.rejects(run("inspect", "--diff", small), { code: "usage.arguments" });
    await assert.rejects(run("split", "--split-max-size", "1X", small, dir + "t"), { code: "usage.size" });
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("parseSize() takes decimal units and nothing else", () => {
  const size = (text: string) => parseSize(text, "x");
  assert.deepEqual(["7", "1K", "2M", "1.5G", "3t", "4GB"].map(size), [7, 1e3, 2e6, 1.5e9, 3e12, 4e9]);
  for (const text of ["", "0", "-1", "1X", "M", "1e3", "1 G", "99999999T"]) {
    assert.throws(() => size(text), { code: "usage.size" });
  }
});
