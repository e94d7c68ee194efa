/**
 * `deno task pack [FILE]`: the library and the command line as an npm package, `dist/bloomery-VERSION.tgz`, for Deno. The package
 * has the JavaScript and types of every module, the page, the CPU library of this platform, and the native sources, which
 * `deno run -A npm:@bloomery/bloomery/build` compiles on other platforms and for cards.
 * @module
 */
import config from "../deno.json" with { type: "json" };

const root = new URL("../", import.meta.url).pathname;

function run(args: string[]): void {
  const { success, stderr } = new Deno.Command(Deno.execPath(), { args, cwd: root, stdout: "piped", stderr: "piped" })
    .outputSync();
  if (success) return;
  console.error(new TextDecoder().decode(stderr));
  console.error(`pack: deno ${args[0]} failed`);
  Deno.exit(1);
}

const out = Deno.args[0] ?? `${root}dist/bloomery-${config.version}.tgz`;
if (Deno.args.length === 0) Deno.mkdirSync(`${root}dist`, { recursive: true });
run(["run", "-A", "scripts/build_page.ts"]);
run(["run", "-A", "scripts/build_native.ts", "--only", "cpu"]);
run(["pack", "--quiet", "--allow-dirty", "--no-source-maps", "-o", out]);
console.log(`${out}: ${(Deno.statSync(out).size / 1e6).toFixed(2)} MB`);
