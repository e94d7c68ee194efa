/**
 * `deno task compile`: one executable, `dist/bloomery`, with the native libraries and the page in it.
 *
 * `deno compile` makes it where it finds Deno's runtime stub (DENORT_BIN, Deno's cache, or the network); elsewhere the same
 * bundle, the Deno binary and the libraries are packed behind `csrc/launcher`. `--launcher` or `--stub` asks for one of them.
 * @module
 */
import { createHash } from "node:crypto";

const root = new URL("../", import.meta.url).pathname;
const dist = `${root}dist`;

function run(command: string, args: string[], env: Record<string, string> = {}): { ok: boolean; text: string } {
  const out = new Deno.Command(command, { args, cwd: root, env, stdout: "piped", stderr: "piped" }).outputSync();
  const decoder = new TextDecoder();
  return { ok: out.success, text: decoder.decode(out.stdout) + decoder.decode(out.stderr) };
}

function must(what: string, command: string, args: string[], env: Record<string, string> = {}): string {
  const { ok, text } = run(command, args, env);
  if (!ok) {
    console.error(text);
    throw new Error(`${what} failed`);
  }
  return text;
}

function commit(): string {
  const { ok, text } = run("git", ["rev-parse", "--short=12", "HEAD"]);
  if (!ok) return "unknown";
  return text.trim() +
    (run("git", ["status", "--porcelain", "--untracked-files=no"]).text.trim() === "" ? "" : "-changed");
}

/** The native libraries that were built. */
function libraries(): string[] {
  return [...Deno.readDirSync(`${root}build`)].map((e) => e.name).filter((n) => /^libbloomery_\w+\.(so|dylib)$/.test(n))
    .sort();
}

/** What the program reads beside its own text: the native libraries, and the page. */
function companions(): string[] {
  try {
    Deno.statSync(`${root}build/page.html`);
  } catch {
    throw new Error("build/page.html is missing: build it with `deno task build`, or leave --no-build out");
  }
  return [...libraries(), "page.html"];
}

/** The whole program as one JavaScript file, the commit written into it. */
function bundle(): string {
  const path = `${dist}/bundle.js`;
  must("bundling", Deno.execPath(), ["bundle", "--quiet", "--platform", "deno", "-o", path, "cli/main.ts"]);
  const text = Deno.readTextFileSync(path);
  const marker = 'Deno.env.get("BLOOMERY_COMMIT") ?? "source"';
  if (!text.includes(marker)) throw new Error("the bundle has no place for the commit: see cli/commit.ts");
  Deno.writeTextFileSync(path, text.replace(marker, JSON.stringify(commit())));
  return path;
}

function compileWithStub(bundlePath: string): boolean {
  const include = companions().flatMap((name) => ["--include", `build/${name}`]);
  const { ok, text } = run(Deno.execPath(), [
    "compile",
    "--allow-all",
    "--no-check",
    "--self-extracting",
    "--unstable-no-legacy-abort",
    ...include,
    "-o",
    `${dist}/bloomery`,
    bundlePath,
  ]);
  if (!ok) console.error(`deno compile: ${text.trim().split("\n")[0]}`);
  return ok;
}

function compileWithLauncher(bundlePath: string): void {
  const launcher = `${dist}/launcher`;
  const compiler = ["g++", "clang++"].find((c) => run("sh", ["-c", `command -v ${c}`]).ok);
  if (!compiler) throw new Error("the launcher needs g++ or clang++");
  must("the launcher", compiler, [
    "-std=c++17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-static",
    "-s",
    "-o",
    launcher,
    "csrc/launcher/launcher.cpp",
  ]);

  const files: { name: string; path: string; mode: number }[] = [
    { name: "deno", path: Deno.execPath(), mode: 0o700 },
    { name: "bundle.js", path: bundlePath, mode: 0o600 },
    ...companions().map((name) => ({ name, path: `${root}build/${name}`, mode: name === "page.html" ? 0o600 : 0o700 })),
  ];
  const partial = `${dist}/bloomery.partial`;
  const out = Deno.openSync(partial, { write: true, create: true, truncate: true, mode: 0o755 });
  const hash = createHash("sha256");
  let at = 0;
  const write = (bytes: Uint8Array) => {
    for (let done = 0; done < bytes.length;) done += out.writeSync(bytes.subarray(done));
    at += bytes.length;
  };
  write(Deno.readFileSync(launcher));
  const encoder = new TextEncoder();
  const index: Uint8Array[] = [];
  for (const f of files) {
    const bytes = Deno.readFileSync(f.path);
    const name = encoder.encode(f.name);
    hash.update(name).update(bytes);
    const head = new DataView(new ArrayBuffer(24));
    head.setBigUint64(0, BigInt(at), true);
    head.setBigUint64(8, BigInt(bytes.length), true);
    head.setUint32(16, f.mode, true);
    head.setUint32(20, name.length, true);
    index.push(new Uint8Array(head.buffer), name);
    write(bytes);
  }
  const trailer = new Uint8Array(64);
  const view = new DataView(trailer.buffer);
  trailer.set(encoder.encode("BLOOMPK1"));
  view.setBigUint64(8, BigInt(at), true);
  view.setBigUint64(16, BigInt(files.length), true);
  trailer.set(encoder.encode(hash.digest("hex").slice(0, 32)), 24);
  for (const bytes of index) write(bytes);
  write(trailer);
  out.close();
  Deno.chmodSync(partial, 0o755);
  Deno.renameSync(partial, `${dist}/bloomery`);
  Deno.removeSync(launcher);
}

if (import.meta.main) {
  Deno.mkdirSync(dist, { recursive: true });
  if (!Deno.args.includes("--no-build")) {
    must("the page", Deno.execPath(), ["run", "-A", "scripts/build_page.ts"]);
    must("the native build", Deno.execPath(), ["run", "-A", "scripts/build_native.ts"]);
  }
  const path = bundle();
  const stub = !Deno.args.includes("--launcher") && compileWithStub(path);
  if (!stub) {
    if (Deno.args.includes("--stub")) throw new Error("Deno's runtime stub cannot be had here: set DENORT_BIN");
    compileWithLauncher(path);
  }
  Deno.removeSync(path);
  const size = Deno.statSync(`${dist}/bloomery`).size;
  console.log(`dist/bloomery: ${(size / 1e6).toFixed(1)} MB, by ${stub ? "deno compile" : "the launcher"}`);
}
