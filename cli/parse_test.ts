import assert from "node:assert/strict";
import { UsageError } from "../core/errors.ts";
import type { Command } from "./command.ts";
import { commands } from "./commands.ts";
import { flagForms } from "./flag_text.ts";
import { flagValue } from "./flag_value.ts";
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

const flagged: Command = {
  ...sample,
  arguments: [{ name: "text", help: "text", optional: true }],
  flags: [
    ...sample.flags,
    {
      name: "flash-attn",
      alias: ["fa"],
      type: "string",
      choices: ["on", "off", "auto"],
      bare: "on",
      help: "attention",
    },
    { name: "mmap", type: "bool", off: ["nomm"], help: "map" },
    { name: "no-bos", type: "bool", help: "no bos" },
    { name: "layers", alias: ["ngl"], type: "int", words: { all: -2 }, help: "layers" },
  ],
};

function run(...argv: string[]) {
  const p = parseArgs(["sample", ...argv], [flagged], "about");
  assert.equal(p.kind, "run");
  return p as Extract<typeof p, { kind: "run" }>;
}

Deno.test("parseArgs() takes the spellings of llama.cpp's tools", () => {
  const value = (name: string, ...argv: string[]) => run(...argv).flags.values.get(name);
  for (const spelling of [["-fa"], ["--flash-attn"], ["-fa", "on"], ["-fa=on"], ["--flash_attn", "on"]]) {
    assert.equal(value("flash-attn", ...spelling), "on", spelling.join(" "));
  }
  assert.equal(value("flash-attn", "-fa", "off"), "off");
  const bare = run("-fa", "a question");
  assert.deepEqual([bare.args, bare.flags.str("flash-attn")], [["a question"], "on"]);
  assert.equal(value("mmap", "--no-mmap"), false);
  assert.equal(value("mmap", "-nomm"), false);
  assert.equal(value("mmap", "--no-mmap", "--mmap"), true);
  assert.equal(value("mmap"), undefined);
  assert.equal(value("no-bos", "--no-bos"), true);
  assert.equal(value("no-bos"), undefined);
  assert.equal(value("layers", "-ngl", "all"), -2);
  assert.equal(value("ctx-size", "-c4096"), 4096);
  assert.equal(value("temp", "--temp=1", "--temp", "2"), 2);
  assert.deepEqual(run("--", "--temp").args, ["--temp"]);
});

Deno.test("parseArgs() suggests what was meant, and says why a flag of llama.cpp is not there", () => {
  const refused = (argv: string[], code: string, message: RegExp, hint?: RegExp) =>
    assert.throws(() => parseArgs(argv, [flagged], "about"), (e: UsageError) => {
      assert.equal(e.code, code);
      assert.match(e.message, message);
      if (hint) assert.match(e.hint ?? "", hint);
      return true;
    });
  refused(["sample", "--ctx-szie", "1"], "usage.unknown_flag", /has no flag --ctx-szie/, /did you mean --ctx-size\?/);
  refused(["sample", "-tb", "1"], "usage.unknown_flag", /has no flag -tb/);
  refused(["sample", "- a list"], "usage.unknown_flag", /no flag - a list/, /put -- before/);
  refused(["sample", "--mmproj", "x"], "usage.not_supported", /images and audio are not supported/);
  refused(["sample", "--temp"], "usage.value", /its value is missing/);
  refused(["sample", "--json=1"], "usage.value", /--json takes no value/);
  refused(["sample", "a", "b"], "usage.arguments", /takes one argument, found 2: a, b/);
  refused(["smaple"], "usage.unknown_command", /no command smaple/, /did you mean bloomery sample\?/);
  refused(["help", "smaple"], "usage.unknown_command", /no command smaple/, /bloomery sample/);
});

Deno.test("the table of flags is of one piece", () => {
  const byName = new Map<string, { command: string; flag: Command["flags"][number] }>();
  for (const { name: command, flags } of commands) {
    const forms = flags.flatMap((flag) => flagForms(flag).map((form) => form.text));
    assert.equal(new Set(forms).size, forms.length, `${command}: a spelling is used twice`);
    for (const flag of flags) {
      assert.match(flag.name, /^[a-z][a-z0-9-]+$/);
      const other = byName.get(flag.name);
      if (other?.flag.type === flag.type && other.flag.value === flag.value) {
        assert.equal(flag.env, other.flag.env, `--${flag.name} of ${command} and ${other.command}`);
      }
      if (flags.some((f) => f.name === "config")) byName.set(flag.name, { command, flag });
      if (flag.default !== undefined && flag.type !== "bool") flagValue(flag, [String(flag.default)], flag.name);
      if (flag.bare !== undefined) assert.ok(flag.choices?.includes(flag.bare), flag.name);
      if (flag.off) assert.equal(flag.type, "bool", flag.name);
    }
  }
});

