import assert from "node:assert/strict";
import { repoDir } from "../../tests/shared.ts";
import { testCheckpoint, tokenizerFiles, withFolder } from "./_testing.ts";

const COLUMNS = 2048;
const ROWS = 96 * 1024;

/** A checkpoint whose embeddings are 400 MB of zeros that take no room on the disk. */
function sparseCheckpoint(dir: string): number {
  const { config, tensors } = testCheckpoint("qwen2");
  const header: Record<string, unknown> = {};
  let offset = 0;
  const widened = (shape: readonly number[]) => shape.map((n) => n === 64 ? COLUMNS : n);
  for (const [name, t] of Object.entries(tensors)) {
    let shape = widened(t.shape);
    if (name === "model.embed_tokens.weight") shape = [ROWS, COLUMNS];
    else if (/[kv]_proj/.test(name)) shape = [COLUMNS / 2, ...shape.slice(1)].map((n) => n === 32 ? COLUMNS / 2 : n);
    const bytes = 2 * shape.reduce((a, b) => a * b, 1);
    header[name] = { dtype: "BF16", shape, data_offsets: [offset, offset += bytes] };
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const start = new Uint8Array(8 + json.length);
  new DataView(start.buffer).setBigUint64(0, BigInt(json.length), true);
  start.set(json, 8);
  Deno.mkdirSync(dir);
  Deno.writeFileSync(`${dir}/model.safetensors`, start);
  Deno.truncateSync(`${dir}/model.safetensors`, start.length + offset);
  const wide = { ...config, hidden_size: COLUMNS, vocab_size: ROWS };
  for (const [name, content] of Object.entries({ ...tokenizerFiles(), "config.json": wide })) {
    Deno.writeTextFileSync(`${dir}/${name}`, JSON.stringify(content));
  }
  return offset;
}

Deno.test({
  name: Deno.build.os === "linux"
    ? "prepare() holds a few chunks in memory, whatever the size of a tensor"
    : "prepare()'s peak memory is read from /proc, which is not there",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    withFolder(async (dir) => {
      const bytes = sparseCheckpoint(`${dir}model`);
      assert.ok(bytes > 400e6);
      const script = `
        import { openPrepared } from "${repoDir}quantize/prepare/mod.ts";
        using source = openPrepared("${dir}model", { outtype: "f32" });
        let n = 0;
        for (const t of source.tensors) {
          for (let row = 0; row < t.n_rows; row += 512) {
            const chunk = await source.read(t, row, Math.min(512, t.n_rows - row));
            n += chunk.length;
            chunk.buffer.transfer(0); // as prepare() does
          }
        }
        console.log(n, /VmHWM:\\s+(\\d+) kB/.exec(Deno.readTextFileSync("/proc/self/status"))[1]);`;
      Deno.writeTextFileSync(`${dir}peak.ts`, script);
      const run = await new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", "--config", `${repoDir}deno.json`, `${dir}peak.ts`],
      }).output();
      const [read, peak] = new TextDecoder().decode(run.stdout).trim().split(" ").map(Number);
      assert.equal(read, 2 * bytes, new TextDecoder().decode(run.stderr));
      assert.ok(peak * 1024 < 250e6, `peak of ${peak} kB`);
    }),
});
