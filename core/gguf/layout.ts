/**
 * Sizes of tensors in a GGUF file, with the overflow checks that hostile files make necessary.
 * @module
 */
import { FormatError } from "../errors.ts";
import type { GgmlType } from "./types.ts";

/** `general.alignment` when a file does not say. */
export const DEFAULT_ALIGNMENT = 32;
/** Dimensions a tensor may have. */
export const MAX_DIMS = 4;
/** Bytes of a tensor name, exclusive: ggml keeps names in 64 bytes with a terminator. */
export const MAX_NAME = 64;

/** `n` rounded up to a multiple of `alignment`. */
export function alignUp(n: number, alignment: number): number {
  return Math.ceil(n / alignment) * alignment;
}

/** Dimensions without trailing ones, at least one: how ggml writes them, whatever was read. */
export function trimDims(ne: readonly number[]): number[] {
  let n = ne.length;
  while (n > 1 && ne[n - 1] === 1) n--;
  return ne.slice(0, n);
}

/** Elements of a tensor. */
export function elementCount(ne: readonly number[]): number {
  return ne.reduce((a, b) => a * b, 1);
}

/**
 * Bytes of a tensor's data.
 *
 * @param at File and tensor, for errors.
 * @param ne Fastest first.
 * @throws {FormatError} `format.tensor_shape`: more than four dimensions, one that is not a positive integer, a size
 * that overflows, or a row that is not whole blocks.
 */
export function tensorBytes(at: { file: string; tensor: string }, type: GgmlType, ne: readonly number[]): number {
  const fail = (found: string, hint?: string) =>
    new FormatError("format.tensor_shape", `Cannot use tensor "${at.tensor}" of ${at.file}: ${found}`, {
      at: { ...at, type: type.name, ne },
      ...(hint === undefined ? {} : { hint }),
    });
  if (ne.length < 1 || ne.length > MAX_DIMS) throw fail(`it has ${ne.length} dimensions, expected 1 to ${MAX_DIMS}`);
  let elements = 1;
  for (const n of ne) {
    if (!(n >= 1)) throw fail(`shape [${ne}] has a dimension of ${n}, expected at least 1`);
    elements *= n;
  }
  const bytes = (elements / type.block) * type.bytes;
  if (!(elements <= Number.MAX_SAFE_INTEGER && bytes <= Number.MAX_SAFE_INTEGER)) {
    throw fail(`size overflows, shape [${ne}] of ${type.name} is about ${bytes.toExponential(2)} bytes`);
  }
  if (ne[0] % type.block !== 0) {
    throw fail(
      `a row of ${ne[0]} elements is not a multiple of the ${type.block} elements in a block of ${type.name}`,
      "the file was written wrongly: convert or quantize the model again",
    );
  }
  return bytes;
}
