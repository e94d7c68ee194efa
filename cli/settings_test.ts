import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../core/errors.ts";
import type { Command, Flags } from "./command.ts";
import { commands } from "./commands.ts";
import { configValues } from "./config.ts";
import { parseArgs } from "./parse.ts";
import { withoutEffect } from "./settings.ts";

const command = (name: string, flags: Command["flags"]): Command => ({
  name,
  summary: "does nothing",
  arguments: [],
  flags: [...flags, { name: "config", type: "string", help: "config" }],
  run: () => Promise.resolve(0),
});

const one = command("one", [
  {
    name: "ctx-size",
    alias: ["c", "n-ctx"],
    type: "int",
    min: 0,
    default: 1,
    env: "LLAMA_ARG_CTX_SIZE",
    help: "tokens",
  },
  { name: "repack", type: "bool", off: ["nr"], env: "LLAMA_ARG_REPACK", help: "repack" },
  { name: "layers", type: "int", words: { auto: -1 }, env: "LLAMA_ARG_LAYERS", help: "layers" },
  { name: "key", type: "strings", separator: ",", env: "KEYS", help: "keys" },
  { name: "kind", type: "string", choices: ["a", "b"], help: "kind" },
  {
    name: "fa",
    type: "string",
    choices: ["on", "off"],
    bare: "on",
    noEffect: "always on",
    env: "LLAMA_ARG_FA",
    help: "fa",
  },
]);
const two = command("two", [{ name: "port", type: "int", help: "port" }]);

function settled(argv: string[], env: Record<string, string> = {}, config?: unknown): Flags {
  const parsed = parseArgs(
    config === undefined ? ["one", ...argv] : ["one", "--config", "c.json", ...argv],
    [one, two],
    "",
    { env: (name) => env[name], readConfig: () => typeof config === "string" ? config : JSON.stringify(config) },
  );
  assert.equal(parsed.kind, "run");
  return (parsed as Extract<typeof parsed, { kind: "run" }>).flags;
}

const refused = (argv: string[], env: Record<string, string>, config: unknown, code: string, message: RegExp) =>
  assert.throws(() => settled(argv, env, config), (error: BloomeryError) => {
    assert.equal(error.code, code);
    assert.match(error.message, message);
    return true;
  });

Deno.test("a flag goes before its environment variable, that before the config file, that before the default", () => {
  const env = { LLAMA_ARG_CTX_SIZE: "3" }, config = { "ctx-size": 2 };
  const got = (flags: Flags) => [flags.num("ctx-size"), flags.origins.get("ctx-size")];
  assert.deepEqual(got(settled(["-c", "4"], env, config)), [4, "flag"]);
  assert.deepEqual(got(settled([], env, config)), [3, "env"]);
  assert.deepEqual(got(settled([], {}, config)), [2, "config"]);
  assert.deepEqual(got(settled([])), [1, "default"]);
  assert.equal(settled([]).given("ctx-size"), false);
  assert.deepEqual(got(settled([], { LLAMA_ARG_CTX_SIZE: "" })), [1, "default"]);
});

Deno.test("environment variables are read as llama-server reads them", () => {
  for (const text of ["true", "1", "on", "enabled", "ON"]) {
    assert.equal(settled([], { LLAMA_ARG_REPACK: text }).values.get("repack"), true, text);
  }
  for (const text of ["false", "0", "off", "disabled"]) {
    assert.equal(settled([], { LLAMA_ARG_REPACK: text }).values.get("repack"), false, text);
  }
  assert.equal(settled([], { LLAMA_ARG_NO_REPACK: "" }).values.get("repack"), false);
  assert.equal(settled(["--repack"], { LLAMA_ARG_NO_REPACK: "1" }).values.get("repack"), true);
  assert.equal(settled([]).has("repack"), false);
  assert.equal(settled([], { LLAMA_ARG_LAYERS: "AUTO" }).num("layers"), -1);
  assert.deepEqual(settled([], { KEYS: "a, b,,c" }).strs("key"), ["a", "b", "c"]);
  refused(
    [],
    { LLAMA_ARG_CTX_SIZE: "many" },
    undefined,
    "usage.value",
    /LLAMA_ARG_CTX_SIZE many: expected a whole number/,
  );
  refused([], { LLAMA_ARG_REPACK: "maybe" }, undefined, "usage.value", /LLAMA_ARG_REPACK maybe: expected on or off/);
});

