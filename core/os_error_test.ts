import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { fileSource } from "./bytes.ts";
import { problemList, shortList } from "./errors.ts";
import { osError, osReason } from "./os_error.ts";

/** What the system throws for some work. */
async function thrownBy(work: () => unknown): Promise<unknown> {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

Deno.test("osError() says what could not be done, where, why, and what to do", async () => {
  const dir = Deno.makeTempDirSync();
  try {
    const cases: [() => unknown, string, RegExp][] = [
      [
        () => Deno.readTextFileSync(`${dir}/none`),
        "os.not_found",
        /^Cannot read .*\/none: there is no such file or folder$/,
      ],
      [() => Deno.readTextFile(`${dir}/none`), "os.not_found", /^Cannot read /],
      [() => readFileSync(`${dir}/none`), "os.not_found", /^Cannot open .*\/none: /],
      [() => Deno.readTextFileSync(dir), "os.is_folder", /it is a folder$/],
      [() => Deno.openSync(`${dir}/x/y`, { write: true, create: true }), "os.not_found", /^Cannot open /],
      [() => Deno.readTextFileSync(`${dir}/${"x".repeat(300)}`), "os.bad_path", /the name is too long$/],
      [() => Deno.readTextFileSync(`${dir}/\0x`), "os.bad_path", /^Cannot read .*\/\u{fffd}x: /u],
      [() => Deno.mkdirSync(dir), "os.exists", /^Cannot make the folder /],
      [() => Deno.renameSync(`${dir}/a`, `${dir}/b`), "os.not_found", /^Cannot rename .*\/b: /],
      [() => Deno.serve({ hostname: "no.such.host.invalid", port: 0 }, () => new Response()), "os.host", /no host/],
    ];
    for (const [work, code, message] of cases) {
      const error = osError(await thrownBy(work));
      assert.equal(error?.code, code);
      assert.match(error!.message, message);
      assert.ok(error!.hint, code);
    }
    Deno.writeTextFileSync(`${dir}/file`, "");
    assert.equal(osError(await thrownBy(() => Deno.readTextFileSync(`${dir}/file/x`)))?.code, "os.not_folder");
    Deno.symlinkSync(`${dir}/loop`, `${dir}/loop`);
    assert.equal(osError(await thrownBy(() => Deno.readTextFileSync(`${dir}/loop`)))?.code, "os.bad_path");
    using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { port } = taken.addr as Deno.NetAddr;
    const inUse = await thrownBy(() => Deno.listen({ hostname: "127.0.0.1", port }));
    assert.equal(osError(inUse)?.code, "os.address_in_use");
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});

Deno.test({
  name: Deno.build.os === "linux" ? "osError() knows a full disk" : "a full disk needs /dev/full, which is not there",
  ignore: Deno.build.os !== "linux",
  async fn() {
    assert.equal(osError(await thrownBy(() => Deno.writeTextFileSync("/dev/full", "x")))?.code, "os.disk_full");
    using file = Deno.openSync("/dev/full", { write: true });
    const error = osError(await thrownBy(() => file.writeSync(new Uint8Array(1))), "write to standard output");
    assert.equal(error?.message, "Cannot write to standard output: the disk is full");
  },
});

Deno.test("osError() leaves faults of the program alone", () => {
  for (
    const error of [
      new TypeError("x is undefined"),
      new Error("no"),
      "text",
      undefined,
      new DOMException("", "AbortError"),
    ]
  ) {
    assert.equal(osError(error), undefined);
  }
  assert.equal(osReason(new Error("no")), "no");
});

Deno.test("fileSource() refuses what is no file, and never waits for a pipe's writer", async () => {
  const dir = Deno.makeTempDirSync();
  try {
    assert.throws(() => fileSource(dir), { code: "format.unreadable", message: /it is a folder, expected a file/ });
    assert.throws(() => fileSource(`${dir}/none`), { message: /there is no such file$/ });
    if (Deno.build.os === "windows") return;
    assert.throws(() => fileSource("/dev/null"), { message: /it is a device, expected a file/ });
    const made = await new Deno.Command("mkfifo", { args: [`${dir}/pipe`] }).output();
    assert.ok(made.success);
    assert.throws(() => fileSource(`${dir}/pipe`), { message: /it is a pipe, expected a file/ });
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});

Deno.test("shortList() and problemList() cut what is long", () => {
  assert.equal(shortList(["a", "b", "c"]), "a, b, c");
  assert.equal(shortList(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
  assert.equal(problemList(["a"]), "a");
  assert.equal(problemList(["a", "b"]), "2 problems:\n  a\n  b");
  const many = Array.from({ length: 9 }, (_, i) => `p${i}`);
  assert.equal(problemList(many), "9 problems:\n  p0\n  p1\n  p2\n  and 6 more");
});
