import assert from "node:assert/strict";
import { numpyIntegers } from "./numpy_random.ts";

Deno.test("numpyIntegers() draws what numpy's default_rng draws", () => {
  // Made by numpy 2.4.6: numpy.random.default_rng(seed).integers(0, bound, 4).
  const samples: [seed: number, bound: bigint, drawn: bigint[]][] = [
    [0, 1099511627776n, [700346781657n, 296633628802n, 45050865998n, 18172327443n]],
    [10007, 5771822300910372n, [4751957234927804n, 300120777120540n, 2229859730581328n, 4587955721794132n]],
    [140098, 46539438283891n, [33858405369630n, 25755403400457n, 15460673601360n, 41309613242795n]],
    [2147483647, 4611686018427387909n, [
      1249094062061269403n,
      4306851037997560527n,
      2026456301986368028n,
      2972127270771753734n,
    ]],
  ];
  for (const [seed, bound, drawn] of samples) assert.deepEqual(numpyIntegers(seed, bound, 4), drawn);
  assert.throws(() => numpyIntegers(1, 10n, 1), /outside/);
});
