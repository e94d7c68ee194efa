/** Every op on a card: against the reference backend, and rows by bits. `deno task test:gpu`. */
import { registerOpTests } from "../ops/register.ts";
import { hasCard } from "./card.ts";

registerOpTests("cuda", {
  ignore: !hasCard(),
  // Tensor cores take the probabilities as halves: 11 bits of each.
  bound: (c) => /^ATTENTION (f16|q8_0)/.test(c.name) ? 1e-6 : 0,
  // The engine refuses to collect on a card.
  without: (c) => c.collects === true,
  // Products with quantized weights are whole numbers, added in one order: an answer does not depend on where a weight lies.
  same: (c) => /^MUL_MAT/.test(c.name) && !/ (f32|f16|bf16) |same expert/.test(c.name),
});
