/**
 * EXAONE 4: `exaone4`. Norms after the halves of a block and on each head; windows on some blocks of the larger model.
 * @module
 */
import type { Family } from "../family.ts";
import { attentionRules, denseRules, LLAMA, trunkRules } from "./llama.ts";
import { postNormRules, windowKeys } from "./olmo.ts";
import { headNormRules } from "./qwen.ts";

export const EXAONE4: Family = {
  classes: ["Exaone4ForCausalLM"],
  arch: "exaone4",
  rules(r, c) {
    trunkRules(r, c);
    postNormRules(r, c);
    attentionRules(r, c, false);
    headNormRules(r, c);
    denseRules(r, c);
  },
  keys(k, c) {
    k.u32("vocab_size", c.needInt("vocab_size"));
    windowKeys(k, c);
  },
  extra: LLAMA.extra!,
};
