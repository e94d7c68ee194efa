/**
 * Weights on a device.
 * @module
 */
import type { TensorHandle } from "../core/program/backend.ts";
import { Handle } from "./handle.ts";
import type { Library } from "./library.ts";

export class NativeTensor extends Handle implements TensorHandle {
  constructor(readonly library: Library, pointer: Deno.PointerObject) {
    super(pointer, (p) => library.symbols.bl_tensor_free(p));
  }

  get deviceBytes(): number {
    return Number(this.library.symbols.bl_tensor_device_bytes(this.pointer));
  }
}
