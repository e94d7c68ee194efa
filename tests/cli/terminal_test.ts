/** Commands on a terminal: `script` gives them one. Signals are tried here too, because a bar needs a terminal. */
import assert from "node:assert/strict";
import { bloomNano, testFolder } from "../models.ts";
import { writeSynthetic } from "../quantize/synthetic.ts";
import { repoDir } from "../shared.ts";

/** A terminal for a command line; `-e` hands on the exit code. */
const hasScript = (() => {
  if (Deno.build.os !== "linux") return false;
  try {
    return new Deno.Command("script", { args: ["-qefc", "true", "/dev/null"], stdin: "null", stdout: "null" })
      .outputSync()
      .success;
  } catch {
    return false;
  }
})();

class OnTerminal {
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  #text = "";
  #at = 0;
  #over = false;
  #news = Promise.withResolvers<void>();

  constructor(...args: string[]) {
    // `exec`, or a shell stays between that takes Ctrl-C for itself and answers with 130.
    const words = [Deno.execPath(), "run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args];
    const line = `exec ${words.map((word) => `'${word}'`).join(" ")}`;
    const child = this.#child = new Deno.Command("script", {
      args: ["-qefc", line, "/dev/null"],
      env: { TERM: "xterm", COLUMNS: "200", SHELL: "/bin/sh" },
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    this.#writer = this.#child.stdin.getWriter();
    (async () => {
      for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
        this.#text += part;
        this.#tell();
      }
      this.#over = true;
      this.#tell();
    })();
  }

  #tell(): void {
    this.#news.resolve();
    this.#news = Promise.withResolvers<void>();
  }

  /** Waits for a text behind the one waited for last. */
  async see(text: string): Promise<void> {
    for (;;) {
      const found = this.#text.indexOf(text, this.#at);
      if (found >= 0) return void (this.#at = found + text.length);
      if (this.#over) throw new Error(`ended without ${JSON.stringify(text)}: ${JSON.stringify(this.#text)}`);
      await this.#news.promise;
    }
  }

  async type(keys: string): Promise<void> {
    await this.#writer.write(new TextEncoder().encode(keys));
  }

  /** Waits for the end. */
  async end(): Promise<{ code: number; text: string }> {
    const { code } = await this.#child.status;
    while (!this.#over) await this.#news.promise;
    await this.#writer.close().catch(() => {});
    return { code, text: this.#text };
  }
}

const CTRL_C = "\x03", CTRL_D = "\x04", UP = "\x1b[A";

Deno.test({
  name: hasScript
    ? "a chat on a terminal: history, an answer that Ctrl-C ends, and Ctrl-D"
    : "a chat on a terminal needs the program script, which is not there",
  ignore: !hasScript,
  async fn() {
    const model = await bloomNano("bf16");
    const terminal = new OnTerminal(
      "run",
      "-m",
      model,
      "--device",
      "reference",
      "--temp",
      "0",
      "--ignore-eos",
      "-c",
      "512",
    );
    await terminal.see("/help lists the commands");
    await terminal.see("> ");
    await terminal.type("/system be brief\r");
    await terminal.see("the system message is set");
    await terminal.see("> ");
    await terminal.type(`${UP}er\r`); // the line before, and more behind it
    await terminal.see("the system message is set");
    await terminal.see("> ");
    await terminal.type("What is 27 + 58?\r");
    await terminal.see("<think>");
    await terminal.type(CTRL_C);
    await terminal.see("the answer was stopped");
    await terminal.see("> ");
    await terminal.type("/system\r");
    await terminal.see("be briefer");
    await terminal.see("> ");
    await terminal.type(`half a line${CTRL_C}`);
    await terminal.type(CTRL_C); // on the empty line
    await terminal.see("/exit or Ctrl-D ends the chat");
    await terminal.see("> ");
    await terminal.type(CTRL_D);
    const { code, text } = await terminal.end();
    assert.equal(code, 0, text);
  },
});

Deno.test({
  name: hasScript
    ? "eval with a bar on a terminal ends at Ctrl-C, and says what is saved"
    : "Ctrl-C at a bar needs the program script, which is not there",
  ignore: !hasScript,
  async fn() {
    const text = `${testFolder()}/long.txt`;
    Deno.writeTextFileSync(text, Deno.readTextFileSync(`${repoDir}ARCHITECTURE.md`).repeat(3));
    const model = await bloomNano("bf16");
    const terminal = new OnTerminal(
      "eval",
      "-m",
      model,
      "--against",
      model,
      "-f",
      text,
      "--device",
      "reference",
      "--window",
      "8",
    );
    await terminal.see("ETA");
    await terminal.type(CTRL_C);
    const { code, text: printed } = await terminal.end();
    assert.equal(code, 130, printed);
    assert.match(printed, /stopped; nothing was saved/);
  },
});

/** Runs a command until its stderr has a text, then sends it a signal. */
async function interrupted(
  args: string[],
  marker: RegExp,
  signal: Deno.Signal,
): Promise<{ code: number; stderr: string }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args],
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  let stderr = "";
  let sent = false;
  for await (const part of child.stderr.pipeThrough(new TextDecoderStream())) {
    stderr += part;
    if (sent || !marker.test(stderr)) continue;
    sent = true;
    child.kill(signal);
  }
  return { code: (await child.status).code, stderr };
}

Deno.test("score says how to go on when it is interrupted", async () => {
  const model = await bloomNano("bf16");
  const text = `${testFolder()}/score.txt`, output = `${testFolder()}/s.jsonl`;
  Deno.writeTextFileSync(text, Deno.readTextFileSync(`${repoDir}ARCHITECTURE.md`).repeat(10));
  const args = ["score", "-m", model, "-f", text, "-o", output, "--device", "reference", "--window", "8"];
  const { code, stderr } = await interrupted(args, /loaded /, "SIGINT");
  assert.equal(code, 130, stderr);
  assert.match(stderr, /stopped; run the same command to continue\n$/);
});

Deno.test("quantize stops between two pieces, says how to continue, and continues", async () => {
  const folder = `${testFolder()}/quantize`;
  Deno.mkdirSync(folder);
  writeSynthetic(`${folder}/in.gguf`, { n_embd: 1024, n_ff: 3072, n_layer: 2 });
  const args = ["quantize", "--device", "cpu", "--resume", `${folder}/in.gguf`, `${folder}/out.gguf`, "IQ3_S", "1"];
  const { code, stderr } = await interrupted(args, /\[2\//, "SIGINT");
  assert.equal(code, 130, stderr);
  assert.match(stderr, /\nstopped; run the same command with --resume to continue\n$/);
  assert.deepEqual([...Deno.readDirSync(folder)].map((e) => e.name).sort(), [
    "in.gguf",
    "out.gguf.partial",
    "out.gguf.partial.json",
  ]);
  const { success, stderr: rest } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args, "--json"],
  }).output();
  assert.ok(success, new TextDecoder().decode(rest));
});

Deno.test("run keeps what it printed when it is interrupted", async () => {
  const model = await bloomNano("bf16");
  const args = ["run", "-m", model, "--device", "reference", "--ignore-eos", "-c", "8192", "Hello"];
  const { code, stderr } = await interrupted(args, /loaded /, "SIGTERM");
  assert.equal(code, 130, stderr);
});
