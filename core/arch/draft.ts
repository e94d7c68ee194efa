/**
 * Draft (multi-token prediction) blocks as DeepSeek V3 has them: a layer whose input is the next token's embedding beside the
 * hidden row before the head. Source: DeepSeek-V3 Technical Report (arXiv 2412.19437) §2.2.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Spec } from "./architecture.ts";
import { embed, unembed } from "./decoder.ts";

/**
 * Declares every draft block of a file. Embedding and head are the model's unless the block has its own.
 * @param layer The decoder layer `il`, as the family builds it.
 */
export function draftBlocks(
  op: Ops,
  s: Spec & { readonly norm_eps: number },
  layer: (il: number, x: T) => T,
): void {
  for (let il = s.n_layer; il < s.n_layer + s.n_nextn; il++) {
    const w = op.weights(`blk.${il}.nextn`);
    const norm = (y: T, name: string) => op.rms_norm(y, w(name, [s.n_embd]), s.norm_eps);
    const e = w.has("embed_tokens") ? op.get_rows(w("embed_tokens", [s.n_embd, s.n_vocab]), op.tokens) : embed(op, s);
    // Nothing is run: the trunk's rows are stood for by the embeddings.
    const both = op.concat([norm(e, "enorm"), norm(e, "hnorm")]);
    const z = norm(
      op.out_rows(layer(il, op.mul_mat(w("eh_proj", [2 * s.n_embd, s.n_embd]), both))),
      "shared_head_norm",
    );
    if (w.has("shared_head_head")) op.mul_mat(w("shared_head_head", [s.n_embd, s.n_vocab]), z);
    else unembed(op, s, z);
  }
}
