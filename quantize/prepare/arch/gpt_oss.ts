/**
 * gpt-oss: `gpt-oss`. Experts come as stacks with gate and up rows alternating, in bf16 (input dimension first) or as MXFP4
 * blocks with their scales beside them.
 * @module
 */
import type { Family } from "../family.ts";
import { pickRows, reshape, transpose, type View } from "../view.ts";
import { attentionRules, normRules, trunkRules } from "./llama.ts";

/** Every second row of each matrix, from row `first` on. */
function alternateRows(v: View, first: number): View {
  const rows = v.shape[v.shape.length - 2];
  const half = rows / 2;
  const shape = [...v.shape.slice(0, -2), half, v.shape[v.shape.length - 1]];
  return pickRows(v, shape, (r) => Math.floor(r / half) * rows + 2 * (r % half) + first);
}

/** Every second element of each row. */
function alternateColumns(v: View, first: number): View {
  const [n, columns] = v.shape;
  return reshape(alternateRows(reshape(v, [n, columns, 1]), first), [n, columns / 2]);
}

export const GPT_OSS: Family = {
  classes: ["GptOssForCausalLM"],
  arch: "gpt-oss",
  rules(r, c) {
    const n_expert = c.n_expert ?? 0;
    const n_ff = c.needInt("intermediate_size");
    const { n_embd } = c;
    trunkRules(r, c);
    normRules(r, c, "post_attention_norm");
    attentionRules(r, c, false);
    const at = "model.layers.{il}";
    r.exact(`${at}.self_attn.sinks`, "blk.{il}.attn_sinks.weight", { shape: [c.n_head] })
      .linear(`${at}.mlp.router`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, n_embd] });
    const halves = (v: View, il: number, suffix: string, half: (v: View, first: number) => View) => [
      { name: `blk.${il}.ffn_gate_exps.${suffix}`, view: half(v, 0) },
      { name: `blk.${il}.ffn_up_exps.${suffix}`, view: half(v, 1) },
    ];
    const experts = `${at}.mlp.experts`;
    r.exact(`${experts}.down_proj_bias`, "blk.{il}.ffn_down_exps.bias", { shape: [n_expert, n_embd] })
      .split(`${experts}.gate_up_proj_bias`, (v, il) => halves(v, il, "bias", alternateColumns), {
        shape: [n_expert, 2 * n_ff],
      })
      .exact(`${experts}.down_proj`, "blk.{il}.ffn_down_exps.weight", {
        shape: [n_expert, n_ff, n_embd],
        map: transpose,
        optional: true,
      })
      .split(`${experts}.gate_up_proj`, (v, il) => halves(transpose(v), il, "weight", alternateRows), {
        shape: [n_expert, n_embd, 2 * n_ff],
        optional: true,
      })
      // As MXFP4 the stacks are row-major already.
      .exact(`${experts}.down_proj.mxfp4`, "blk.{il}.ffn_down_exps.weight", {
        shape: [n_expert, n_embd, n_ff],
        optional: true,
        order: () => 0,
      })
      .split(`${experts}.gate_up_proj.mxfp4`, (v, il) => halves(v, il, "weight", alternateRows), {
        shape: [n_expert, 2 * n_ff, n_embd],
        optional: true,
        order: () => 0,
      })
      .need("blk.{il}.ffn_down_exps.weight", "blk.{il}.ffn_gate_exps.weight", "blk.{il}.ffn_up_exps.weight");
  },
  keys(k, c) {
    k.u32("attention.sliding_window", c.needInt("sliding_window"))
      .u32("expert_feed_forward_length", c.needInt("intermediate_size"));
  },
};
