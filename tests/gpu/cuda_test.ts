/** The CUDA library on bloom-nano: what the CPU library must show, on a card. `deno task test:gpu`. */
import { libraryPath, openNativeBackend } from "../../ffi/mod.ts";
import { registerNativeTests } from "../native_checks.ts";

/** Whether this machine has the library and a card for it. */
function hasCard(): boolean {
  if (libraryPath("cuda") === undefined) return false;
  using backend = openNativeBackend("cuda");
  return backend.devices.some((d) => d.kind === "cuda");
}

const ignore = !hasCard();
if (ignore) console.error("tests/gpu: ignored: no libbloomery_cuda in build/, or no CUDA card here");
registerNativeTests("cuda", { ignore });
