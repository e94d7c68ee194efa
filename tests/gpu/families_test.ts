/** Every architecture on a card. `deno task test:gpu`. */
import { libraryPath, openNativeBackend } from "../../ffi/mod.ts";
import { registerFamilyTests, registerTinyTests } from "../families.ts";

/** Whether this machine has the library and a card for it. */
function hasCard(): boolean {
  if (libraryPath("cuda") === undefined) return false;
  using backend = openNativeBackend("cuda");
  return backend.devices.some((d) => d.kind === "cuda");
}

const ignore = !hasCard();
registerFamilyTests("cuda", { ignore });
registerTinyTests("cuda", { ignore });
