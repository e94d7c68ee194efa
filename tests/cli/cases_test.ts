/**
 * Command lines with what they print, a folder each in `cases/`: `args` (a word a line), `stdin`, `env` (NAME=value lines), and the
 * expected `stdout`, `stderr` and `code`; what is missing is empty, or 0. `{MODEL}` is bloom-nano, `{DIR}` an empty folder, `{SHORT}` a
 * text. `{ANY}` in what is expected stands for any text within a line.
 */
import assert from "node:assert/strict";
import { bloomNano } from "../models.ts";
import { repoDir } from "../shared.ts";

const cases = `${repoDir}tests/cli/cases/`;

function read(path: string): string | undefined {
  try {
    return Deno.readTextFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** An expectation as an expression. */
function expected(text: string): RegExp {
  return new RegExp(`^${text.split("{ANY}").map(RegExp.escape).join("[^\\n]*")}$`);
}

async function run(name: string, dir: string): Promise<void> {
  const folder = `${cases}${name}/`;
  const model = await bloomNano("bf16");
  const short = `${dir}/short.txt`;
  Deno.writeTextFileSync(short, "The quick brown fox jumps over the lazy dog. ".repeat(1));
  const fill = (text: string) =>
    text.replaceAll("{MODEL}", model).replaceAll("{DIR}", dir).replaceAll("{SHORT}", short);
  const args = read(`${folder}args`)?.split("\n").slice(0, -1).map(fill);
  assert.ok(args, `${folder}args is missing`);
  const env = Object.fromEntries(
    fill(read(`${folder}env`) ?? "").split("\n").filter((l) => l !== "").map((line) => line.split(/=(.*)/s)),
  );
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args],
    cwd: dir,
    env: { NO_COLOR: "1", ...env },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(read(`${folder}stdin`) ?? "")).catch(() => {}); // it may end before it reads
  await writer.close().catch(() => {});
  const { code, stdout, stderr } = await child.output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  const all = `stdout: ${text(stdout)}\nstderr: ${text(stderr)}`;
  assert.match(text(stdout), expected(fill(read(`${folder}stdout`) ?? "")), all);
  assert.match(text(stderr), expected(fill(read(`${folder}stderr`) ?? "")), all);
  assert.equal(code, Number(read(`${folder}code`) ?? 0), all);
}

for (const { name } of [...Deno.readDirSync(cases)].sort((a, b) => a.name < b.name ? -1 : 1)) {
  Deno.test(`tests/cli/cases/${name}`, async () => {
    const dir = Deno.makeTempDirSync({ prefix: "bloomery-case-" });
    try {
      await run(name, dir);
    } finally {
      Deno.removeSync(dir, { recursive: true });
    }
  });
}
