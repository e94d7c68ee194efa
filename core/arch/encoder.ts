/**
 * What encoders share: embeddings of tokens, their types and positions.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import { embed, layerNorm } from "./decoder.ts";
import type { Spec } from "./architecture.ts";
import type { Keys } from "./keys.ts";

/** What an encoder's file must say of itself. @throws {ModelError} `model.key_value`, `model.key_type` */
export function wantEncoder(k: Keys): void {
  k.want(!k.bool("attention.causal", false), "attention.causal", true, "false: each token sees the whole text");
}

/**
 * Normed embeddings of the tokens, with those of types and positions where the file has them: `[n_embd, n_tok]`.
 * @param learned The model has a table of positions.
 */
export function embedText(op: Ops, s: Spec & { readonly norm_eps: number }, learned: boolean): T {
  const w = op.weights();
  let x = embed(op, s);
  const n_type = op.source.find("token_types.weight")?.ne[1] ?? 1;
  const types = w.opt("token_types", [s.n_embd, n_type]);
  if (types) {
    const type = op.derived({ name: "token_type", type: "i32", limit: n_type, row: (out, at) => out[at] = 0 }, []);
    x = op.add(x, op.get_rows(types, type));
  }
  if (learned) {
    const position = op.derived({
      name: "position",
      type: "i32",
      limit: s.n_ctx_train,
      row: (out, at, position) => out[at] = position,
    }, []);
    x = op.add(x, op.get_rows(w("position_embd", [s.n_embd, s.n_ctx_train]), position));
  }
  return layerNorm(op, w, "token_embd_norm", x, s.norm_eps);
}
