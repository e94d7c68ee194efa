/**
 * The whole job through the one-file build: compiled, then run from an empty folder with an empty HOME and nothing on PATH.
 */
import assert from "node:assert/strict";
import { testFolder } from "./models.ts";
import { repoDir } from "./shared.ts";

/** The text that is scored: any of the repository's own is long enough. */
const TEXT = `${repoDir}ARCHITECTURE.md`;

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function freePort(): number {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  return port;
}

Deno.test("dist/bloomery does the whole job alone", async (t) => {
  const compile = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "scripts/compile.ts", "--no-build"],
    cwd: repoDir,
    stdout: "piped",
    stderr: "piped",
  }).output();
  assert.ok(compile.success, new TextDecoder().decode(compile.stderr));

  const home = `${testFolder()}/home`, cwd = `${testFolder()}/empty`;
  Deno.mkdirSync(home);
  Deno.mkdirSync(cwd);
  const binary = `${repoDir}dist/bloomery`;
  const env = { HOME: home, PATH: "/nonexistent", TMPDIR: testFolder() };
  const command = (args: string[], stdout: "piped" | "null" = "piped") =>
    new Deno.Command(binary, { args, cwd, env, clearEnv: true, stdin: "null", stdout, stderr: "piped" });
  const run = async (...args: string[]): Promise<Ran> => {
    const { code, stdout, stderr } = await command(args).output();
    const text = (b: Uint8Array) => new TextDecoder().decode(b);
    return { code, stdout: text(stdout), stderr: text(stderr) };
  };
  const ok = async (...args: string[]): Promise<Ran> => {
    const r = await run(...args);
    assert.equal(r.code, 0, `${args.join(" ")}: ${r.stderr}`);
    return r;
  };

  await t.step("--version names version, commit, ABI and devices", async () => {
    const { stdout } = await ok("--version");
    assert.match(stdout, /^bloomery \d+\.\d+\.\d+ \(\w+(-changed)?\)\nabi \d+\n/);
    assert.match(stdout, /device cpu: /);
  });

  await t.step("bad command lines exit with 2, failures with 1 and JSON when asked", async () => {
    assert.equal((await run("nonesuch")).code, 2);
    assert.equal((await run("quantize")).code, 2);
    const missing = await run("eval", "-m", "none.gguf", "--against", "none.gguf", "-f", TEXT, "--json");
    assert.equal(missing.code, 1);
    assert.match(JSON.parse(missing.stdout).error.code, /^format\./);
  });

  await t.step("prepare, quantize", async () => {
    await ok("prepare", `${repoDir}models/bloom-nano`, "-o", "bf16.gguf");
    await ok("quantize", "bf16.gguf", "q4.gguf", "Q4_K_M");
    assert.deepEqual([...Deno.readDirSync(cwd)].map((e) => e.name).sort(), ["bf16.gguf", "q4.gguf"]);
  });

  await t.step("run prints an answer", async () => {
    const { stdout } = await ok("run", "-m", "q4.gguf", "--temp", "0", "--no-think", "What is 27 + 58?");
    assert.match(stdout, /27 \+ 58 = 85/);
  });

  await t.step("serve answers over HTTP and drains on SIGTERM", async () => {
    const port = freePort();
    const server = command(["serve", "-m", "q4.gguf", "--port", String(port)], "null").spawn();
    const url = `http://127.0.0.1:${port}`;
    try {
      for (let i = 0;; i++) {
        const up = await fetch(`${url}/health`).then(async (r) => (await r.body?.cancel(), r.ok)).catch(() => false);
        if (up) break;
        assert.ok(i < 100, "the server did not become ready");
        await new Promise((r) => setTimeout(r, 100));
      }
      const page = await fetch(url);
      assert.equal(page.headers.get("content-type"), "text/html; charset=utf-8");
      assert.match(await page.text(), /^<!doctype html>/);
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        body: JSON.stringify({ messages: [{ role: "user", content: "What is 27 + 58?" }], temperature: 0 }),
        headers: { "content-type": "application/json" },
      });
      const { choices } = await response.json();
      assert.match(choices[0].message.content, /85/);
    } finally {
      server.kill("SIGTERM");
    }
    const { code, stderr } = await server.output();
    assert.equal(code, 0, new TextDecoder().decode(stderr));
  });

  await t.step("score, and a second score goes on where the first ended", async () => {
    const first = await ok("score", "-m", "q4.gguf", "-f", TEXT, "-o", "s.jsonl", "--json");
    const whole = Deno.readTextFileSync(`${cwd}/s.jsonl`);
    const cut = whole.slice(0, whole.trimEnd().lastIndexOf("\n") + 10);
    Deno.writeTextFileSync(`${cwd}/s.jsonl`, cut);
    const second = await ok("score", "-m", "q4.gguf", "-f", TEXT, "-o", "s.jsonl", "--json");
    assert.equal(Deno.readTextFileSync(`${cwd}/s.jsonl`), whole);
    assert.ok(Math.abs(JSON.parse(first.stdout).nll.mean - JSON.parse(second.stdout).nll.mean) < 1e-6);
  });

  await t.step("eval against the original and against a score file", async () => {
    const same = JSON.parse((await ok("eval", "-m", "q4.gguf", "--against", "q4.gguf", "-f", TEXT, "--json")).stdout);
    assert.equal(same.rows[0].kl.mean, 0);
    assert.equal(same.rows[0].same_top.mean, 1);
    const { rows: [row] } = JSON.parse(
      (await ok("eval", "-m", "q4.gguf", "--against", "bf16.gguf", "-f", TEXT, "--json")).stdout,
    );
    assert.ok(row.kl.mean > 0 && row.kl.mean < 0.2, `KL ${row.kl.mean}`);
    assert.ok(row.same_top.mean > 0.8);
    await ok("score", "-m", "bf16.gguf", "-f", TEXT, "-o", "original.jsonl");
    const { rows: [scored] } = JSON.parse(
      (await ok("eval", "-m", "q4.gguf", "--against", "original.jsonl", "--json")).stdout,
    );
    assert.ok(Math.abs(scored.delta_nll.mean - row.delta_nll.mean) < 1e-4);
    assert.ok(scored.kl.mean <= row.kl.mean + 1e-6, "a divergence over buckets is a lower bound");
    const strict = await run("eval", "-m", "q4.gguf", "--against", "bf16.gguf", "-f", TEXT, "--max-kl", "0");
    assert.equal(strict.code, 3);
    assert.match(strict.stdout, /same top-1/);
  });
});
