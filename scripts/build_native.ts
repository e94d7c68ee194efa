/**
 * Builds the native libraries that this machine's compilers allow: `build/libbloomery_cpu.so` with g++ or clang++, and
 * `build/libbloomery_cuda.so` where nvcc is. Needs nothing else. Objects are named after a hash of their sources, headers
 * and flags, so only what changed is compiled.
 *
 *   deno task build [--only cpu|cuda] [--cuda-arch 90a[,80...]] [--cxx COMPILER] [--jobs N] [--sanitize address,undefined|thread]
 *                   [--test] [--verbose]
 *
 * `--sanitize` builds into build/asan or build/tsan; `--test` also links and runs csrc/tests, on the op
 * cases that scripts/dump_op_cases.ts has written (it needs the plain library).
 * @module
 */
import { createHash } from "node:crypto";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const root = normalize(join(dirname(fileURLToPath(import.meta.url)), ".."));
const csrc = join(root, "csrc");

interface Options {
  only?: string;
  cudaArch?: string;
  cxx?: string;
  jobs: number;
  sanitize?: string;
  test: boolean;
  verbose: boolean;
}

class BuildError extends Error {}

function parseOptions(args: readonly string[]): Options {
  const o: Options = { jobs: navigator.hardwareConcurrency, test: false, verbose: false };
  for (let i = 0; i < args.length; i++) {
    const [name, inline] = args[i].split("=", 2);
    const value = () => {
      const v = inline ?? args[++i];
      if (v === undefined) throw new BuildError(`${name} needs a value`);
      return v;
    };
    if (name === "--only") o.only = value();
    else if (name === "--cuda-arch") o.cudaArch = value();
    else if (name === "--cxx") o.cxx = value();
    else if (name === "--jobs") o.jobs = Math.max(1, Number(value()) || 1);
    else if (name === "--sanitize") o.sanitize = value();
    else if (name === "--test") o.test = true;
    else if (name === "--verbose") o.verbose = true;
    else throw new BuildError(`unknown option ${name}`);
  }
  if (o.only !== undefined && o.only !== "cpu" && o.only !== "cuda") {
    throw new BuildError(`--only is ${o.only}, expected cpu or cuda`);
  }
  return o;
}

async function run(command: string, args: readonly string[]): Promise<{ ok: boolean; text: string }> {
  try {
    const out = await new Deno.Command(command, { args: [...args], stdout: "piped", stderr: "piped" }).output();
    return { ok: out.success, text: new TextDecoder().decode(out.stdout) + new TextDecoder().decode(out.stderr) };
  } catch (e) {
    if (e instanceof Deno.errors.NotFound || e instanceof Deno.errors.PermissionDenied) return { ok: false, text: "" };
    throw e;
  }
}

async function findTool(names: readonly (string | undefined)[], args: readonly string[]) {
  for (const name of names) {
    if (!name) continue;
    const { ok, text } = await run(name, args);
    if (ok) return { command: name, version: text.trim() };
  }
  return undefined;
}

function list(folder: string, extension: string): string[] {
  try {
    return [...Deno.readDirSync(join(csrc, folder))]
      .filter((e) => e.isFile && e.name.endsWith(extension))
      .map((e) => `${folder}/${e.name}`)
      .sort();
  } catch (e) {
    if (e instanceof Deno.errors.NotFound) return [];
    throw e;
  }
}

/** Flags of one host file beyond the common ones, or undefined when this machine's architecture does not build it. */
function fileFlags(source: string, gnu: boolean): string[] | undefined {
  const isa = /_(avx2|avx512|amx|neon)\.cpp$/.exec(source)?.[1];
  if (isa === undefined) return [];
  if (isa === "neon") return Deno.build.arch === "aarch64" ? [] : undefined;
  if (Deno.build.arch !== "x86_64") return undefined;
  const avx2 = ["-mavx2", "-mfma", "-mf16c"];
  // g++ otherwise reorders the unrolled kernels until half their registers are spilled (1.4 x slower on Zen 3).
  if (gnu && source.startsWith("cpu/")) avx2.push("-fno-tree-reassoc", "-fno-tree-ter");
  if (isa === "avx2") return avx2;
  const avx512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mprefer-vector-width=512"];
  // g++ 12 takes the undefined operands inside its own AVX-512 intrinsics for uninitialized variables.
  if (gnu) avx512.push("-Wno-uninitialized", "-Wno-maybe-uninitialized");
  return [...avx2, ...avx512, ...(isa === "amx" ? ["-mamx-tile", "-mamx-int8"] : [])];
}

/** Flags of one CUDA file: the encoders and decoders of csrc/common need every operation rounded on its own, as on the host. */
function cudaFileFlags(source: string): string[] {
  if (!/\/(de)?quantize\w*\.cu$/.test(source)) return [];
  return ["-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"];
}

const contents = new Map<string, { text: string; includes: string[] }>();

