/**
 * What every safe handle over a native one needs: pointers with an end, statuses as errors, buffers.
 * @module
 */
import { NativeError } from "../core/errors.ts";
import { STATUS } from "./library.ts";

export const N_ERR = 512;

export function text(buffer: Uint8Array): string {
  const end = buffer.indexOf(0);
  return new TextDecoder().decode(buffer.subarray(0, end < 0 ? buffer.length : end));
}

export function check(status: number, err: Uint8Array, hint?: string): void {
  if (status === 0) return;
  throw new NativeError(
    STATUS[status] ?? "native.unknown",
    text(err) || `the native library returned status ${status}`,
    {
      at: { status },
      ...(hint === undefined ? {} : { hint }),
    },
  );
}

export function bytesOf(array: ArrayBufferView): Uint8Array<ArrayBuffer> {
  return new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
}

export function ne4(ne: readonly number[]): BigUint64Array<ArrayBuffer> {
  return BigUint64Array.from({ length: 4 }, (_, i) => BigInt(ne[i] ?? 1));
}

export function pointerFrom(out: BigUint64Array): Deno.PointerObject {
  const p = Deno.UnsafePointer.create(out[0]);
  if (p === null) throw new Error("a successful native call gave no handle");
  return p;
}

export function handles(items: readonly { address(): bigint }[]): BigUint64Array<ArrayBuffer> {
  return BigUint64Array.from(items, (item) => item.address());
}

/** A pointer with an end. */
export class Handle implements Disposable {
  #pointer: Deno.PointerObject | null;
  readonly #free: (p: Deno.PointerObject) => void;

  constructor(pointer: Deno.PointerObject, free: (p: Deno.PointerObject) => void) {
    this.#pointer = pointer;
    this.#free = free;
  }

  get pointer(): Deno.PointerObject {
    if (this.#pointer === null) throw new Error("a native handle was used after it was disposed");
    return this.#pointer;
  }

  address(): bigint {
    return BigInt(Deno.UnsafePointer.value(this.pointer));
  }

  [Symbol.dispose](): void {
    if (this.#pointer !== null) this.#free(this.#pointer);
    this.#pointer = null;
  }
}
