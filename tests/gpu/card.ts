/**
 * Whether tests of a card can run here.
 * @module
 */
import { BloomeryError } from "../../core/errors.ts";
import { libraryPath, openNativeBackend } from "../../ffi/mod.ts";

let known: boolean | undefined;

/** This machine has the library and a card for it; says why not. */
export function hasCard(): boolean {
  return known ??= look();
}

function look(): boolean {
  const ignored = (why: string) => {
    console.error(`tests/gpu: ignored: ${why}`);
    return false;
  };
  if (libraryPath("cuda") === undefined) return ignored("there is no libbloomery_cuda in build/");
  try {
    using backend = openNativeBackend("cuda");
    return backend.devices.some((d) => d.kind === "cuda") || ignored("this machine has no CUDA card");
  } catch (error) {
    if (error instanceof BloomeryError) return ignored(error.message);
    throw error;
  }
}
