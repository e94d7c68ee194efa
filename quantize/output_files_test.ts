import assert from "node:assert/strict";
import { openNativeBackend } from "../ffi/backend.ts";
import { smallInput } from "./_reshard_input.ts";
import { parseFileType } from "./file_types.ts";
import { nameAll, refuseFullDisk, refuseOutputs } from "./output_files.ts";
import { sha256, testCheckpoint, withFolder, writeCheckpoint } from "./prepare/_testing.ts";
import { prepare } from "./prepare/mod.ts";
import { quantize } from "./quantize.ts";
import { openGgufSource } from "./quantize_source.ts";
import { mergeGguf, spliceGguf, splitGguf } from "./reshard.ts";
import { needing } from "../tests/shared.ts";

Deno.test("refuseFullDisk() tells what is needed and what is free, and lets pass where nobody knows", () => {
  return withFolder((dir) => {
    const path = dir + "x.gguf";
    refuseFullDisk([path], 1);
    assert.throws(() => refuseFullDisk([path], 1e18), {
      code: "quantize.disk_full",
      message: /^Cannot write .*x\.gguf: 1000000000000000000 bytes are needed, \d+ are free$/,
    });
    refuseFullDisk(["/nonexistent/x.gguf"], 1e18);
    // What lies there of an earlier run need not be had again.
    using partial = Deno.openSync(path + ".partial", { write: true, create: true });
    partial.truncateSync(2 ** 40); // takes no room itself
    refuseFullDisk([path], 2 ** 40);
    assert.throws(() => refuseFullDisk([path], 2 ** 40 + 1e15), { message: / 1000000000000000 bytes are needed/ });
  });
});

Deno.test("refuseOutputs() sees through links and other spellings of a path, and looks at partial names", () =>
  withFolder((dir) => {
    Deno.writeTextFileSync(dir + "in", "x");
    Deno.symlinkSync(dir + "in", dir + "link");
    refuseOutputs([dir + "out", dir + "new"], [dir + "in"]);
    for (const out of ["in", "link", "./in"]) {
      assert.throws(() => refuseOutputs([dir + out], [dir + "in"]), { code: "usage.output_exists" });
    }
    Deno.renameSync(dir + "in", dir + "out.partial");
    Deno.symlinkSync(dir + "out.partial", dir + "new.partial");
    Deno.linkSync(dir + "out.partial", dir + "hard.partial");
    for (const out of ["out", "new", "hard"]) {
      assert.throws(() => refuseOutputs([dir + "other", dir + out], [dir + "out.partial"]), {
        code: "usage.output_exists",
        message: /until it is whole it is called .*\.partial, which is an input$/,
      });
    }
  }));

Deno.test("refuseOutputs() refuses folders, devices, and paths through files", () =>
  withFolder((dir) => {
    Deno.writeTextFileSync(dir + "file", "x");
    for (const out of [dir, dir.slice(0, -1)]) {
      assert.throws(() => refuseOutputs([out], []), { code: "usage.output", message: /: it is a folder$/ });
    }
    for (const out of ["/dev/null", `${dir}device`]) {
      if (out !== "/dev/null") Deno.symlinkSync("/dev/null", out);
      assert.throws(() => refuseOutputs([out], []), { code: "usage.output", message: /: it is a device or a pipe$/ });
    }
    assert.throws(() => refuseOutputs([dir + "file/x.gguf"], []), { code: "format.unwritable", message: /x\.gguf/ });
  }));

Deno.test("nameAll() names all files or none", () =>
  withFolder((dir) => {
    const paths = ["a", "b", "c"].map((name) => dir + name);
    for (const path of paths) Deno.writeTextFileSync(path + ".partial", path);
    Deno.mkdirSync(dir + "a/full", { recursive: true }); // comes last, and cannot be replaced
    const files = () => [...Deno.readDirSync(dir)].filter((e) => e.isFile).map((e) => e.name).sort();
    assert.throws(() => nameAll(paths), { code: "format.unwritable" });
    assert.deepEqual(files(), ["a.partial", "b.partial", "c.partial"]);
    Deno.removeSync(dir + "a", { recursive: true });
    nameAll(paths);
    assert.deepEqual(files(), ["a", "b", "c"]);
    for (const path of paths) assert.equal(Deno.readTextFileSync(path), path);
  }));

