import assert from "node:assert/strict";
import { openNativeBackend } from "../ffi/backend.ts";
import { smallInput } from "./_reshard_input.ts";
import { parseFileType } from "./file_types.ts";
import { refuseFullDisk, refuseInputs } from "./output_files.ts";
import { testCheckpoint, withFolder, writeCheckpoint } from "./prepare/_testing.ts";
import { prepare } from "./prepare/mod.ts";
import { quantize } from "./quantize.ts";
import { ggufQuantizeSource } from "./quantize_source.ts";
import { mergeGguf, spliceGguf, splitGguf } from "./reshard.ts";

Deno.test("refuseFullDisk() tells what is needed and what is free, and lets pass where nobody knows", () => {
  const path = Deno.makeTempDirSync() + "/x.gguf";
  refuseFullDisk(path, 1);
  assert.throws(() => refuseFullDisk(path, 1e18), {
    code: "quantize.disk_full",
    message: /^Cannot write .*x\.gguf: 1000000000000000000 bytes are needed, \d+ are free$/,
  });
  refuseFullDisk("/nonexistent/x.gguf", 1e18);
});

Deno.test("refuseInputs() sees through links and other spellings of a path", () =>
  withFolder((dir) => {
    Deno.writeTextFileSync(dir + "in", "x");
    Deno.symlinkSync(dir + "in", dir + "link");
    refuseInputs([dir + "out", dir + "new"], [dir + "in"]);
    for (const out of ["in", "link", "./in"]) {
      assert.throws(() => refuseInputs([dir + out], [dir + "in"]), { code: "usage.output_exists" });
    }
  }));

Deno.test({
  name: Deno.build.os === "linux"
    ? "a disk that fills up while a file is written is told by name, and nothing is left"
    : "a disk that fills up needs /dev/full, which is not there",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    withFolder(async (dir) => {
      writeCheckpoint(`${dir}model`, testCheckpoint("llama"));
      await prepare(`${dir}model`, `${dir}in.gguf`);
      Deno.writeFileSync(`${dir}small.gguf`, smallInput());
      await splitGguf(`${dir}small.gguf`, `${dir}s`, { splitMaxTensors: 3 });
      using backend = openNativeBackend("cpu", { threads: 1 });
      const runs: Record<string, (out: string) => Promise<unknown>> = {
        prepare: (out) => prepare(`${dir}model`, out),
        async quantize(out) {
          using source = ggufQuantizeSource(`${dir}in.gguf`);
          await quantize(source, out, backend, { fileType: parseFileType("Q4_0") });
        },
        merge: (out) => mergeGguf(`${dir}s-00001-of-00002.gguf`, out),
        splice: (out) => spliceGguf(`${dir}small.gguf`, `${dir}small.gguf`, out, { take: () => true }),
      };
      const files = () => [...Deno.readDirSync(dir)].map((e) => e.name).sort();
      const before = files();
      for (const [name, run] of Object.entries(runs)) {
        Deno.symlinkSync("/dev/full", `${dir}o.gguf.partial`); // takes nothing, as a disk does that is full
        await assert.rejects(run(`${dir}o.gguf`), (e: Error & { code?: string; hint?: string }) => {
          assert.equal(e.code, "format.unwritable", `${name}: ${e}`);
          assert.match(e.message, /^Cannot write .*o\.gguf: No space left on device/);
          assert.equal(e.hint, "is the disk full?");
          return true;
        });
        assert.deepEqual(files(), before, name);
      }
    }),
});
