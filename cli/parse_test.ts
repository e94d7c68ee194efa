import assert from "node:assert/strict";
import { UsageError } from "../core/errors.ts";
import type { Command } from "./command.ts";
import { commands } from "./commands.ts";
import { parseArgs } from "./parse.ts";

const sample: Command = {
  name: "sample",
  summary: "does nothing",
  arguments: [{ name: "in", help: "input" }, { name: "rest", help: "more", optional: true, variadic: true }],
  flags: [
    { name: "ctx-size", alias: ["c", "n-ctx", "ctx"], type: "int", value: "N", min: 1, help: "tokens" },
    { name: "temp", type: "number", value: "T", default: 0.5, help: "temperature" },
    { name: "file", alias: ["f"], type: "strings", value: "F", help: "files" },
    { name: "json", type: "bool", help: "json" },
    { name: "kind", type: "string", choices: ["a", "b"], help: "kind" },
  ],
  run: () => Promise.resolve(0),
};

function parsed(...argv: string[]) {
  const p = parseArgs(["sample", ...argv], [sample], "about");
  assert.equal(p.kind, "run");
  return p as Extract<typeof p, { kind: "run" }>;
}

Deno.test("parseArgs() reads flags by name, alias and short form, and gives defaults", () => {
  const { args, flags } = parsed("x", "--n-ctx", "8", "-f", "a", "--file=b", "--json", "y", "z");
  assert.deepEqual(args, ["x", "y", "z"]);
  assert.equal(flags.num("ctx-size"), 8);
  assert.equal(flags.num("temp"), 0.5);
  assert.deepEqual(flags.strs("file"), ["a", "b"]);
  assert.equal(flags.bool("json"), true);
  assert.equal(parsed("x", "-ctx", "9").flags.num("ctx-size"), 9);
  assert.equal(parsed("x", "--temp", "-0.25").flags.num("temp"), -0.25);
});

Deno.test("parseArgs() refuses what does not fit, naming the flag", () => {
  const refused = (argv: string[], match: RegExp) =>
    assert.throws(() => parseArgs(argv, [sample], "about"), (e) => e instanceof UsageError && match.test(e.message));
  refused(["sample"], /in/);
  refused(["sample", "x", "--ctx-size", "0"], /ctx-size.*0/);
  refused(["sample", "x", "--ctx-size", "1.5"], /ctx-size.*1\.5/);
  refused(["sample", "x", "--ctx-size", "many"], /many/);
  refused(["sample", "x", "--kind", "c"], /kind.*'?c'?/);
  refused(["sample", "x", "--nonesuch"], /nonesuch/);
  refused(["nonesuch"], /nonesuch/);
});

Deno.test("help of every command prints and names its flags", () => {
  const top = parseArgs(["--help"], commands, "about");
  assert.equal(top.kind, "print");
  for (const c of commands) {
    assert.ok((top as { text: string }).text.includes(c.name), c.name);
    const help = parseArgs([c.name, "--help"], commands, "about");
    assert.equal(help.kind, "print");
    for (const f of c.flags) {
      assert.ok((help as { text: string }).text.includes(`--${f.name}`), `${c.name} --${f.name}`);
    }
    const names = c.flags.flatMap((f) => [f.name, ...(f.alias ?? [])]);
    assert.equal(new Set(names).size, names.length, `${c.name}: a flag name is used twice`);
  }
});
