import assert from "node:assert/strict";
import type { Command } from "./command.ts";
import { DRAFT_FLAGS, draftSettings } from "./draft_flags.ts";
import { parseArgs } from "./parse.ts";

const command: Command = { name: "run", summary: "", arguments: [], flags: DRAFT_FLAGS, run: () => Promise.resolve(0) };

function settings(line: string) {
  const parsed = parseArgs(["run", ...line.split(" ").filter((w) => w !== "")], [command], "");
  assert.ok(parsed.kind === "run");
  return draftSettings(parsed.flags);
}

Deno.test("draftSettings() understands our words, llama-server's and its numbers", async () => {
  assert.deepEqual(await settings(""), { kind: "auto", max: 16 });
  assert.deepEqual(await settings("--draft lookup --draft-max 4"), { kind: "lookup", max: 4 });
  assert.deepEqual(await settings("--draft off"), { kind: "off", max: 16 });
  assert.deepEqual(await settings("--draft 8"), { kind: "auto", max: 8 });
  assert.deepEqual(await settings("-md small.gguf"), { kind: "model", max: 16 });
  assert.deepEqual(await settings("-md small.gguf --draft-n 5"), { kind: "model", max: 5 });
  assert.deepEqual(await settings("--spec-type none"), { kind: "off", max: 16 });
  assert.deepEqual(await settings("--spec-type ngram-simple --spec-draft-n-max 3"), { kind: "lookup", max: 3 });
  assert.deepEqual(await settings("--spec-type draft-simple"), { kind: "model", max: 16 });
  for (const bad of ["--draft 0", "--draft 40", "--draft fast", "--spec-type eagle3"]) {
    await assert.rejects(settings(bad), { code: "usage.value" });
  }
});