Deno.test("a config file holds flags of all commands, and a command's own go first", () => {
  assert.equal(settled([], {}, { port: 1, one: { n_ctx: 5 }, "ctx-size": 2 }).num("ctx-size"), 5);
  const flags = settled([], {}, { repack: false, key: ["a", "b"], kind: "b", layers: "auto" });
  assert.deepEqual(
    [flags.values.get("repack"), flags.strs("key"), flags.str("kind"), flags.num("layers")],
    [false, ["a", "b"], "b", -1],
  );
  const bad: [unknown, RegExp, string?][] = [
    ["{", /c\.json: it is not JSON/],
    ["[]", /it holds no JSON object/],
    [{ "ctx-siez": 1 }, /there is no key "ctx-siez"/],
    [{ one: { port: 1 } }, /there is no key "one\.port"/],
    [{ one: 1 }, /key "one" is no object/],
    [{ "ctx-size": "4" }, /key "ctx-size" is "4", expected a whole number of at least 0/],
    [{ repack: "yes" }, /key "repack" is "yes", expected true or false/],
    [{ "ctx-size": 1, ctx_size: 2 }, /sets --ctx-size a second time/],
    [{ config: "other.json" }, /there is no key "config"/],
  ];
  for (const [config, message] of bad) refused([], {}, config, "usage.config", message);
  refused([], {}, { "ctx-size": 1.5 }, "usage.value", /key "ctx-size" of c\.json: 1\.5: expected a whole number/);
  refused([], {}, { kind: "c" }, "usage.value", /expected one of a, b/);
  assert.throws(() => settled([], {}, { "ctx-siez": 1 }), { hint: 'did you mean "ctx-size"?' });
});

Deno.test("configValues() survives any file", () => {
  const names = [...commands.map((c) => c.name), "ctx-size", "temp", "model", "api-key", "__proto__", "port"];
  const config = fc.oneof(
    fc.string(),
    fc.json(),
    fc.dictionary(fc.constantFrom(...names), fc.jsonValue()).map((o) => JSON.stringify(o)),
  );
  const serve = commands.find((c) => c.name === "serve")!;
  fc.assert(fc.property(config, (text) => {
    try {
      const values = configValues(text, "c.json", serve, commands);
      for (const name of values.keys()) assert.ok(serve.flags.some((f) => f.name === name));
    } catch (error) {
      assert.ok(error instanceof BloomeryError && /^usage\.(config|value)$/.test(error.code), String(error));
    }
  }));
});

Deno.test("a flag without effect gives a warning with its reason and the name that set it", () => {
  assert.deepEqual(withoutEffect(one, settled(["--fa"])), ["--fa has no effect: always on"]);
  assert.deepEqual(withoutEffect(one, settled([], { LLAMA_ARG_FA: "off" })), ["LLAMA_ARG_FA has no effect: always on"]);
  assert.deepEqual(withoutEffect(one, settled([])), []);
});

Deno.test("every command that works on files or models takes a config file", () => {
  for (const { name, flags } of commands) {
    const takes = flags.some((f) => f.name === "config");
    assert.equal(takes, !["completions", "man"].includes(name), name);
  }
  const readConfig = () => JSON.stringify({ prepare: { output: "o.gguf", outtype: "q8_0" }, quantize: { room: "1M" } });
  const parsed = parseArgs(["prepare", "--config", "c.json", "folder"], commands, "", { readConfig });
  assert.ok(parsed.kind === "run" && parsed.flags.str("output") === "o.gguf" && parsed.flags.str("outtype") === "q8_0");
  const quantize = parseArgs(["quantize", "--config", "c.json", "a", "b", "Q8_0"], commands, "", { readConfig });
  assert.ok(quantize.kind === "run" && quantize.flags.str("room") === "1M");

  // Flags of one name and different kinds: the file says for which command.
  const score = commands.find((c) => c.name === "score")!;
  assert.throws(() => configValues('{"bos": true}', "c.json", score, commands), {
    code: "usage.config",
    message: 'Cannot use c.json: key "bos" is one flag for bloomery measure and another for bloomery template',
    hint: 'write {"measure": {"bos": ...}}',
  });
  assert.equal(configValues('{"score": {"bos": true}}', "c.json", score, commands).get("bos"), true);
});