Deno.test("command lines of llama-server and llama-cli are taken", () => {
  const lines = [
    "serve -m m.gguf -c 8192 -np 4 -ngl 99 -fa -b 2048 -ub 512 -ctk q8_0 -ctv q8_0 --temp 0.7 --top-k 20 --top-p 0.9 " +
    "--min-p 0 --seed 1 --n-predict 100 --jinja --metrics --no-slots --no-mmap -v -a name -t 2 -tb 2 --host 0.0.0.0 " +
    "--port 1 --api-key k --no-webui -cb --mlock --repeat-penalty 1.1 -kvu --cache-reuse 256 --threads-http 2",
    "serve -hf owner/repo:Q8_0 --no-jinja --reasoning-format none --reasoning-budget 0 -lv 3 --numa distribute -sm none -mg 0",
    "run -m m.gguf -p hello -n 32 -s 1 --temp 0 -no-cnv --no-display-prompt -sys text -st",
    "bench -m m.gguf -p 512 -n 128 -ngl 99 -fa 1 -t 2".replace("-fa 1", "-fa on"),
  ];
  for (const line of lines) {
    const parsed = parseArgs(line.split(" "), commands, "about");
    assert.equal(parsed.kind, "run", line);
  }
});

/** llama-server's command lines as people have them in scripts and service files. */
const LLAMA_SERVER_LINES = [
  "-m x.gguf --host 0.0.0.0 --port 8080 -c 8192 -b 2048 -ub 512 -np 4 -cb -fa on --temp 0.7 --seed 42 --n-predict 256",
  "-m x.gguf --no-slots --jinja --verbose --metrics --props --no-webui -ngl 99 --mlock --no-mmap -t 8 -tb 8",
  "-m x.gguf --no-jinja --chat-template chatml -fit off -fitt 512 -lm mmap -lzm off --no-warmup --swa-full",
  "-hf org/model:Q4_K_M -kvu -ctk q8_0 -ctv q8_0 -ncmoe 12 --moe-cache-mib 512 -ncffn 3 -ot exps=CPU -sm layer -ts 1,1",
  "-m x.gguf --reasoning-format deepseek --reasoning-budget 0 --reasoning-budget-message stop -rea off --no-prefill-assistant",
  "-m x.gguf -s 1 -n 5 -l 15043+1 --grammar x --samplers top_k;temperature --sampling-seq kt --adaptive-target 0.5 -bs",
  "-m x.gguf --dry-multiplier 0.8 --xtc-probability 0.5 --mirostat 2 --mirostat-ent 4 --dynatemp-range 0.5 --ignore-eos",
  "-m x.gguf -md d.gguf --spec-type draft-simple --spec-draft-n-max 8 -ngld 99 -devd none -ctkd f16 -lcs a -lcd b",
  "-m x.gguf -to 600 --sse-ping-interval 10 --threads-http 4 --cors-origins localhost --cors-methods GET --api-prefix /x",
  "-m x.gguf --no-cache-prompt -cram 512 --cache-reuse 256 -sps 0.2 -ctxcp 8 -cms 64 --no-cache-idle-slots --keep 5",
  "-m x.gguf --no-agent --no-ui-mcp-proxy --no-mmproj -e -r END --log-prefix -lv 3 --log-jsonl --tags a,b -a one,two",
  "-m x.gguf --skip-chat-parsing -j {} --no-repack --no-kv-offload --rpc h:1 --numa distribute --cpu-strict-batch 1",
  "-m x.gguf --lora a.gguf,b.gguf --lora-scaled c.gguf:0.5 --lora-init-without-apply --override-kv a.b=int:1,c=bool:true",
  "--models-dir d --models-max 2 --no-models-autoload --models-preset p.ini -c 8192 --metrics",
  "-m x.gguf --control-vector v.gguf --control-vector-scaled w.gguf:-0.5 --control-vector-layer-range 8 24 --port 1",
];

Deno.test("serve takes llama-server's command lines, and refuses by name what it cannot do", () => {
  for (const line of LLAMA_SERVER_LINES) {
    const { kind } = parseArgs(["serve", ...line.split(" ")], commands, "about");
    assert.equal(kind, "run", line);
  }
  const refused = [
    "--tools all",
    "--mcp-servers-config x.json",
    "--mcp-servers-json {}",
    "--agent",
    "--ui-mcp-proxy",
    "--mmproj x",
    "--spec-ngram-size-n 3",
    "-dr x",
    "-sp",
    "--fim-qwen-7b-default",
  ];
  for (const line of refused) {
    assert.throws(
      () => parseArgs(["serve", "-m", "x.gguf", ...line.split(" ")], commands, "about"),
      (e) => e instanceof UsageError && e.code === "usage.not_supported" && e.message.includes(line.split(" ")[0]),
      line,
    );
  }
  assert.throws(
    () =>
      parseArgs(["serve", "-m", "x"], commands, "", { env: (name) => name === "LLAMA_ARG_AGENT" ? "1" : undefined }),
    { code: "usage.not_supported" },
  );
});
