/**
 * Models of the Hub: finds the files of a model, keeps them in a folder of the user's, fetches what is missing.
 *
 * The folder is `CACHE/OWNER/REPO/`, with the repository's own paths below it, and beside each file a note `FILE.json` with the
 * hash it was checked against: a file whose note agrees with the Hub's list is not read again.
 * @module
 */
import { dirname } from "node:path";
import { z } from "zod";
import { HubError, shortList } from "../core/errors.ts";
import { downloadFile, isWhole } from "./download.ts";
import { type HubAccess, hubAccess } from "./endpoint.ts";
import { chooseFiles, type HubFile, listFiles, parseRepository } from "./repository.ts";

export type { HubAccess } from "./endpoint.ts";
export type { HubFile } from "./repository.ts";

export interface PullOptions extends HubAccess {
  /** Folder of all downloaded models. */
  readonly cacheDir: string;
  /** A file of the repository, instead of a quantization. */
  readonly file?: string | undefined;
  /** No requests: what is there is used as it is. */
  readonly offline?: boolean;
  /** Bytes of all files that are there, those of earlier runs among them, and all. */
  readonly onProgress?: (p: { done: number; resumed: number; total: number }) => void;
  readonly onNote?: (text: string) => void;
}

export interface Pulled {
  /** The model: its file, or the first of its set. */
  readonly path: string;
  readonly paths: readonly string[];
  readonly bytes: number;
  /** Bytes that this run fetched. */
  readonly fetched: number;
}

const noteSchema = z.object({ kind: z.enum(["sha256", "git"]), hex: z.string(), size: z.number(), path: z.string() });

const notePath = (path: string) => `${path}.json`;

/** The note beside a file, or undefined where it says nothing of the file that is there. */
async function readNote(path: string): Promise<HubFile | undefined> {
  try {
    const note = noteSchema.safeParse(JSON.parse(await Deno.readTextFile(notePath(path))));
    if (!note.success || (await Deno.stat(path)).size !== note.data.size) return undefined;
    const { kind, hex, size } = note.data;
    return { path: note.data.path, size, hash: { kind, hex } };
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

async function writeNote(path: string, file: HubFile): Promise<void> {
  await Deno.writeTextFile(notePath(path), JSON.stringify({ ...file.hash, size: file.size, path: file.path }) + "\n");
}

/** The files of a repository that are whole on the disk. */
async function kept(folder: string): Promise<HubFile[]> {
  const files: HubFile[] = [];
  const visit = async (at: string): Promise<void> => {
    for await (const entry of Deno.readDir(at)) {
      const path = `${at}/${entry.name}`;
      if (entry.isDirectory) await visit(path);
      else if (/\.gguf$/i.test(entry.name)) {
        const note = await readNote(path);
        if (note && `${folder}/${note.path}` === path) files.push(note);
      }
    }
  };
  try {
    await visit(folder);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  return files;
}

/** The Hub's list, or what is kept where it cannot be asked. */
async function filesOf(repo: string, folder: string, options: PullOptions, access: HubAccess) {
  const none = (why: string, cause?: unknown) =>
    new HubError("hub.not_downloaded", `Cannot use ${repo}: ${why}, and nothing of it was downloaded before`, {
      at: { repo, folder },
      hint: "run the command once with a network",
      ...(cause === undefined ? {} : { cause }),
    });
  if (options.offline) {
    const files = await kept(folder);
    if (files.length === 0) throw none("--offline is given");
    return { files, local: true };
  }
  try {
    return { files: await listFiles(repo, "main", access), local: false };
  } catch (error) {
    if (!(error instanceof HubError) || error.code !== "hub.unreachable") throw error;
    const files = await kept(folder);
    if (files.length === 0) throw error;
    options.onNote?.(
      `the Hub cannot be reached; using what was downloaded before (${shortList(files.map((f) => f.path))})`,
    );
    return { files, local: true };
  }
}

/**
 * Makes sure that a model of the Hub is on the disk.
 * @param name `OWNER/REPO[:QUANT]`
 * @throws {HubError} `hub.*`; errors of the file system as they are
 */
export async function pullModel(name: string, options: PullOptions): Promise<Pulled> {
  const { repo, quant } = parseRepository(name);
  const access = hubAccess(options);
  const folder = `${options.cacheDir}/${repo}`;
  const { files, local } = await filesOf(repo, folder, options, access);
  const chosen = chooseFiles(repo, files, { quant, file: options.file });
  const total = chosen.reduce((n, f) => n + f.size, 0);
  const paths = chosen.map((f) => `${folder}/${f.path}`);
  let before = 0, resumedBefore = 0, fetched = 0;
  for (const [i, file] of chosen.entries()) {
    const path = paths[i];
    const note = await readNote(path);
    const there = note !== undefined && note.hash.hex === file.hash.hex;
    let resumed = file.size;
    if (!there && !local) {
      await Deno.mkdir(dirname(path), { recursive: true });
      const whole = await Deno.stat(path).then(() => isWhole(path, file, access.signal), () => false);
      if (!whole) {
        await downloadFile({
          url: `${access.endpoint}/${repo}/resolve/main/${file.path.split("/").map(encodeURIComponent).join("/")}`,
          file,
          path,
          access,
          onProgress: (p) => {
            resumed = p.resumed;
            options.onProgress?.({ done: before + p.done, resumed: resumedBefore + p.resumed, total });
          },
        });
        fetched += file.size - resumed;
      }
      await writeNote(path, file);
    }
    before += file.size;
    resumedBefore += resumed;
    options.onProgress?.({ done: before, resumed: resumedBefore, total });
  }
  return { path: paths[0], paths, bytes: total, fetched };
}

/** Where downloaded models lie: `bloomery/models` in the user's cache folder. */
export function defaultCacheDir(env: (name: string) => string | undefined): string {
  const base = env("XDG_CACHE_HOME") || (env("HOME") ? `${env("HOME")}/.cache` : undefined) || env("LOCALAPPDATA");
  if (base) return `${base}/bloomery/models`;
  throw new HubError("hub.cache", "Cannot choose a folder for downloads: neither XDG_CACHE_HOME nor HOME is set", {
    hint: "give --cache-dir DIR",
  });
}
