/**
 * What a repository of the Hub holds, and which of its files are the model that is asked for.
 * @module
 */
import { z } from "zod";
import { HubError, shortList } from "../core/errors.ts";
import { bodyText, get, type HubAccess, retrying } from "./endpoint.ts";

/** `OWNER/REPO[:QUANT]`, as llama.cpp has it. */
export interface RepositoryName {
  readonly repo: string;
  readonly quant?: string;
}

/** A file of a repository. */
export interface HubFile {
  readonly path: string;
  readonly size: number;
  /** What its bytes must hash to: SHA-256 of a large file, git's SHA-1 of a small one. */
  readonly hash: { readonly kind: "sha256" | "git"; readonly hex: string };
}

const WORD = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/;

/** @throws {HubError} `hub.name` */
export function parseRepository(text: string): RepositoryName {
  const m = /^([^/:]+)\/([^/:]+)(?::([^/:]+))?$/.exec(text);
  if (!m || !WORD.test(m[1]) || !WORD.test(m[2])) {
    throw new HubError("hub.name", `Cannot download "${text}": expected OWNER/REPO or OWNER/REPO:QUANT`, {
      at: { got: text },
      hint: "for example ggml-org/Qwen3-0.6B-GGUF:Q8_0",
    });
  }
  return { repo: `${m[1]}/${m[2]}`, ...(m[3] === undefined ? {} : { quant: m[3] }) };
}

const treeSchema = z.array(z.object({
  type: z.string(),
  path: z.string(),
  size: z.number().int().nonnegative().optional(),
  oid: z.string().optional(),
  lfs: z.object({ oid: z.string(), size: z.number().int().nonnegative() }).nullish(),
}));

/** A path that stays below the folder it is put in. */
export function isSafePath(path: string): boolean {
  return path.length <= 1024 &&
    path.split("/").every((part) => WORD.test(part) || /^[^\x00-\x1f\\/:*?"<>|]+$/.test(part)) &&
    !path.split("/").some((part) => part === "." || part === "..");
}

/** The answer of the tree route as files; GGUF files alone are of interest. @throws {HubError} `hub.answer` */
export function readTree(text: string, repo: string): HubFile[] {
  const bad = (why: string) =>
    new HubError("hub.answer", `Cannot read the Hub's list of files of ${repo}: ${why}`, {
      at: { repo },
      hint: "check --hf-endpoint: the address may be of another kind of server",
    });
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw bad("it is not JSON");
  }
  const tree = treeSchema.safeParse(json);
  if (!tree.success) throw bad(`${tree.error.issues[0].path.join(".")}: ${tree.error.issues[0].message}`);
  return tree.data.filter((e) => e.type === "file" && /\.gguf$/i.test(e.path)).map((entry): HubFile => {
    const { path, lfs } = entry;
    if (!isSafePath(path)) throw bad(`the path ${JSON.stringify(path)} leads out of the repository`);
    const hex = (lfs?.oid ?? entry.oid ?? "").toLowerCase().replace(/^sha256:/, "");
    if (!(lfs ? /^[0-9a-f]{64}$/ : /^[0-9a-f]{40}$/).test(hex)) throw bad(`${path} has no checksum`);
    const size = lfs?.size ?? entry.size;
    if (size === undefined) throw bad(`${path} has no size`);
    return { path, size, hash: { kind: lfs ? "sha256" : "git", hex } };
  });
}

/** The next page of a list, on the same host. */
function nextPage(response: Response, url: string): string | undefined {
  const link = /<([^>]+)>\s*;\s*rel="?next"?/.exec(response.headers.get("link") ?? "")?.[1];
  if (link === undefined || !URL.canParse(link, url)) return undefined;
  const next = new URL(link, url);
  return next.origin === new URL(url).origin ? next.href : undefined;
}

/** Pages of a list of files. */
const MAX_PAGES = 100;

/** All GGUF files of a repository. @throws {HubError} */
export async function listFiles(repo: string, revision: string, access: HubAccess): Promise<HubFile[]> {
  const files: HubFile[] = [];
  let url: string | undefined = `${access.endpoint}/api/models/${repo}/tree/${
    encodeURIComponent(revision)
  }?recursive=true`;
  for (let page = 0; url !== undefined && page < MAX_PAGES; page++) {
    const at: string = url;
    const { text, next } = await retrying(repo, access, async () => {
      const response = await get(at, repo, access);
      return { text: await bodyText(response, repo), next: nextPage(response, at) };
    });
    files.push(...readTree(text, repo));
    url = next;
  }
  return files;
}

/** The quantization that is taken where none is named. */
const DEFAULT_QUANT = "Q4_K_M";

const SHARD = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i;

/** Files that are no models by themselves: projectors of images, importance matrices. */
const OTHER = /(^|[/._-])(mmproj|imatrix)([._-]|$)/i;

/** The file's name holds the quantization as a word of its own: `model-Q4_0.gguf` is no `Q4`. */
function hasQuant(path: string, quant: string): boolean {
  const escaped = quant.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`(^|[/._-])${escaped}([./-]|$)`, "i").test(path);
}

/**
 * The files of a model: one, or a whole split set in its order.
 * @param wanted A quantization, or a file's path; neither: Q4_K_M, else the first file.
 * @throws {HubError} `hub.no_model` listing what there is, `hub.missing_shard`
 */
export function chooseFiles(
  repo: string,
  files: readonly HubFile[],
  wanted: { quant?: string | undefined; file?: string | undefined },
): HubFile[] {
  const models = files.filter((f) => !OTHER.test(f.path)).sort((a, b) => a.path < b.path ? -1 : 1);
  const firsts = models.filter((f) => Number(SHARD.exec(f.path)?.[2] ?? 1) === 1);
  const { quant, file } = wanted;
  const first = file !== undefined
    ? files.find((f) => f.path === file)
    : quant !== undefined
    ? firsts.find((f) => hasQuant(f.path, quant))
    : firsts.find((f) => hasQuant(f.path, DEFAULT_QUANT)) ?? firsts[0];
  if (first === undefined) {
    const what = file !== undefined
      ? `no file ${file}`
      : quant !== undefined
      ? `no file of type ${quant}`
      : "no GGUF file";
    throw new HubError("hub.no_model", `Cannot download a model of ${repo}: it has ${what}`, {
      at: { repo, files: firsts.map((f) => f.path) },
      hint: firsts.length === 0
        ? "look for a repository whose name ends in GGUF, or convert this one with bloomery prepare"
        : `it has ${shortList(firsts.map((f) => f.path))}`,
    });
  }
  const shard = SHARD.exec(first.path);
  if (!shard) return [first];
  const count = Number(shard[3]);
  const set = files.filter((f) => {
    const m = SHARD.exec(f.path);
    return m !== null && m[1] === shard[1] && m[3] === shard[3];
  }).sort((a, b) => a.path < b.path ? -1 : 1);
  const numbers = new Set(set.map((f) => Number(SHARD.exec(f.path)![2])));
  const missing = Array.from({ length: Math.min(count, 99999) }, (_, i) => i + 1).filter((n) => !numbers.has(n));
  if (missing.length > 0) {
    const names = missing.map((n) => `${shard[1]}-${String(n).padStart(5, "0")}-of-${shard[3]}.gguf`);
    throw new HubError(
      "hub.missing_shard",
      `Cannot download ${first.path} of ${repo}: the set lacks ${shortList(names)}`,
      {
        at: { repo, missing: names },
      },
    );
  }
  return set;
}
