import assert from "node:assert/strict";
import { repoDir } from "../tests/shared.ts";

async function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--config", `${repoDir}deno.json`, `${repoDir}cli/main.ts`, "prepare", ...args],
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, out: text(stdout), err: text(stderr) };
}

Deno.test("prepare writes a file, prints one document with --json, and refuses by name", async () => {
  const dir = Deno.makeTempDirSync({ prefix: "prepare-cli-" }) + "/";
  try {
    const made = await run(`${repoDir}models/bloom-nano`, "-o", `${dir}o.gguf`, "--json", "--outtype", "f16");
    assert.equal(made.code, 0, made.err);
    const document = JSON.parse(made.out);
    assert.equal(document.schema, "bloomery.prepare.v1");
    assert.deepEqual(document.types, { f16: 43, f32: 25 });
    assert.equal(Deno.statSync(`${dir}o.gguf`).size, document.bytes);

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
