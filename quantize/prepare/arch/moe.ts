/**
 * Routers, experts and draft blocks, under the names that most families share.
 * @module
 */
import type { Config } from "../config.ts";
import type { FamilyOptions } from "../family.ts";
import type { Output, Rules } from "../rules.ts";
import { reshape, sliceRows, type View } from "../view.ts";

export interface ExpertOptions {
  /** Blocks that have experts; all where left out. */
  blocks?: (il: number) => boolean;
  /** Width of one expert; `moe_intermediate_size` where left out. */
  n_ff?: number;
  /** Width that experts take and give; that of the model where left out. */
  n_in?: number;
  /** Their parent's name in the checkpoint. */
  at?: string;
  /** Experts may be absent here, because they may be stored in another form. */
  optional?: boolean;
  /** Order in the file, by block. */
  fileOrder?: (il: number) => number;
  /** Names of gate, down and up in the checkpoint, in the order they come in the file. */
  order?: readonly ("gate" | "down" | "up")[];
  /** What gate, down and up are called in the checkpoint. */
  names?: Readonly<Record<"gate" | "down" | "up", string>>;
}

export const PROJ = { gate: "gate_proj", down: "down_proj", up: "up_proj" } as const;
export const W123 = { gate: "w1", down: "w2", up: "w3" } as const;
const MLP = "model.layers.{il}.mlp";

/** The router, and the bias on its choice where there is one. */
export function routerRules(r: Rules, c: Config, options: ExpertOptions = {}, name = "gate"): void {
  const { at = MLP } = options;
  const n_expert = c.n_expert ?? 0;
  const blocks = options.blocks ? { blocks: options.blocks } : {};
  r.weight(`${at}.${name}`, "blk.{il}.ffn_gate_inp", { shape: [n_expert, c.n_embd], ...blocks });
  const bias = { shape: [n_expert], optional: true };
  r.exact(`${at}.${name}.e_score_correction.bias`, "blk.{il}.exp_probs_b.bias", bias)
    .exact(`${at}.e_score_correction.bias`, "blk.{il}.exp_probs_b.bias", bias);
}

/** Experts stored one by one. */
export function expertRules(r: Rules, c: Config, options: ExpertOptions = {}): void {
  const { at = MLP, order = ["down", "gate", "up"], names = PROJ, n_in = c.n_embd } = options;
  const n_ff = options.n_ff ?? c.needInt("moe_intermediate_size");
  r.experts(
    `${at}.experts.{e}.{w}.weight`,
    c.n_expert ?? 0,
    order.map((w) => [names[w], `blk.{il}.ffn_${w}_exps.weight`, w === "down" ? [n_in, n_ff] : [n_ff, n_in]] as const),
    {
      optional: options.optional ?? false,
      ...options.blocks ? { blocks: options.blocks } : {},
      ...options.fileOrder ? { order: options.fileOrder } : {},
    },
  );
}

/** Experts stored as stacks, gate and up in one tensor, gate rows first. */
export function stackedExpertRules(r: Rules, c: Config, options: ExpertOptions & { fused?: boolean } = {}): void {
  const { at = MLP } = options;
  const n_ff = options.n_ff ?? c.needInt("moe_intermediate_size");
  const n_expert = c.n_expert ?? 0;
  const halves = (v: View, il: number): Output[] => [
    { name: `blk.${il}.ffn_gate_exps.weight`, view: sliceRows(v, 0, n_ff) },
    { name: `blk.${il}.ffn_up_exps.weight`, view: sliceRows(v, n_ff, n_ff) },
  ];
  for (const suffix of ["", ".weight"]) {
    const optional = true; // one of the two spellings, or the experts one by one
    r.exact(`${at}.experts.down_proj${suffix}`, "blk.{il}.ffn_down_exps.weight", {
      shape: [n_expert, c.n_embd, n_ff],
      optional,
    });
    const both = { shape: [n_expert, 2 * n_ff, c.n_embd], optional };
    if (options.fused) r.exact(`${at}.experts.gate_up_proj${suffix}`, "blk.{il}.ffn_gate_up_exps.weight", both);
    else r.split(`${at}.experts.gate_up_proj${suffix}`, halves, both);
  }
}

/** The feed-forward that every token takes besides its experts. */
export function sharedExpertRules(r: Rules, c: Config, name: string, n_ff: number, options: ExpertOptions = {}): void {
  const { at = MLP } = options;
  const blocks = options.blocks ? { blocks: options.blocks } : {};
  r.weight(`${at}.${name}.gate_proj`, "blk.{il}.ffn_gate_shexp", { shape: [n_ff, c.n_embd], ...blocks })
    .weight(`${at}.${name}.up_proj`, "blk.{il}.ffn_up_shexp", { shape: [n_ff, c.n_embd], ...blocks })
    .weight(`${at}.${name}.down_proj`, "blk.{il}.ffn_down_shexp", { shape: [c.n_embd, n_ff], ...blocks });
}

/** The gate on the output of Qwen's shared expert. */
export function sharedGateRule(r: Rules, c: Config): void {
  r.weight(`${MLP}.shared_expert_gate`, "blk.{il}.ffn_gate_inp_shexp", {
    shape: [1, c.n_embd],
    map: (v) => reshape(v, [1, c.n_embd]),
  });
}

/** What a draft block has besides a block's own tensors. `norm` is what the family does to its norms. */
export function draftRules(r: Rules, norm: (v: View) => View = (v) => v): void {
  const at = "model.layers.{il}";
  const optional = true;
  for (
    const [from, to] of [
      ["eh_proj", "eh_proj"],
      ["enorm", "enorm"],
      ["hnorm", "hnorm"],
      ["embed_tokens", "embed_tokens"],
      ["shared_head.norm", "shared_head_norm"],
      ["shared_head.head", "shared_head_head"],
    ]
  ) r.weight(`${at}.${from}`, `blk.{il}.nextn.${to}`, to.endsWith("norm") ? { optional, map: norm } : { optional });
}

/** Block of a checkpoint name such as `model.layers.3.mlp...`, or -1. */
export function blockOf(name: string): number {
  const m = /^model\.layers\.(\d+)\./.exec(name);
  return m ? Number(m[1]) : -1;
}

/** Leaves out blocks after the model's own unless drafts are wanted. */
export function withDrafts(name: string, c: Config, options: FamilyOptions): string | undefined {
  return !options.mtp && blockOf(name) >= c.n_layer ? undefined : name;
}
