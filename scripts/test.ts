/**
 * `deno task test`: builds the page and the native library, runs the checks of `deno task ok` and all tests, and ends with one line
 * `N passed, N failed`. Arguments are passed to `deno test`.
 * @module
 */

const root = new URL("../", import.meta.url).pathname;

interface Outcome {
  readonly code: number;
  readonly text: string;
}

/** Runs a command, showing and keeping what it prints. */
async function run(args: string[], env: Record<string, string> = {}): Promise<Outcome> {
  const child = new Deno.Command(Deno.execPath(), {
    args,
    cwd: root,
    env: { NO_COLOR: "1", ...env },
    stdout: "piped",
    stderr: "inherit",
    stdin: "null",
  }).spawn();
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of child.stdout) {
    await Deno.stdout.write(chunk);
    text += decoder.decode(chunk, { stream: true });
  }
  return { code: (await child.status).code, text };
}

/** A card's library takes minutes to compile: it is built where there is a card to test it on. */
function hasCard(): boolean {
  try {
    return Deno.statSync("/dev/nvidiactl").isCharDevice === true;
  } catch {
    return false;
  }
}

let passed = 0, failed = 0, ignored = 0;
const failures: string[] = [];

const steps: [name: string, args: string[]][] = [
  ["page", ["run", "-A", "scripts/build_page.ts"]],
  ["build", ["run", "-A", "scripts/build_native.ts", ...(hasCard() ? [] : ["--only", "cpu"])]],
  ["fmt", ["fmt", "--check", "--quiet"]],
  ["lint", ["lint", "--quiet"]],
  ["check", ["check", "--quiet", "--lock", "tests/deno.lock", "."]],
  ["doc", ["doc", "--lint", "--quiet", "mod.ts"]],
  ["imports", ["run", "-A", "scripts/check_imports.ts"]],
  ["ops", ["run", "-A", "scripts/gen_ops.ts", "--check"]],
  ["abi", ["run", "-A", "scripts/check_abi.ts"]],
  ["http docs", ["run", "-A", "scripts/gen_http_docs.ts", "--check"]],
];
for (const [name, args] of steps) {
  const { code } = await run(args);
  if (code === 0) passed++;
  else {
    failed++;
    failures.push(name);
  }
  console.log(`${name}: ${code === 0 ? "ok" : "FAILED"}`);
}

// Apart: with --doc every module of the given folders is loaded, which scripts/ must not be.
// Packages that only tests use have a lock file of their own: `deno task` fetches everything that the main one names.
const lock = ["--lock", "tests/deno.lock"];
const runs = Deno.args.length > 0 ? [[...lock, ...Deno.args]] : [
  [...lock, "--doc", "README.md", "mod.ts", "core", "ffi", "quantize", "eval", "serve", "hub", "pipeline", "cli"],
  [...lock, "page", "tests"],
  ["--config", "tests/npm/deno.json", "tests/npm"], // packages that nothing else is to fetch
];
for (const args of runs) {
  const { code, text } = await run(["test", "-A", "--no-check", ...args]);
  const summary = /(\d+) passed(?: \(\d+ steps?\))? \| (\d+) failed(?: \(\d+ steps?\))?(?: \| (\d+) ignored)?/.exec(
    text,
  );
  if (summary) {
    passed += Number(summary[1]);
    failed += Number(summary[2]);
    ignored += Number(summary[3] ?? 0);
  }
  if (!summary || (code !== 0 && Number(summary[2]) === 0)) {
    failed++;
    failures.push(`deno test ${args.join(" ")}`);
  }
}
if (failures.length > 0) console.log(`failed checks: ${failures.join(", ")}`);
console.log(`${passed} passed, ${failed} failed${ignored > 0 ? `, ${ignored} skipped` : ""}`);
Deno.exitCode = failed > 0 ? 1 : 0;
