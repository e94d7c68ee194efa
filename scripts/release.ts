/**
 * `deno task release`: the one-file build as a tarball with its sha256 sum, in dist/.
 * @module
 */
import { createHash } from "node:crypto";
import config from "../deno.json" with { type: "json" };

const root = new URL("../", import.meta.url).pathname;

function run(command: string, args: string[]): void {
  const { success } = new Deno.Command(command, { args, cwd: root, stdout: "inherit", stderr: "inherit" }).outputSync();
  if (!success) {
    console.error(`release: ${command} ${args[0]} failed`);
    Deno.exit(1);
  }
}

run(Deno.execPath(), ["run", "-A", "scripts/compile.ts"]);
const name = `bloomery-${config.version}-${Deno.build.os}-${Deno.build.arch}`;
const folder = `${root}dist/${name}`;
Deno.mkdirSync(folder, { recursive: true });
Deno.copyFileSync(`${root}dist/bloomery`, `${folder}/bloomery`);
for (const file of ["README.md", "LICENSE", "CHANGELOG.md"]) Deno.copyFileSync(root + file, `${folder}/${file}`);
for (const file of ["bloomery.service", "Dockerfile"]) {
  Deno.copyFileSync(`${root}packaging/${file}`, `${folder}/${file}`);
}
run("tar", ["-C", "dist", "-czf", `dist/${name}.tar.gz`, name]);
Deno.removeSync(folder, { recursive: true });
const sum = createHash("sha256").update(Deno.readFileSync(`${root}dist/${name}.tar.gz`)).digest("hex");
Deno.writeTextFileSync(`${root}dist/SHA256SUMS`, `${sum}  ${name}.tar.gz\n`);
console.log(`dist/${name}.tar.gz: ${sum}`);
