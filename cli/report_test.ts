import assert from "node:assert/strict";
import { FormatError, UsageError } from "../core/errors.ts";
import { fakeIo } from "./_testing.ts";
import { ClosedPipe } from "./io.ts";
import { report } from "./report.ts";

async function thrownBy(work: () => unknown): Promise<unknown> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return error;
  }
}

Deno.test("report() gives every kind of failure one message and its exit code", async () => {
  const missing = await thrownBy(() => Deno.readTextFileSync("/nowhere/x"));
  const cases: [unknown, number, string[]][] = [
    [new ClosedPipe(), 0, []],
    [new UsageError("usage.value", "Cannot use it", { hint: "do that" }), 2, [
      "Cannot use it [usage.value]",
      "hint: do that",
    ]],
    [new FormatError("format.limit", "Cannot read it"), 1, ["Cannot read it [format.limit]"]],
    [missing, 1, [
      "Cannot read /nowhere/x: there is no such file or folder [os.not_found]",
      "hint: check the path; a relative one begins at the folder the command runs in",
    ]],
  ];
  for (const [error, code, lines] of cases) {
    const { io, printed } = fakeIo();
    assert.equal(report(error, false, io), code);
    assert.deepEqual(printed.errors, lines);
  }
});

Deno.test("report() shows where a fault of the program is", () => {
  const { io, printed } = fakeIo();
  assert.equal(report(new TypeError("x is not a function"), true, io), 1);
  assert.match(printed.errors[0], /^bloomery has a bug: TypeError: x is not a function\n +at /);
  assert.deepEqual(printed.documents, []);
});

Deno.test("report() prints a document with --json, and falls back to stderr where stdout takes nothing", () => {
  const error = new UsageError("usage.value", "Cannot use it", { at: { got: 1 } });
  const { io, printed } = fakeIo();
  assert.equal(report(error, true, io), 2);
  assert.deepEqual(printed.documents, [{ error: { code: "usage.value", message: "Cannot use it", at: { got: 1 } } }]);
  assert.deepEqual(printed.errors, []);
  const full = fakeIo();
  const json = () => {
    throw new Error("full");
  };
  assert.equal(report(error, true, { ...full.io, json }), 2);
  assert.deepEqual(full.printed.errors, ["Cannot use it [usage.value]"]);
});
