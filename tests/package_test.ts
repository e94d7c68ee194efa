/**
 * The npm package, as somebody else uses it: packed, added to an empty folder with `deno add npm:…` from a registry that this
 * test plays, imported and run. The packages it depends on come from Deno's cache, where the tests themselves have put them.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import config from "../deno.json" with { type: "json" };
import { repoDir } from "./shared.ts";

const NAME = config.name;

async function run(args: string[], options: { cwd?: string; env?: Record<string, string> } = {}): Promise<string> {
  const out = await new Deno.Command(Deno.execPath(), {
    args,
    cwd: options.cwd ?? repoDir,
    env: { NO_COLOR: "1", ...options.env },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  assert.ok(out.success, `deno ${args.join(" ")}: ${text(out.stderr)}`);
  return text(out.stdout);
}

/** Folder of npm packages that Deno has fetched. */
async function npmCache(): Promise<string> {
  const info = JSON.parse(await run(["info", "--json"])) as { npmCache: string };
  return `${info.npmCache}/registry.npmjs.org`;
}

/** A tarball of a cached package, as a registry has it. */
async function tarballOf(folder: string): Promise<Uint8Array<ArrayBuffer>> {
  const { stdout, success } = await new Deno.Command("tar", {
    args: ["-czf", "-", "--transform", "s,^\\.,package,", "-C", folder, "."],
    stdout: "piped",
  }).output();
  assert.ok(success, folder);
  return stdout;
}

interface Version {
  readonly [field: string]: unknown;
}

/** Plays a registry that has `own` and what lies in Deno's cache. */
function registry(own: { manifest: Version; tarball: Uint8Array<ArrayBuffer> }, cache: string) {
  const tarballs = new Map<string, Uint8Array<ArrayBuffer>>();
  const put = (origin: string, path: string, bytes: Uint8Array<ArrayBuffer>) => {
    tarballs.set(path, bytes);
    const integrity = `sha512-${createHash("sha512").update(bytes).digest("base64")}`;
    return { tarball: `${origin}${path}`, integrity, shasum: createHash("sha1").update(bytes).digest("hex") };
  };
  const packument = async (origin: string, name: string) => {
    if (name === NAME) {
      const dist = put(origin, "/-/own.tgz", own.tarball);
      return {
        name,
        "dist-tags": { latest: config.version },
        versions: { [config.version]: { ...own.manifest, dist } },
      };
    }
    const known = JSON.parse(await Deno.readTextFile(`${cache}/${name}/registry.json`)) as {
      versions: Record<string, Version>;
    };
    const versions: Record<string, Version> = {};
    for (const entry of Deno.readDirSync(`${cache}/${name}`)) {
      if (!entry.isDirectory || !known.versions[entry.name]) continue;
      const dist = put(origin, `/-/${name}-${entry.name}.tgz`, await tarballOf(`${cache}/${name}/${entry.name}`));
      versions[entry.name] = { ...known.versions[entry.name], dist };
    }
    return { name, "dist-tags": { latest: Object.keys(versions)[0] }, versions };
  };
  return Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async (request) => {
    const { origin, pathname } = new URL(request.url);
    const path = decodeURIComponent(pathname);
    const tarball = tarballs.get(path);
    if (tarball) return new Response(tarball);
    try {
      return Response.json(await packument(origin, path.slice(1)));
    } catch {
      return new Response("not found", { status: 404 });
    }
  });
}

const MAIN = `
import { dequantizeRows, openModel, prepare, quantizeRows, type SamplingParams, UsageError } from "${NAME}";

const [checkpoint, path] = Deno.args;
await prepare(checkpoint, path, { outtype: "bf16" });
using opened = await openModel(path, { device: "cpu", n_ctx: 256 });
const sampling: Partial<SamplingParams> = { temperature: 0 };
let answer = "";
for await (const piece of opened.model.chat([{ role: "user", content: "What is 27 + 58?" }], { sampling })) {
  answer += piece.text;
}
console.log(answer.trim().split("\\n").at(-1));
const rows = Float32Array.from({ length: 64 }, (_, i) => i);
const back = await dequantizeRows("q8_0", await quantizeRows("q8_0", rows, 64), 64);
console.log(Math.abs(back[63] - 63) < 0.5);
await quantizeRows("nonesuch", rows, 64).catch((error) => console.log(error instanceof UsageError, error.code));
`;

Deno.test("the npm package is added to an empty folder, type-checked, imported and run", async () => {
  const folder = Deno.makeTempDirSync({ prefix: "bloomery-package-" });
  try {
    const packed = `${folder}/bloomery.tgz`;
    await run(["run", "-A", "scripts/pack.ts", packed]);
    const unpacked = `${folder}/unpacked`;
    Deno.mkdirSync(unpacked);
    assert.ok((await new Deno.Command("tar", { args: ["-xzf", packed, "-C", unpacked] }).output()).success);
    const manifest = JSON.parse(Deno.readTextFileSync(`${unpacked}/package/package.json`)) as Version;
    await using server = registry({ manifest, tarball: Deno.readFileSync(packed) }, await npmCache());
    const env = {
      NPM_CONFIG_REGISTRY: `http://127.0.0.1:${server.addr.port}/`,
      DENO_DIR: `${folder}/deno`, // as empty as the folder
      DENO_NO_UPDATE_CHECK: "1",
    };
    const cwd = `${folder}/project`;
    Deno.mkdirSync(cwd);
    Deno.writeTextFileSync(`${cwd}/deno.json`, "{}");
    await run(["add", `npm:${NAME}`], { cwd, env });
    Deno.writeTextFileSync(`${cwd}/main.ts`, MAIN);
    await run(["check", "main.ts"], { cwd, env });
    const wrong = MAIN.replace('quantizeRows("q8_0", rows, 64)', 'quantizeRows("q8_0", "rows", 64)');
    Deno.writeTextFileSync(`${cwd}/wrong.ts`, wrong);
    await assert.rejects(run(["check", "wrong.ts"], { cwd, env }), /not assignable to parameter of type 'Float32Array/);
    const out = await run(["run", "-A", "main.ts", `${repoDir}models/bloom-nano`, `${cwd}/model.gguf`], { cwd, env });
    assert.deepEqual(out.trim().split("\n"), ["27 + 58 = 85.", "true", "true usage.tensor_type"]);
    const version = await run(["run", "-A", `npm:${NAME}/cli`, "--version"], { cwd, env });
    assert.match(version, new RegExp(`^bloomery ${config.version.replaceAll(".", "\\.")} `));
    assert.match(version, /libbloomery_cpu: /);
    const holds = [...Deno.readDirSync(`${unpacked}/package`)].map((e) => e.name);
    assert.ok(!holds.includes("tests") && !holds.includes("models"), String(holds));
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
});
