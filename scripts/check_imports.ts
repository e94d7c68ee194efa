/**
 * Checks the direction of imports: `cli -> pipeline | serve | eval | quantize | hub -> core <- ffi`, no circles among modules, npm packages
 * each in the modules that may know them, packages for tests in no lock file but theirs, and pointers in ffi/ only. Part of
 * `deno task ok`.
 * @module
 */

/** The repository to check, with a trailing slash; its own unless another is named. */
const root = Deno.args[0] ?? new URL("../", import.meta.url).pathname;

/** Folders each folder may import from, besides itself. `ffi` for the composition points only. */
const MAY: Readonly<Record<string, readonly string[]>> = {
  core: [],
  ffi: ["core"],
  quantize: ["core"],
  eval: ["core"],
  serve: ["core"],
  hub: ["core"],
  pipeline: ["core", "eval"],
  page: [],
  cli: ["core", "ffi", "quantize", "eval", "serve", "hub", "pipeline", "deno.json"],
  "mod.ts": ["core", "ffi", "quantize", "eval", "serve"],
  scripts: ["core", "ffi", "quantize", "eval", "serve", "cli", "deno.json", "tests"],
  tests: ["core", "ffi", "quantize", "eval", "serve", "hub", "pipeline", "cli", "mod.ts", "deno.json", "scripts"],
};

/** Packages confined to one module or folder; tests and scripts may use any. */
const CONFINED: Readonly<Record<string, readonly string[]>> = {
  commander: ["cli/parse.ts"],
  "cli-progress": ["cli/progress.ts"],
  hono: ["serve/"],
  "prom-client": ["serve/"],
  zod: ["serve/", "hub/", "pipeline/", "cli/config.ts"],
  "@huggingface/jinja": ["core/chat/jinja/"],
};

async function* sources(folder: string): AsyncGenerator<string> {
  for await (const entry of Deno.readDir(folder)) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory) yield* sources(path);
    else if (/\.tsx?$/.test(entry.name)) yield path;
  }
}

const problems: string[] = [];
/** Packages that only tests use, with their versions. */
const testVersions = new Map<string, string>();
let n_files = 0;
/** The repository's modules that each module imports, types included: a circle of types is a circle of ideas. */
const imports = new Map<string, string[]>();

/** The circles of modules, one of each group whose members all lead to one another. */
function circles(): string[][] {
  const found: string[][] = [];
  const done = new Set<string>(), path: string[] = [], onPath = new Map<string, number>(), told = new Set<string>();
  const visit = (name: string): void => {
    onPath.set(name, path.length);
    path.push(name);
    for (const target of imports.get(name) ?? []) {
      const from = onPath.get(target);
      if (from !== undefined) {
        const circle = path.slice(from);
        if (!circle.some((member) => told.has(member))) found.push([...circle, target]);
        for (const member of circle) told.add(member);
      } else if (!done.has(target)) visit(target);
    }
    path.pop();
    onPath.delete(name);
    done.add(name);
  };
  for (const name of imports.keys()) if (!done.has(name)) visit(name);
  return found;
}

async function check(path: string): Promise<void> {
  n_files++;
  const name = path.slice(root.length).replace(/^\/+/, "");
  const isTest = name.endsWith("_test.ts") || /(^|\/)_testing/.test(name);
  const top = name.split("/")[0];
  const text = await Deno.readTextFile(path);
  for (const match of text.matchAll(/(?:from|import)\s*\(?\s*["']([^"']+)["']/g)) {
    const target = match[1];
    if (target.startsWith(".")) {
      const resolved = new URL(target, `file://${path}`).pathname.slice(root.length);
      const other = resolved.split("/")[0];
      // An example in a comment imports the module that it is about.
      const module = resolved.replace(/^\/+/, "");
      if (module !== name) imports.set(name, [...imports.get(name) ?? [], module]);
      // Unit tests beside their source may open a backend and read goldens.
      const allowed = isTest ? [...(MAY[top] ?? []), "ffi", "tests", "core", "quantize", "deno.json"] : MAY[top] ?? [];
      if (other !== top && !allowed.includes(other)) {
        problems.push(`${name}: imports ${resolved}, which ${top}/ may not`);
      }
    } else {
      if (target.startsWith("npm:")) {
        const [, pkg, version] = /^npm:(@?[^@]+)@([^/]+)/.exec(target) ?? [undefined, target, ""];
        if (!isTest && top !== "tests") problems.push(`${name}: imports ${target}, which belongs in deno.json`);
        const known = testVersions.get(pkg) ?? version;
        testVersions.set(pkg, known);
        if (known !== version) problems.push(`${name}: imports ${pkg} ${version}, expected ${known} as elsewhere`);
      }
      const pkg = target.startsWith("@") ? target.split("/").slice(0, 2).join("/") : target.split("/")[0];
      const homes = CONFINED[pkg];
      if (homes && !isTest && top !== "tests" && top !== "scripts" && !homes.some((h) => name.startsWith(h))) {
        problems.push(`${name}: imports ${pkg}, which belongs in ${homes.join(", ")}`);
      }
    }
  }
  if (top !== "ffi" && !isTest && top !== "tests" && top !== "scripts" && /Deno\.(dlopen|Unsafe\w+)/.test(text)) {
    problems.push(`${name}: uses pointers outside ffi/`);
  }
  if (!["cli", "scripts", "tests"].includes(top) && !isTest && /^[^*\n]*\bconsole\.\w+\(/m.test(text)) {
    problems.push(`${name}: writes to the terminal outside cli/`);
  }
}

for (const top of Object.keys(MAY)) {
  try {
    if (top.endsWith(".ts")) await check(root + top);
    else for await (const path of sources(root + top)) await check(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
for (const circle of circles()) problems.push(`imports go in a circle: ${circle.join(" -> ")}`);
// `deno task` fetches all packages of the lock file, so it names none that only tests use.
const config = JSON.parse(await Deno.readTextFile(`${root}deno.json`)) as { imports: Record<string, string> };
const lock = JSON.parse(await Deno.readTextFile(`${root}deno.lock`)) as { specifiers: Record<string, string> };
for (const specifier of Object.keys(lock.specifiers)) {
  if (Object.values(config.imports).includes(specifier)) continue;
  problems.push(
    `deno.lock names ${specifier}, which deno.json does not: restore it, and test with --lock tests/deno.lock`,
  );
}
for (const p of problems) console.error(p);
console.log(`imports: ${n_files} files, ${problems.length} problems`);
if (problems.length > 0) Deno.exitCode = 1;
