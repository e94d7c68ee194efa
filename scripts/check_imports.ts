/**
 * Checks the direction of imports: `cli -> serve | eval | quantize -> core <- ffi`, no circles among modules, npm packages each
 * in the modules that may know them, packages for tests in no lock file but theirs, and pointers in ffi/ only. Part of `deno task ok`.
 * @module
 */

const root = new URL("../", import.meta.url).pathname;

/** Folders each folder may import from, besides itself. `ffi` for the composition points only. */
const MAY: Readonly<Record<string, readonly string[]>> = {
  core: [],
  ffi: ["core"],
  quantize: ["core"],
  eval: ["core"],
  serve: ["core"],
  cli: ["core", "ffi", "quantize", "eval", "serve"],
  "mod.ts": ["core", "ffi", "quantize", "eval", "serve"],
  scripts: ["core", "ffi", "quantize", "eval", "serve", "cli", "deno.json", "tests"],
  tests: ["core", "ffi", "quantize", "eval", "serve", "cli", "mod.ts", "deno.json", "scripts"],
};

/** Packages confined to one module or folder; tests and scripts may use any. */
const CONFINED: Readonly<Record<string, readonly string[]>> = {
  commander: ["cli/parse.ts"],
  "cli-progress": ["cli/progress.ts"],
  hono: ["serve/"],
  "prom-client": ["serve/"],
  zod: ["serve/"],
  "@huggingface/jinja": ["core/chat/jinja/"],
};

/** Circles that are still there, each by one of its modules. Remove a line with its circle; add none. */
const CIRCLES_LEFT = new Set(["core/chat/reasoning.ts", "serve/constraint.ts"]);

async function* sources(folder: string): AsyncGenerator<string> {
  for await (const entry of Deno.readDir(folder)) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory) yield* sources(path);
    else if (/\.tsx?$/.test(entry.name)) yield path;
  }
}

const problems: string[] = [];
/** Modules that each module imports, types included. */
const imports = new Map<string, string[]>();
/** Packages that only tests use, with their versions. */
const testVersions = new Map<string, string>();
let n_files = 0;

async function check(path: string): Promise<void> {
  n_files++;
  const name = path.slice(root.length).replace(/^\/+/, "");
  const isTest = name.endsWith("_test.ts") || /(^|\/)_testing/.test(name);
  const top = name.split("/")[0];
  const text = await Deno.readTextFile(path);
  const own: string[] = [];
  imports.set(name, own);
  for (const match of text.matchAll(/(?:from|import)\s*\(?\s*["']([^"']+)["']/g)) {
    const target = match[1];
    if (target.startsWith(".")) {
      const resolved = new URL(target, `file://${path}`).pathname.slice(root.length);
      const other = resolved.split("/")[0];
      own.push(resolved);
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

/** Sets of modules that reach each other, by Tarjan's algorithm. */
function circles(): string[][] {
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const found: string[][] = [];
  const visit = (name: string) => {
    order.set(name, order.size);
    low.set(name, order.get(name)!);
    stack.push(name);
    for (const other of imports.get(name) ?? []) {
      if (!order.has(other)) {
        visit(other);
        low.set(name, Math.min(low.get(name)!, low.get(other)!));
      } else if (stack.includes(other)) low.set(name, Math.min(low.get(name)!, order.get(other)!));
    }
    if (low.get(name) !== order.get(name)) return;
    const circle = stack.splice(stack.indexOf(name));
    if (circle.length > 1) found.push(circle.sort());
  };
  for (const name of imports.keys()) if (!order.has(name)) visit(name);
  return found;
}

for (const top of Object.keys(MAY)) {
  try {
    if (top.endsWith(".ts")) await check(root + top);
    else for await (const path of sources(root + top)) await check(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
// `deno task` fetches all packages of the lock file, so it names none that only tests use.
const config = JSON.parse(await Deno.readTextFile(`${root}deno.json`)) as { imports: Record<string, string> };
const lock = JSON.parse(await Deno.readTextFile(`${root}deno.lock`)) as { specifiers: Record<string, string> };
for (const specifier of Object.keys(lock.specifiers)) {
  if (Object.values(config.imports).includes(specifier)) continue;
  problems.push(
    `deno.lock names ${specifier}, which deno.json does not: restore it, and test with --lock tests/deno.lock`,
  );
}
for (const circle of circles()) {
  if (!circle.some((name) => CIRCLES_LEFT.has(name))) problems.push(`these import each other: ${circle.join(", ")}`);
}
for (const p of problems) console.error(p);
console.log(`imports: ${n_files} files, ${problems.length} problems`);
if (problems.length > 0) Deno.exitCode = 1;
