/** Every op on a card: against the reference backend, rows by bits. */
import { libraryPath, openNativeBackend } from "../../ffi/mod.ts";
import { registerOpTests } from "../ops/register.ts";

function hasCard(): boolean {
  if (libraryPath("cuda") === undefined) return false;
  using backend = openNativeBackend("cuda");
  return backend.devices.some((d) => d.kind === "cuda");
}

registerOpTests("cuda", {
  ignore: !hasCard(),
  // Tensor cores take the probabilities as halves: 11 bits of each.
  bound: (c) => /^ATTENTION (f16|q8_0)/.test(c.name) ? 1e-6 : 0,
});
