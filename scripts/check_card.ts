/**
 * What a card reaches, as one short table: the tests of tests/gpu, the tiny checkpoints of every architecture, and the rates of
 * models of real shapes. Builds nothing: `build/libbloomery_cuda.so` must be there.
 *
 *   deno run -A scripts/check_card.ts [--only ops,models,quantize,families,bench] [--shapes qwen3-8b,qwen3-30b-a3b]
 *
 * Synthetic models of real shapes are written to build/synthetic (5 and 17 GB). `families` needs ../shared and writes
 * tests/results/families.json, as scripts/family_results.ts does.
 * @module
 */
const root = new URL("../", import.meta.url).pathname;

function flag(name: string): string | undefined {
  const i = Deno.args.indexOf(`--${name}`);
  return i < 0 ? undefined : Deno.args[i + 1];
}

const only = flag("only")?.split(",");
const shapes = (flag("shapes") ?? "qwen3-8b,qwen3-30b-a3b").split(",");
const rows: string[][] = [];
let failed = false;

async function run(args: readonly string[]): Promise<{ ok: boolean; text: string; seconds: number }> {
  const from = performance.now();
  const out = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: root,
    env: { NO_COLOR: "1" },
    stdout: "piped",
    stderr: "piped",
  }).output();
  const text = new TextDecoder().decode(out.stdout) + new TextDecoder().decode(out.stderr);
  return { ok: out.success, text, seconds: (performance.now() - from) / 1000 };
}

function wanted(name: string): boolean {
  return only === undefined || only.includes(name);
}

/** A test file: how many passed, and which did not. */
async function tests(name: string, file: string): Promise<void> {
  if (!wanted(name)) return;
  const { ok, text, seconds } = await run(["test", "-A", "--no-check", file]);
  failed ||= !ok;
  const passed = (text.match(/ \.\.\. ok/g) ?? []).length, ignored = (text.match(/ \.\.\. ignored/g) ?? []).length;
  const bad = [...new Set([...text.matchAll(/^(.+?) \.\.\. FAILED/gm)].map((m) => m[1]))];
  rows.push([name, `${passed} passed, ${bad.length} failed, ${ignored} ignored`, `${seconds.toFixed(0)} s`]);
  for (const b of bad) rows.push(["", b, ""]);
  if (!ok) {
    console.error(
      [...text.matchAll(/^(?:error: .*|.*(?:NMSE|differs at|Cannot).*)$/gm)].map((m) => m[0]).join("\n") ||
        text.slice(-4000),
    );
  }
}

await tests("ops", "tests/gpu/ops_test.ts");
await tests("models", "tests/gpu/cuda_test.ts");
await tests("quantize", "tests/gpu/quantize_test.ts");
if (wanted("families")) {
  const { ok, text, seconds } = await run(["run", "-A", "--no-check", "scripts/family_results.ts", "--device", "cuda"]);
  failed ||= !ok;
  const results = [...text.matchAll(/^(\w+): (\{.*\})$/gm)].map((m) => ({ name: m[1], ...JSON.parse(m[2]) }));
  const bad = results.filter((r) => r.problem !== undefined);
  failed ||= bad.length > 0;
  rows.push(["families", `${results.length - bad.length} of ${results.length}`, `${seconds.toFixed(0)} s`]);
  for (const b of bad) rows.push(["", `${b.name}: ${String(b.problem).slice(0, 160)}`, ""]);
  if (!ok) console.error(text.slice(-2000));
}
for (const shape of wanted("bench") ? shapes : []) {
  const args = ["run", "-A", "--no-check", "scripts/bench.ts", "--device", "cuda", "--shape", shape, "--rounds", "1"];
  const { ok, text, seconds } = await run(args);
  failed ||= !ok;
  const rates = [...text.matchAll(/^\| (\w+) \| ([\d.]+) \|/gm)].map((m) => `${m[1]} ${m[2]} tok/s`);
  rows.push([shape, ok ? rates.join(", ") : "failed", `${seconds.toFixed(0)} s`]);
  if (!ok) console.error(text.slice(-2000));
}
for (const r of rows) console.log(`| ${r.join(" | ")} |`);
if (failed) Deno.exitCode = 1;
