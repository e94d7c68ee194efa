/** Every op on a card: against the reference backend, and rows by bits. `deno task test:gpu`. */
import { libraryPath, openNativeBackend } from "../../ffi/mod.ts";
import { registerOpTests } from "../ops/register.ts";

/** Whether this machine has the library and a card for it. */
function hasCard(): boolean {
  if (libraryPath("cuda") === undefined) return false;
  using backend = openNativeBackend("cuda");
  return backend.devices.some((d) => d.kind === "cuda");
}

registerOpTests("cuda", { ignore: !hasCard() });