Deno.test("quantize, prepare, merge and splice leave an input alone that has the partial name of the output", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, testCheckpoint("llama"));
    await prepare(`${dir}model`, `${dir}o.gguf.partial`);
    Deno.writeFileSync(`${dir}small.gguf.partial`, smallInput());
    await splitGguf(`${dir}small.gguf.partial`, `${dir}s`, { splitMaxTensors: 3 });
    const first = `${dir}s-00001-of-00002.gguf`;
    Deno.symlinkSync(first, `${dir}merged.gguf.partial`);
    Deno.symlinkSync(`${dir}model/model.safetensors`, `${dir}p.gguf.partial`);
    using backend = openNativeBackend("cpu", { threads: 1 });
    const runs: (() => Promise<unknown>)[] = [
      () => prepare(`${dir}model`, `${dir}p.gguf`),
      async () => {
        using source = openGgufSource(`${dir}o.gguf.partial`);
        await quantize(source, `${dir}o.gguf`, backend, { fileType: parseFileType("Q4_0") });
      },
      () => mergeGguf(first, `${dir}merged.gguf`),
      () =>
        spliceGguf(`${dir}small.gguf.partial`, `${dir}small.gguf.partial`, `${dir}small.gguf`, { take: () => true }),
    ];
    const inputs = [`${dir}o.gguf.partial`, `${dir}small.gguf.partial`, first, `${dir}model/model.safetensors`];
    const sums = () => Promise.all(inputs.map(sha256));
    const before = await sums();
    for (const run of runs) await assert.rejects(run(), { code: "usage.output_exists", message: /which is an input$/ });
    assert.deepEqual(await sums(), before);
  }));

/** Runs with a disk that takes so many more bytes of files that are written piece by piece. */
async function onFullDisk(bytes: number, run: () => Promise<unknown>): Promise<void> {
  const { writeSync } = Deno.FsFile.prototype;
  Deno.FsFile.prototype.writeSync = function (p) {
    if ((bytes -= p.length) < 0) throw new Error("No space left on device (os error 28)");
    return writeSync.call(this, p);
  };
  try {
    await run();
  } finally {
    Deno.FsFile.prototype.writeSync = writeSync;
  }
}

Deno.test("quantize and prepare go on with resume after the disk was full", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, testCheckpoint("llama"));
    await prepare(`${dir}model`, `${dir}in.gguf`);
    using backend = openNativeBackend("cpu", { threads: 1 });
    const runs: Record<string, (out: string, resume: boolean) => Promise<{ n_resumed: number }>> = {
      prepare: (out) => prepare(`${dir}model`, out, { resume: true }),
      async quantize(out, resume) {
        using source = openGgufSource(`${dir}in.gguf`);
        return await quantize(source, out, backend, { fileType: parseFileType("Q8_0"), resume });
      },
    };
    for (const [name, run] of Object.entries(runs)) {
      await run(`${dir}once.gguf`, false);
      const half = Deno.statSync(`${dir}once.gguf`).size / 2;
      await assert.rejects(onFullDisk(half, () => run(`${dir}o.gguf`, false)), {
        code: "format.unwritable",
        message: /^Cannot write .*o\.gguf: No space left on device/,
        hint: /with --resume to continue/,
      });
      const left = [...Deno.readDirSync(dir)].map((e) => e.name).filter((n) => n.startsWith("o.gguf"));
      assert.deepEqual(left.sort(), ["o.gguf.partial", "o.gguf.partial.json"], name);
      const { n_resumed } = await run(`${dir}o.gguf`, true);
      assert.ok(n_resumed > 0, name);
      assert.equal(await sha256(`${dir}o.gguf`), await sha256(`${dir}once.gguf`), name);
      assert.deepEqual([...Deno.readDirSync(dir)].map((e) => e.name).filter((n) => n.startsWith("o.gguf")), ["o.gguf"]);
      Deno.removeSync(`${dir}o.gguf`);
    }
  }));

Deno.test({
  ...needing(
    "an error names the disk that fills up while a file is written, and no file is left",
    Deno.build.os === "linux",
    "Linux",
  ),
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
          using source = openGgufSource(`${dir}in.gguf`);
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
          assert.match(e.message, /^Cannot write .*o\.gguf: the disk is full$/);
          assert.match(e.hint!, /make room/);
          return true;
        });
        assert.deepEqual(files(), before, name);
      }
    }),
});
