/**
 * Checks of output files: they must not be inputs, the disk must have room for them, and a failed run must leave none.
 * @module
 */
import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import { QuantizeError, UsageError } from "../core/errors.ts";
import { partialPath, unwritable } from "../core/gguf/write.ts";

/**
 * The path without links, or undefined when there is no such file.
 * @throws {FormatError} `format.unwritable` when its folder cannot be read.
 */
export function realPath(path: string): string | undefined {
  try {
    return Deno.realPathSync(path);
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound) return undefined;
    throw unwritable(path, cause);
  }
}

/**
 * Refuses to write over an input, also with the partial file, and to what is no file.
 * @throws {UsageError} `usage.output_exists`, `usage.output`
 */
export function refuseOutputs(outputs: readonly string[], inputs: readonly string[]): void {
  const read = new Set(inputs.map(identity));
  const isInput = (path: string) => {
    const id = identity(path);
    return id !== undefined && read.has(id);
  };
  for (const path of outputs) {
    refuseNoFile(path);
    if (isInput(path)) {
      throw new UsageError("usage.output_exists", `Cannot write ${path}: it is an input`, {
        at: { file: path },
        hint: "choose another output",
      });
    }
    const partial = partialPath(path);
    if (!isInput(partial)) continue;
    throw new UsageError(
      "usage.output_exists",
      `Cannot write ${path}: until it is whole it is called ${partial}, which is an input`,
      { at: { file: path, input: partial }, hint: "choose another output, or rename the input" },
    );
  }
}

/** The same for all names of a file, links of both kinds included; undefined when there is no such file. */
function identity(path: string): string | undefined {
  const real = realPath(path);
  if (real === undefined) return undefined;
  const { dev, ino, size, mtime } = Deno.statSync(real);
  // Some file systems do not number their files, and some use a number twice.
  return ino ? JSON.stringify([dev, ino, size, mtime]) : real;
}

/**
 * Refuses folders, and devices such as /dev/null: a finished file takes the place of what has its name.
 * @throws {UsageError} `usage.output`
 */
export function refuseNoFile(path: string): void {
  const real = realPath(path);
  if (real === undefined) return;
  const { isFile, isDirectory } = Deno.statSync(real);
  if (isFile) return;
  throw new UsageError(
    "usage.output",
    `Cannot write ${path}: it is ${isDirectory ? "a folder" : "a device or a pipe"}`,
    {
      at: { file: path },
      hint: "give the name of the file to make",
    },
  );
}

/**
 * Refuses work whose output does not fit: hours of it should not end at a full disk. What an earlier run has left of the
 * partial files is kept or written over, so its bytes are there already.
 *
 * @param paths The files to be made; the file system of the first one's folder is asked.
 * @param bytes Of all of them, when they are whole.
 * @throws {QuantizeError} `quantize.disk_full` naming needed and free bytes. A file system that does not say how much is free passes.
 */
export function refuseFullDisk(paths: readonly string[], bytes: number): void {
  const [path] = paths;
  let free: number;
  try {
    const fs = statfsSync(dirname(path));
    free = fs.bavail * fs.bsize;
  } catch {
    return;
  }
  const needed = paths.reduce((n, p) => n - sizeIfThere(partialPath(p)), bytes);
  if (free >= needed) return;
  throw new QuantizeError(
    "quantize.disk_full",
    `Cannot write ${path}: ${needed} bytes are needed, ${free} are free`,
    { at: { file: path, needed, free }, hint: "make room on the disk, or choose another folder" },
  );
}

/**
 * Renames complete files from their partial names. The first file, which opens a set, is renamed last.
 * @throws {FormatError} `format.unwritable`; all are under their partial names again then.
 */
export function nameAll(paths: readonly string[]): void {
  const named: string[] = [];
  for (const path of paths.toReversed()) {
    try {
      Deno.renameSync(partialPath(path), path);
    } catch (cause) {
      for (const done of named) Deno.renameSync(done, partialPath(done));
      throw unwritable(path, cause);
    }
    named.push(path);
  }
}

/**
 * Writes a small text so that either all of it is there or what was there before.
 * @throws {FormatError} `format.unwritable`
 */
export function replaceText(path: string, text: string): void {
  const next = path + ".next";
  try {
    Deno.writeTextFileSync(next, text);
    Deno.renameSync(next, path);
  } catch (cause) {
    removeIfThere(next);
    throw unwritable(path, cause);
  }
}

export function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

function sizeIfThere(path: string): number {
  try {
    return Deno.statSync(path).size;
  } catch {
    return 0;
  }
}
