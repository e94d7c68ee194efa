import assert from "node:assert/strict";
import { repoDir } from "../tests/shared.ts";
import { bloomery } from "./_testing.ts";

const run = (...args: string[]) => bloomery(["prepare", ...args]);

Deno.test("prepare writes a file, prints events and a result with --json, and refuses by name", async () => {
  const dir = Deno.makeTempDirSync({ prefix: "prepare-cli-" }) + "/";
  try {
    const made = await run(`${repoDir}models/bloom-nano`, "-o", `${dir}o.gguf`, "--json", "--outtype", "f16");
    assert.equal(made.code, 0, made.err);
    const lines = made.out.trimEnd().split("\n").map((line) => JSON.parse(line));
    const document = lines.pop();
    assert.equal(made.err, "");
    assert.deepEqual(lines.map((l) => [l.event, l.index]), lines.map((_, i) => ["tensor", i]));
    assert.equal(lines.length, document.n_tensors);
    assert.equal(lines.at(-1).done_bytes, lines.at(-1).total_bytes);
    assert.equal(document.schema, "bloomery.prepare.v1");
    assert.deepEqual(document.types, { f16: 43, f32: 25 });
    assert.equal(Deno.statSync(`${dir}o.gguf`).size, document.bytes);

    const plain = await run(`${repoDir}models/bloom-nano`, "-o", `${dir}o.gguf`, "--follow", "--overwrite");
    assert.equal(plain.code, 0, plain.err);
    assert.equal(plain.out, "");
    assert.match(
      plain.err,
      /^model\.safetensors is there, 1 of 1 files\n\[1\/68\] token_embd\.weight: bf16\n/,
    );
    assert.match(plain.err, /\nwrote .*o\.gguf: qwen3, 68 tensors \(.*\), .* MB in .* s\n$/);

    const existing = await run(`${repoDir}models/bloom-nano`, "-o", `${dir}o.gguf`);
    assert.equal(existing.code, 2);
    assert.match(existing.err, /o\.gguf: it exists already \[usage\.output_exists\]\nhint: .*--overwrite/);

    const none = await run(dir, "-o", `${dir}n.gguf`);
    assert.equal(none.code, 1);
    assert.equal(none.out, "");
    assert.match(none.err, /holds no safetensors file/);
    assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name), ["o.gguf"]);
    assert.equal((await run(dir)).code, 2);
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});
