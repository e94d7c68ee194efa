/**
 * Several types of one model at the same time: the bytes of separate runs, and the source read once.
 */
import assert from "node:assert/strict";
import { rowBytes } from "../../core/gguf/types.ts";
import { openBackend } from "../../ffi/mod.ts";
import { parseFileType } from "../../quantize/file_types.ts";
import { quantize } from "../../quantize/quantize.ts";
import { quantizeMany } from "../../quantize/quantize_many.ts";
import { openGgufSource, type QuantizeSource } from "../../quantize/quantize_source.ts";
import { bloomNano, testFolder } from "../models.ts";

const dir = `${testFolder()}/many`;
Deno.mkdirSync(dir);
const TYPES = ["Q8_0", "Q4_K_M", "Q4_0", "BF16"];
const options = (type: string) => ({ fileType: parseFileType(type) });

/** A source that counts the bytes which are read of it, and how many of them are in memory beside one another. */
function counted(source: QuantizeSource): { source: QuantizeSource; bytes: () => number } {
  let bytes = 0;
  return {
    source: {
      ...source,
      read(tensor, row, rows) {
        bytes += rows * rowBytes(tensor.type, tensor.ne[0]);
        return source.read(tensor, row, rows);
      },
      [Symbol.dispose]() {},
    },
    bytes: () => bytes,
  };
}

Deno.test("quantizeMany() writes what separate runs write, and reads every byte of the source once", async () => {
  const model = await bloomNano("bf16");
  using opened = openBackend("cpu");
  using source = openGgufSource(model);
  for (const type of TYPES) await quantize(source, `${dir}/one-${type}.gguf`, opened.backend, options(type));
  const total = source.tensors.reduce(
    (n, t) => n + rowBytes(t.type, t.ne[0]) * (t.ne.slice(1).reduce((a, b) => a * b, 1)),
    0,
  );
  // The smallest room leaves less than a tensor for a piece, so that the runs have to wait for one another.
  for (const room of [64 * 2 ** 20, 2 ** 20]) {
    const { source: read, bytes } = counted(source);
    const targets = TYPES.map((type) => ({ output: `${dir}/many-${type}.gguf`, options: options(type) }));
    const results = await quantizeMany(read, targets, opened.backend, room);
    assert.deepEqual(results.map((r) => r.paths), targets.map((t) => [t.output]));
    assert.equal(bytes(), total, `bytes read with a room of ${room}`);
    for (const type of TYPES) {
      const same = Deno.readFileSync(`${dir}/many-${type}.gguf`);
      assert.deepEqual(same, Deno.readFileSync(`${dir}/one-${type}.gguf`), `${type}, room ${room}`);
      Deno.removeSync(`${dir}/many-${type}.gguf`);
    }
  }
});

Deno.test("quantizeMany() stops all when one fails, and goes on to the same bytes", async () => {
  const model = await bloomNano("bf16");
  using opened = openBackend("cpu");
  using source = openGgufSource(model);
  const stop = new AbortController();
  const target = (type: string, more: object = {}) => ({
    output: `${dir}/stopped-${type}.gguf`,
    options: { ...options(type), signal: stop.signal, resume: true, ...more },
  });
  const run = (more: object = {}) =>
    quantizeMany(source, [target("Q8_0", more), target("Q4_0")], opened.backend, 2 ** 20);
  await assert.rejects(
    run({ onProgress: (p: { index: number }) => p.index === 20 && stop.abort(new Error("enough")) }),
    {
      message: "enough",
    },
  );
  assert.deepEqual([...Deno.readDirSync(dir)].filter((e) => /^stopped-.*gguf$/.test(e.name)), []);
  const results = await quantizeMany(
    source,
    ["Q8_0", "Q4_0"].map((type) => ({
      output: `${dir}/stopped-${type}.gguf`,
      options: { ...options(type), resume: true },
    })),
    opened.backend,
    2 ** 20,
  );
  assert.ok(results[0].n_resumed > 0, "what was written is kept");
  for (const type of ["Q8_0", "Q4_0"]) {
    assert.deepEqual(Deno.readFileSync(`${dir}/stopped-${type}.gguf`), Deno.readFileSync(`${dir}/one-${type}.gguf`));
  }
});
