import assert from "node:assert/strict";
import { GGML_TYPES, ggmlType } from "../core/gguf/types.ts";
import { cardPays, encodesFasterOnCard } from "./card_types.ts";
import type { QuantizePlan } from "./plan.ts";

Deno.test("encodesFasterOnCard() names the encoders that search", () => {
  const names = (weighted: boolean) => GGML_TYPES.filter((t) => encodesFasterOnCard(t, weighted)).map((t) => t.name);
  const legacy = ["q4_0", "q4_1", "q5_0", "q5_1"];
  for (const name of ["q4_K", "q6_K", "iq1_s", "iq3_xxs", "iq4_nl"]) assert(names(false).includes(name), name);
  for (const name of ["f16", "q8_0", "tq1_0", "mxfp4", ...legacy]) assert(!names(false).includes(name), name);
  assert.deepEqual(names(true).filter((name) => !names(false).includes(name)), legacy);
});

Deno.test("cardPays() counts what is to be encoded by a search", () => {
  const plan = (type: string, sourceBytes: number, convert = true) =>
    ({ tensors: [{ type: ggmlType(type), sourceBytes, convert, importance: undefined }] }) as unknown as QuantizePlan;
  assert(cardPays(plan("q4_K", 2e9)));
  assert(!cardPays(plan("q4_K", 2e8)));
  assert(!cardPays(plan("q4_K", 2e9, false)));
  assert(!cardPays(plan("q8_0", 2e9)));
});
