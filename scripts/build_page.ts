/**
 * `deno task build` makes build/page.html of page/: one file with its script and its styles, so that a browser asks for nothing
 * else. esbuild does it, which `deno bundle` takes from npm.
 * @module
 */
import { gzipSync } from "node:zlib";

const root = new URL("../", import.meta.url).pathname;
/** Of page/style, in the order in which later ones win. */
const STYLES = ["base", "layout", "text", "messages", "views", "narrow"];
/** What goes over the wire. */
const MAX_PACKED = 150_000;

/** @throws where esbuild finds a mistake, or the page has become too large */
function bundle(entry: string): string {
  const { success, stdout, stderr } = new Deno.Command(Deno.execPath(), {
    args: ["bundle", "--quiet", "--no-lock", "--platform", "browser", "--minify", entry],
    cwd: root,
    stdout: "piped",
    stderr: "piped",
  }).outputSync();
  if (!success) throw new Error(`${entry}: ${new TextDecoder().decode(stderr)}`);
  return new TextDecoder().decode(stdout).trim();
}

/** Styles without what only their readers need. */
function smaller(css: string): string {
  return css.replace(/\/\*[^]*?\*\//g, "").replace(/\s+/g, " ").replace(/ ?([{};,]) ?/g, "$1").replace(/: /g, ":")
    .replaceAll(";}", "}").trim();
}

/** The whole page as one HTML text. */
export function pageText(): string {
  // Where these stand in texts of the script, HTML would take them for its own.
  const script = bundle("page/main.ts").replaceAll("<!--", "<\\!--").replace(/<\/(?=script)/gi, "<\\/");
  const styles = smaller(STYLES.map((name) => Deno.readTextFileSync(`${root}page/style/${name}.css`)).join(""));
  const html = Deno.readTextFileSync(`${root}page/index.html`).replace(/\n\s*/g, "\n");
  return html.replace("<style></style>", () => `<style>${styles}</style>`)
    .replace("<script></script>", () => `<script type="module">${script}</script>`);
}

if (import.meta.main) {
  const html = pageText(), packed = gzipSync(html, { level: 9 }).length;
  if (packed >= MAX_PACKED) throw new Error(`the page has ${packed} bytes packed, expected less than ${MAX_PACKED}`);
  Deno.mkdirSync(`${root}build`, { recursive: true });
  const partial = `${root}build/page.html.${Deno.pid}`;
  Deno.writeTextFileSync(partial, html);
  Deno.renameSync(partial, `${root}build/page.html`);
  console.log(`build/page.html: ${(html.length / 1000).toFixed(0)} kB, ${(packed / 1000).toFixed(0)} kB packed`);
}
