/**
 * Copies of a model's files on other drives. A text file named after the first file of the set, with `.shard-dirs` behind it, lists
 * folders, one a line, from its own folder on; each holds files of the same names and bytes. `#` begins a comment.
 * @module
 */
import { FormatError, UsageError } from "../errors.ts";

/** A file of the set. */
interface Shard {
  readonly path: string;
  readonly size: number;
  /** Bytes of its header. */
  readonly dataStart: number;
}

/** A file that holds the bytes of another. */
export interface FileCopy {
  readonly of: string;
  readonly copy: string;
}

function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/") + 1);
}

function readHead(path: string, n: number): Uint8Array {
  using file = Deno.openSync(path);
  const head = new Uint8Array(n);
  let at = 0;
  for (let got = 1; at < n && got > 0; at += got) got = file.readSync(head.subarray(at)) ?? 0;
  return head.subarray(0, at);
}

/** Refuses a copy that cannot be one. */
function check(shard: Shard, copy: string, sidecar: string): void {
  const refuse = (what: string, at: Record<string, unknown>): never => {
    throw new FormatError("format.shard_copy", `Cannot use ${copy} as a copy of ${shard.path}: ${what}`, {
      at: { file: copy, of: shard.path, sidecar, ...at },
      hint: `copy the file again, or take its folder out of ${sidecar}`,
    });
  };
  let size = 0;
  try {
    size = Deno.statSync(copy).size;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    refuse("it is not there", {});
  }
  if (size !== shard.size) refuse(`it has ${size} bytes, expected ${shard.size}`, { got: size, expected: shard.size });
  const want = readHead(shard.path, shard.dataStart), got = readHead(copy, shard.dataStart);
  const differs = want.findIndex((byte, i) => got[i] !== byte);
  if (differs >= 0) refuse(`its header differs at byte ${differs}`, { byte: differs });
}

/**
 * The copies that the sidecar of a set names; none where there is no sidecar.
 * @throws {FormatError} `format.shard_copy` when a copy is missing or has another size or header
 * @throws {UsageError} `usage.shard_dirs` when the sidecar names no folder
 */
export function shardCopies(shards: readonly Shard[]): FileCopy[] {
  const sidecar = `${shards[0].path}.shard-dirs`;
  let text: string;
  try {
    text = Deno.readTextFileSync(sidecar);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
  const folders = text.split("\n").map((line) => line.replace(/#.*/, "").trim()).filter((line) => line !== "");
  if (folders.length === 0) {
    throw new UsageError("usage.shard_dirs", `Cannot use ${sidecar}: it names no folder`, { at: { file: sidecar } });
  }
  return folders.flatMap((folder) => {
    const base = folder.startsWith("/") ? folder : folderOf(sidecar) + folder;
    return shards.map((shard) => {
      const copy = `${base.replace(/\/+$/, "")}/${shard.path.slice(folderOf(shard.path).length)}`;
      check(shard, copy, sidecar);
      return { of: shard.path, copy };
    });
  });
}