/** A file's text and the repository files it includes, read once. */
function source(path: string): { text: string; includes: string[] } {
  let known = contents.get(path);
  if (known === undefined) {
    const text = Deno.readTextFileSync(path);
    const includes = [...text.matchAll(/^\s*#\s*include\s+"([^"]+)"/gm)].map((m) =>
      normalize(join(dirname(path), m[1]))
    );
    known = { text, includes };
    contents.set(path, known);
  }
  return known;
}

/** Every repository file that compiling `path` reads, itself first. */
function closure(path: string, seen = new Set<string>()): Set<string> {
  if (seen.has(path)) return seen;
  seen.add(path);
  for (const include of source(path).includes) {
    try {
      closure(include, seen);
    } catch (e) {
      if (!(e instanceof Deno.errors.NotFound)) throw e; // a header behind a condition
      seen.delete(include);
    }
  }
  return seen;
}

interface Compile {
  readonly source: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly object: string;
}

function compileJob(
  objects: string,
  file: string,
  tool: { command: string; version: string },
  flags: string[],
): Compile {
  const hash = createHash("sha256").update(tool.version).update(JSON.stringify(flags));
  for (const f of [...closure(join(csrc, file))].sort()) {
    hash.update("\0" + f.slice(csrc.length) + "\0" + source(f).text);
  }
  const object = join(objects, `${file.replaceAll("/", "_")}-${hash.digest("hex").slice(0, 16)}.o`);
  return { source: file, command: tool.command, args: [...flags, "-c", join(csrc, file), "-o", object], object };
}

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

async function compileAll(jobs: readonly Compile[], options: Options): Promise<void> {
  const todo = jobs.filter((j) => !exists(j.object));
  const failures: string[] = [];
  const queue = [...todo];
  await Promise.all(
    Array.from({ length: Math.min(options.jobs, queue.length) }, async () => {
      for (let job = queue.shift(); job !== undefined && failures.length === 0; job = queue.shift()) {
        console.error(`  compile csrc/${job.source}`);
        if (options.verbose) console.error(`    ${job.command} ${job.args.join(" ")}`);
        const partial = `${job.object}.${Deno.pid}.partial`; // two builds may run at once
        const { ok, text } = await run(job.command, job.args.map((a) => a === job.object ? partial : a));
        if (text.trim()) console.error(text.trimEnd());
        if (ok) Deno.renameSync(partial, job.object);
        else failures.push(job.source);
      }
    }),
  );
  if (failures.length > 0) throw new BuildError(`cannot compile csrc/${failures.join(", csrc/")}`);
}

/** Links when the objects or flags differ from the last link's. */
async function link(
  command: string,
  args: readonly string[],
  objects: readonly string[],
  output: string,
): Promise<void> {
  const stamp = createHash("sha256").update(JSON.stringify([command, args, objects])).digest("hex");
  const stampFile = `${output}.stamp`;
  if (exists(output) && exists(stampFile) && Deno.readTextFileSync(stampFile) === stamp) return;
  console.error(`  link ${output.slice(root.length + 1)}`);
  const partial = `${output}.${Deno.pid}.partial`;
  const { ok, text } = await run(command, [...args, "-o", partial, ...objects]);
  if (text.trim()) console.error(text.trimEnd());
  if (!ok) throw new BuildError(`cannot link ${output}`);
  Deno.renameSync(partial, output);
  Deno.writeTextFileSync(stampFile, stamp);
}

/** Removes objects that this build does not use and that are too old to be another running build's. */
function sweep(objects: string, used: ReadonlySet<string>): void {
  for (const e of Deno.readDirSync(objects)) {
    const path = join(objects, e.name);
    if (!used.has(path) && Date.now() - (Deno.statSync(path).mtime?.getTime() ?? 0) > 3_600_000) Deno.removeSync(path);
  }
}

/** `-gencode` flags: real code for the cards of today, PTX of the oldest for everything newer. */
async function cudaArchFlags(nvcc: string, only: string | undefined): Promise<string[]> {
  if (only !== undefined) return only.split(",").flatMap((a) => ["-gencode", `arch=compute_${a},code=sm_${a}`]);
  const { text } = await run(nvcc, ["--list-gpu-code"]);
  const wanted = ["80", "90", "90a", "120"].filter((a) => new RegExp(`\\bsm_${a}\\b`).test(text));
  return [
    ...wanted.flatMap((a) => ["-gencode", `arch=compute_${a},code=sm_${a}`]),
    "-gencode",
    "arch=compute_80,code=compute_80",
  ];
}

async function build(options: Options): Promise<void> {
  const started = performance.now();
  const cxx = await findTool([options.cxx ?? Deno.env.get("CXX"), "g++", "clang++", "c++"], ["--version"]);
  if (cxx === undefined) throw new BuildError("found no C++ compiler: install g++ or clang++, or name one with --cxx");
  const sanitize = options.sanitize;
  const out = join(root, "build", ...(sanitize === undefined ? [] : [sanitize.includes("thread") ? "tsan" : "asan"]));
  const objects = join(out, "obj");
  Deno.mkdirSync(objects, { recursive: true });

  const flags = [
    "-std=c++17",
    sanitize === undefined ? "-O3" : "-O1",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=off",
  ];
  flags.push("-fno-math-errno", "-Wall", "-Wextra");
  if (sanitize !== undefined) {
    flags.push("-g", "-fno-omit-frame-pointer", `-fsanitize=${sanitize}`, "-fno-sanitize-recover=all");
  }
  const host = ["common", "runtime", "cpu"].flatMap((folder) => list(folder, ".cpp"))
    .flatMap((file) => {
      const own = fileFlags(file, !cxx.version.includes("clang"));
      return own === undefined ? [] : [compileJob(objects, file, cxx, [...flags, ...own])];
    });
  const used = new Set(host.map((j) => j.object));
  const linkFlags = [
    "-shared",
    "-pthread",
    ...(sanitize === undefined ? ["-static-libstdc++", "-static-libgcc"] : [`-fsanitize=${sanitize}`]),
  ];
  // Only the ABI's names leave the library, and none may be missing.
  if (Deno.build.os === "linux" && sanitize === undefined) {
    linkFlags.push("-Wl,--exclude-libs,ALL", "-Wl,--no-undefined");
  }
  const extension = Deno.build.os === "darwin" ? "dylib" : "so";

  await compileAll(host, options);
  if (options.only !== "cuda") {
    await link(cxx.command, linkFlags, host.map((j) => j.object), join(out, `libbloomery_cpu.${extension}`));
  }

  const cuda = list("cuda", ".cu");
  const nvcc = options.only === "cpu" || cuda.length === 0 || sanitize !== undefined
    ? undefined
    : await findTool([Deno.env.get("NVCC"), "nvcc", "/usr/local/cuda/bin/nvcc"], ["--version"]);
  if (nvcc === undefined) {
    if (options.only === "cuda") throw new BuildError("found no nvcc: install the CUDA toolkit, or set NVCC");
  } else {
    const nvccFlags = ["-std=c++17", "-O3", "-ccbin", cxx.command, "-cudart", "static", "--threads", "0"];
    nvccFlags.push("-Xcompiler", "-fPIC,-fvisibility=hidden,-ffp-contract=off,-pthread");
    nvccFlags.push(...await cudaArchFlags(nvcc.command, options.cudaArch));
    const device = [
      ...cuda.map((file) => compileJob(objects, file, nvcc, [...nvccFlags, ...cudaFileFlags(file)])),
      ...list("cuda", ".cpp").map((file) => compileJob(objects, file, nvcc, nvccFlags)),
    ];
    for (const j of device) used.add(j.object);
    await compileAll(device, options);
    const all = [...host.filter((j) => !j.source.endsWith("/card_devices_none.cpp")), ...device].map((j) => j.object);
    const cudaLink = [
      "-cudart",
      "static",
      "-ccbin",
      cxx.command,
      "-Xcompiler",
      "-pthread,-static-libstdc++,-static-libgcc",
    ];
    await link(nvcc.command, ["-shared", ...cudaLink], all, join(out, `libbloomery_cuda.${extension}`));
    if (options.test) { // for a card, which this machine may lack: `native_tests_cuda CASES 1`
      const tests = list("tests", ".cpp").map((file) => compileJob(objects, file, cxx, flags));
      for (const j of tests) used.add(j.object);
      await compileAll(tests, options);
      await link(nvcc.command, cudaLink, [...all, ...tests.map((j) => j.object)], join(out, "native_tests_cuda"));
    }
  }

  if (options.test) {
    const tests = list("tests", ".cpp").map((file) => compileJob(objects, file, cxx, flags));
    for (const j of tests) used.add(j.object);
    await compileAll(tests, options);
    const program = join(out, "native_tests");
    const testLink = ["-pthread", ...(sanitize === undefined ? [] : [`-fsanitize=${sanitize}`])];
    await link(cxx.command, testLink, [...host, ...tests].map((j) => j.object), program);
    const args = [join(root, "build", "op_cases")];
    const child = await new Deno.Command(program, { args, stdout: "inherit", stderr: "inherit" }).output();
    if (!child.success) throw new BuildError(`native_tests failed with exit status ${child.code}`);
  }
  // Other invocations (--only, --test) leave their objects: only a plain build knows them all.
  if (options.only === undefined && !options.test && sanitize === undefined) sweep(objects, used);
  console.error(
    `native build: ${host.length} host files, ${nvcc === undefined ? "no CUDA" : "CUDA"}, ${cxx.command}, ` +
      `${((performance.now() - started) / 1000).toFixed(1)} s`,
  );
}

if (import.meta.main) {
  try {
    await build(parseOptions(Deno.args));
  } catch (e) {
    if (!(e instanceof BuildError)) throw e;
    console.error(`build failed: ${e.message}`);
    Deno.exitCode = 1;
  }
}
