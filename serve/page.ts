/**
 * The page at `/`: one file without anything from elsewhere, or the files of a folder that the operator names. No key is asked for:
 * what the page shows comes from the other routes.
 * @module
 */
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { ApiError } from "./errors.ts";

/** Answers GET for the page's addresses; undefined for an address that is none of its. */
export interface Page {
  /**
   * Answers a GET, or gives undefined.
   * @param path Behind the prefix of all routes; begins with a slash.
   */
  answer(request: { readonly headers: Headers }, path: string): Promise<Response | undefined> | Response | undefined;
}

/** Folders that may hold the built page: the build folder, beside the bundle. */
function folders(): string[] {
  const here = import.meta.dirname;
  return here === undefined ? [] : [`${here}/../build`, here];
}

/** The page that is part of the program. It is read at its first use. */
export class OwnPage implements Page {
  #built: { html: Uint8Array<ArrayBuffer>; gzip: Uint8Array<ArrayBuffer>; headers: Record<string, string> } | undefined;

  /** The page, packed where the browser takes that. */
  answer({ headers }: { readonly headers: Headers }, path: string): Response | undefined {
    if (path !== "/" && path !== "/index.html") return undefined;
    const { html, gzip, headers: own } = this.#built ??= readPage();
    if (headers.get("if-none-match") === own.etag) return new Response(null, { status: 304, headers: own });
    if (!/\bgzip\b/.test(headers.get("accept-encoding") ?? "")) return new Response(html, { headers: own });
    return new Response(gzip, { headers: { ...own, "content-encoding": "gzip" } });
  }
}

/** @throws ApiError 404 `page_missing` where the program was built without it */
function readPage() {
  for (const folder of folders()) {
    let html: Uint8Array<ArrayBuffer>;
    try {
      html = Deno.readFileSync(`${folder}/page.html`);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) continue;
      throw error;
    }
    return {
      html,
      gzip: new Uint8Array(gzipSync(html, { level: 9 })),
      headers: {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policyOf(new TextDecoder().decode(html)),
        "cache-control": "no-cache",
        etag: `"${createHash("sha256").update(html).digest("base64url").slice(0, 22)}"`,
        "referrer-policy": "no-referrer",
        vary: "accept-encoding",
        "x-content-type-options": "nosniff",
      },
    };
  }
  throw new ApiError(404, "not_found_error", "page_missing", "The page of this program was not built", {
    hint: "build it with `deno task build`, or start the server with --no-ui",
  });
}

/** Only the page's own script and styles, named by their hashes; it talks to this server alone. */
function policyOf(html: string): string {
  const hashes = (tag: string) =>
    [...html.matchAll(new RegExp(`<${tag}(?: type="module")?>([^]*?)</${tag}>`, "g"))]
      .map(([, text]) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`).join(" ");
  return [
    "default-src 'none'",
    `script-src ${hashes("script")}`,
    `style-src ${hashes("style")}`,
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
}

const TYPES: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  gif: "image/gif",
  html: "text/html; charset=utf-8",
  ico: "image/x-icon",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  js: "text/javascript; charset=utf-8",
  json: "application/json; charset=utf-8",
  map: "application/json; charset=utf-8",
  md: "text/plain; charset=utf-8",
  mjs: "text/javascript; charset=utf-8",
  png: "image/png",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
  wasm: "application/wasm",
  webmanifest: "application/manifest+json",
  webp: "image/webp",
  woff: "font/woff",
  woff2: "font/woff2",
};

/** The files of a folder, as `--path` names it. Whatever lies outside of it is not found, links that lead there included. */
export class FolderPage implements Page {
  readonly #root: string;

  /**
   * Takes a folder.
   * @param root It exists.
   */
  constructor(root: string) {
    this.#root = Deno.realPathSync(root);
  }

  /** A file of the folder. */
  async answer(_: { readonly headers: Headers }, path: string): Promise<Response | undefined> {
    let name: string;
    try {
      name = decodeURIComponent(path);
    } catch {
      return undefined;
    }
    if (!name.startsWith("/") || name.includes("\0") || name.includes("\\")) return undefined;
    const file = await this.#find(`${this.#root}${name}`);
    if (file === undefined) return undefined;
    const type = TYPES[/\.([^./]+)$/.exec(file)?.[1].toLowerCase() ?? ""] ?? "application/octet-stream";
    return new Response(await Deno.readFile(file), {
      headers: { "content-type": type, "cache-control": "no-cache", "x-content-type-options": "nosniff" },
    });
  }

  /** A file within the folder; of a folder its index.html. */
  async #find(path: string): Promise<string | undefined> {
    try {
      let real = await Deno.realPath(path);
      if ((await Deno.stat(real)).isDirectory) real = await Deno.realPath(`${real}/index.html`);
      const inside = real.startsWith(this.#root === "/" ? "/" : `${this.#root}/`);
      return inside && (await Deno.stat(real)).isFile ? real : undefined;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) return undefined;
      throw error;
    }
  }
}
