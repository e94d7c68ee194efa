/**
 * The models that a router knows: files of a folder, and those that a preset file describes.
 * @module
 */
import { UsageError } from "../../core/errors.ts";
import { osHint, osReason } from "../../core/os_error.ts";
import { parseShardName } from "../../core/gguf/read.ts";

/** A model that can be started. */
export interface CatalogEntry {
  readonly id: string;
  readonly aliases: readonly string[];
  /** Of the first file. */
  readonly path: string;
  /** Flags of its own, as words of a command line. */
  readonly args: readonly string[];
  /** Started with the router. */
  readonly loadOnStartup: boolean;
}

function unreadable(path: string, cause: unknown): UsageError {
  const hint = osHint(cause);
  return new UsageError("usage.models", `Cannot read models from ${path}: ${osReason(cause)}`, {
    at: { path },
    ...(hint === undefined ? {} : { hint }),
    cause,
  });
}

/** Whether a file is a model, or the first of several; companions of pictures are none. */
function isFirst(name: string): boolean {
  return /\.gguf$/i.test(name) && !/^mmproj/i.test(name) && (parseShardName(name)?.no ?? 0) === 0;
}

/** A file's name without its end and the numbers of a split set. */
function nameOf(path: string): string {
  const name = path.replace(/^.*[/\\]/, "");
  return (parseShardName(name)?.prefix ?? name.replace(/\.gguf$/i, "")).replace(/^.*[/\\]/, "");
}

function modelsOf(dir: string, depth: number): string[] {
  const found: string[] = [];
  let entries: Deno.DirEntry[];
  try {
    entries = [...Deno.readDirSync(dir)].sort((a, b) => a.name < b.name ? -1 : 1);
  } catch (cause) {
    throw unreadable(dir, cause);
  }
  for (const { name } of entries) {
    const path = `${dir.replace(/\/+$/, "")}/${name}`;
    let info: Deno.FileInfo;
    try {
      info = Deno.statSync(path); // a link is what it points to
    } catch {
      continue; // a link to nowhere
    }
    if (info.isDirectory && depth > 0) found.push(...modelsOf(path, depth - 1));
    else if (info.isFile && isFirst(name)) found.push(path);
  }
  return found;
}

/**
 * Models of a folder and the folders in it. Two of one name are told apart by their folder.
 * @throws {UsageError} `usage.models`
 */
export function modelsInFolder(dir: string, depth = 4): CatalogEntry[] {
  const paths = modelsOf(dir, depth), names = paths.map(nameOf);
  return paths.map((path, i) => {
    const folder = path.split(/[/\\]/).at(-2) ?? "";
    const id = names.indexOf(names[i]) === names.lastIndexOf(names[i]) ? names[i] : `${folder}/${names[i]}`;
    return { id, aliases: [], path, args: [], loadOnStartup: false };
  });
}

/**
 * Models of a preset file, as llama-server has them: sections of `key = value`, the name of a section is the model's. Keys are flags
 * without their dashes; those of `[*]` hold for all. `load-on-startup` and `alias` are the router's own.
 * @throws {UsageError} `usage.models`
 */
export function modelsOfPreset(path: string): CatalogEntry[] {
  let text: string;
  try {
    text = Deno.readTextFileSync(path);
  } catch (cause) {
    throw unreadable(path, cause);
  }
  return parsePreset(text, path);
}

/** @throws {UsageError} `usage.models` */
export function parsePreset(text: string, path: string): CatalogEntry[] {
  const sections = new Map<string, Map<string, string>>();
  let section: Map<string, string> | undefined;
  const refuse = (line: number, what: string) =>
    new UsageError("usage.models", `Cannot read models from ${path}, line ${line}: ${what}`, {
      at: { path, line },
      hint: "write [NAME], and below it lines such as model = FILE and ctx-size = 8192",
    });
  text.split(/\r?\n/).forEach((raw, i) => {
    const line = raw.trim();
    if (line === "" || line.startsWith("#") || line.startsWith(";")) return;
    const name = /^\[(.+)\]$/.exec(line)?.[1].trim();
    if (name !== undefined) {
      if (sections.has(name)) throw refuse(i + 1, `the section [${name}] is there twice`);
      sections.set(name, section = new Map());
      return;
    }
    const m = /^([A-Za-z][\w-]*)\s*=\s*(.*)$/.exec(line);
    if (m === null) throw refuse(i + 1, `found "${line}"`);
    if (section === undefined) throw refuse(i + 1, "no [section] stands before it");
    section.set(m[1], m[2].replace(/^"(.*)"$/, "$1"));
  });
  const shared = sections.get("*") ?? new Map<string, string>();
  sections.delete("*");
  return [...sections].map(([id, own]) => {
    const keys = new Map([...shared, ...own]);
    const take = (...names: string[]) => {
      const found = names.map((n) => keys.get(n)).find((v) => v !== undefined);
      for (const n of names) keys.delete(n);
      return found;
    };
    const model = take("model", "m"), alias = take("alias", "a"), startup = take("load-on-startup");
    if (model === undefined) {
      throw new UsageError("usage.models", `Cannot read models from ${path}: [${id}] names no model`, {
        at: { path, section: id },
        hint: "give it a line model = FILE",
      });
    }
    const args = [...keys].flatMap(([key, value]) => {
      const flag = key.length <= 3 ? `-${key}` : `--${key}`;
      return value === "true" || value === "" ? [flag] : value === "false" ? [`--no-${key}`] : [flag, value];
    });
    const aliases = alias?.split(",").map((a) => a.trim()).filter((a) => a !== "") ?? [];
    return { id, aliases, path: model, args, loadOnStartup: startup === "true" || startup === "1" };
  });
}
