/**
 * Files to be made: that they are no inputs, that the disk has room for them, that none is left of a failed run.
 * @module
 */
import { statfsSync } from "node:fs";
import { dirname } from "node:path";
import { QuantizeError, UsageError } from "../core/errors.ts";

/** The path without links, or undefined when there is no such file. */
export function realPath(path: string): string | undefined {
  try {
    return Deno.realPathSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/**
 * Refuses to write over an input.
 * @throws {UsageError} `usage.output_exists`
 */
export function refuseInputs(outputs: readonly string[], inputs: readonly string[]): void {
  const read = new Set(inputs.map(realPath));
  for (const path of outputs) {
    const real = realPath(path);
    if (real === undefined || !read.has(real)) continue;
    throw new UsageError("usage.output_exists", `Cannot write ${path}: it is an input`, {
      at: { file: path },
      hint: "choose another output",
    });
  }
}

/**
 * Refuses work whose output does not fit: hours of it should not end at a full disk.
 *
 * @param path The file to be made; its folder's file system is asked.
 * @param needed Bytes still to be written.
 * @throws {QuantizeError} `quantize.disk_full` naming needed and free bytes. A file system that does not say is let pass.
 */
export function refuseFullDisk(path: string, needed: number): void {
  let free: number;
  try {
    const fs = statfsSync(dirname(path));
    free = fs.bavail * fs.bsize;
  } catch {
    return;
  }
  if (free >= needed) return;
  throw new QuantizeError(
    "quantize.disk_full",
    `Cannot write ${path}: ${needed} bytes are needed, ${free} are free`,
    { at: { file: path, needed, free }, hint: "make room on the disk, or choose another folder" },
  );
}

export function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
