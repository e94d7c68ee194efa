import assert from "node:assert/strict";
import { commands } from "./commands.ts";
import { bashCompletion, fishCompletion, zshCompletion } from "./completions.ts";
import { manPage } from "./man.ts";

/** Whether a program is there; tests that need it say so when it is not. */
function has(program: string): boolean {
  try {
    return new Deno.Command(program, { args: ["--version"], stdout: "null", stderr: "null" }).outputSync().success;
  } catch {
    return false;
  }
}

const bash = has("bash"), zsh = has("zsh"), fish = has("fish"), groff = has("groff");

/** What bash offers for the last of the words. */
function offered(...words: string[]): string[] {
  const quoted = words.map((w) => `'${w}'`).join(" ");
  const script = `${bashCompletion(commands)}
COMP_WORDS=(bloomery ${quoted}); COMP_CWORD=${words.length}; _bloomery
printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { code, stdout, stderr } = new Deno.Command("bash", { args: ["--norc", "-c", script], cwd: "/" }).outputSync();
  assert.equal(code, 0, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout).split("\n").filter((line) => line !== "");
}

Deno.test({
  name: bash ? "bash completes commands, flags, values and files" : "completion is not tried: there is no bash",
  ignore: !bash,
  fn() {
    const checked = new Deno.Command("bash", { args: ["-n", "-c", bashCompletion(commands)] }).outputSync();
    assert.ok(checked.success, new TextDecoder().decode(checked.stderr));
    assert.deepEqual(offered("ser"), ["serve"]);
    assert.match(bashCompletion(commands), /\ncomplete -F _bloomery bloomery\n$/, "commands are not taken for paths");
    assert.deepEqual(offered("help", "te"), ["template"]);
    assert.deepEqual(offered("serve", "--cache-type-k", ""), ["f32", "f16", "q8_0"]);
    assert.deepEqual(offered("serve", "-ctk", "q"), ["q8_0"]);
    assert.deepEqual(offered("serve", "--no-sl"), ["--no-slots"]);
    assert.deepEqual(offered("serve", "--flash"), [], "what has no effect is not offered");
    assert.deepEqual(offered("run", "-m", "/et"), ["/etc"]);
    assert.deepEqual(offered("prepare", "--chat-template", "/et"), ["/etc"]);
    assert.deepEqual(offered("run", "--cache-dir", "/et"), ["/etc"]);
    assert.deepEqual(offered("run", "--temp", ""), []);
    assert.deepEqual(offered("completions", "f"), ["fish"]);
    assert.deepEqual(offered("inspect", "--check", "/et"), ["/etc"]);
    for (const command of commands) {
      const flags = offered(command.name, "--");
      for (const flag of command.flags) {
        assert.equal(flags.includes(`--${flag.name}`), flag.noEffect === undefined, `${command.name} --${flag.name}`);
      }
    }
  },
});

Deno.test("zsh gets bash's completion through its adapter", () => {
  const script = zshCompletion(commands);
  assert.match(script, /^#compdef bloomery\n/);
  assert.ok(script.includes("bashcompinit\n") && script.endsWith("\ncomplete -o default -F _bloomery bloomery\n"));
  assert.equal(script.match(/^_bloomery(_paths)?\(\)/gm)?.length, 2);
  if (!zsh) return;
  const { success, stderr } = new Deno.Command("zsh", { args: ["-f", "-n", "-c", script] }).outputSync();
  assert.ok(success, new TextDecoder().decode(stderr));
});

Deno.test("fish gets a line for every command and every flag that has an effect", () => {
  const script = fishCompletion(commands);
  for (const command of commands) {
    assert.ok(script.includes(`-a ${command.name} -d '`), command.name);
    for (const flag of command.flags) {
      const line = script.split("\n").find((l) =>
        l.includes(`__fish_seen_subcommand_from ${command.name}'`) && l.includes(` -l ${flag.name} `)
      );
      assert.equal(line !== undefined, flag.noEffect === undefined, `${command.name} --${flag.name}`);
    }
  }
  if (!fish) return;
  const { success, stderr } = new Deno.Command("fish", { args: ["--no-execute", "-c", script] }).outputSync();
  assert.ok(success, new TextDecoder().decode(stderr));
});

Deno.test("the manual page has every command, flag and reason, and nothing that troff would take for its own", () => {
  const page = manPage(commands, "1.2.3");
  const text = page.replaceAll("\\-", "-").replaceAll("\\e", "\\");
  for (const command of commands) {
    assert.ok(text.includes(`.SS bloomery ${command.name} `), command.name);
    for (const flag of command.flags) {
      assert.ok(text.includes(`--${flag.name}\\fR`), `${command.name} --${flag.name}`);
      if (flag.noEffect) assert.ok(text.includes(flag.noEffect), flag.noEffect);
    }
  }
  const requests = page.split("\n").filter((line) => /^[.']/.test(line)).map((line) => line.slice(1).split(" ")[0]);
  assert.deepEqual([...new Set(requests)].toSorted(), ["PP", "SH", "SS", "TH", "TP", "fi", "nf"]);
  if (!groff) return;
  const path = Deno.makeTempFileSync();
  Deno.writeTextFileSync(path, page);
  const { stderr } = new Deno.Command("groff", { args: ["-man", "-ww", "-z", path] }).outputSync();
  Deno.removeSync(path);
  assert.equal(new TextDecoder().decode(stderr), "");
});
