/**
 * Kimi K3 (`kimi-k3`). As kimi_linear.ts, except: a layer reads a weighted mean of the residual and of what it was at the start of
 * each block of layers, and the residual starts anew there; latent attention is gated; the experts work in a smaller space; SiTU
 * in place of SwiGLU.
 *
 * Kimi K3.1 has no public configuration. ASSUMPTION: a file of this architecture with `attention.indexer.*` is K3.1, whose latent
 * attention reads the rows that DeepSeek V3.2's indexer picks, without rotation.
 *
 * Source: llama.cpp's converter and graph of `kimi-k3`; Attention Residuals (arXiv 2603.15031). No public code of the vendor.
 * @module
 */
import type { Ops, T } from "../program/program.ts";
import type { Architecture } from "./architecture.ts";
import { embed, gatedFfn, head, linear } from "./decoder.ts";
import { kda } from "./delta.ts";
import { type IndexerSpec, indexRows, readIndexer } from "./indexer.ts";
import type { Keys } from "./keys.ts";
import { type KimiSpec, readKimi } from "./kimi_linear.ts";
import { mla } from "./mla.ts";
import { experts, route } from "./moe.ts";

interface KimiK3Spec extends KimiSpec {
  /** Width the routed experts work in. */
  readonly n_latent: number;
  /** Layers of a block: the residual starts anew at its first. */
  readonly n_block: number;
  readonly indexer: IndexerSpec | undefined;
}

function spec(k: Keys): KimiK3Spec {
  const act = { kind: "situ", a: k.f32("activation.situ_beta"), b: k.f32("activation.situ_linear_beta") } as const;
  k.want(act.a > 0, "activation.situ_beta", act.a, "above 0");
  const s = readKimi(k, { act }), n_block = k.u32("attn_res.block_size");
  k.want(n_block >= 1, "attn_res.block_size", n_block, "at least 1");
  const indexer = k.u32("attention.indexer.head_count", 0) > 0 ? readIndexer(k) : undefined;
  k.want(
    !indexer || s.q_lora_rank > 0,
    "attention.q_lora_rank",
    s.q_lora_rank,
    "at least 1: the indexer reads the query's latent",
  );
  return { ...s, n_latent: k.u32("expert_latent_length"), n_block, indexer };
}

/** The residual where blocks of layers started: `[n_embd, m, n_tok]`, and normed. */
interface Bank {
  readonly states: T;
  readonly normed: T;
}

function deposit(op: Ops, s: KimiK3Spec, bank: Bank | undefined, p: T): Bank {
  const states = bank ? op.concat([bank.states, p.heads(1)], 1) : p.heads(1);
  return { states, normed: op.rms_norm(states, undefined, s.norm_eps) };
}

/** The bank's states and the residual p, weighed by a softmax over what `score` sees in each of them normed: `[n_embd, n_tok]`. */
function mixed(op: Ops, s: KimiK3Spec, bank: Bank | undefined, p: T, score: T): T {
  if (!bank) return p;
  const m = bank.states.ne[1], seen = op.dot(op.rms_norm(p, undefined, s.norm_eps), score);
  const a = op.softmax(op.concat([op.dot(bank.normed, score).flat(), seen])); //           [m + 1, n_tok]
  return op.add(op.mix(bank.states, a.slice(0, m).heads(1)).flat(), op.mul(p, a.slice(m, 1)));
}

function attention(op: Ops, s: KimiK3Spec, il: number, x: T): T {
  const w = op.weights(`blk.${il}`);
  if (!s.latent[il]) return kda(op, w, s.kda, il, x);
  const gate = linear(op, w, "attn_gate", x, s.n_head * s.v_head_dim), { indexer } = s;
  return mla(op, w, s, il, x, {
    gate,
    ...(indexer ? { select: (latent) => ({ select: indexRows(op, w, indexer, il, { x, latent }) }) } : {}),
  });
}

function ffn(op: Ops, s: KimiK3Spec, il: number, x: T): T {
  const w = op.weights(`blk.${il}`), { moe, n_latent } = s;
  if (il < s.n_dense) return gatedFfn(op, w, x, s.n_ff, moe.act);
  const r = experts(op, w, moe, linear(op, w, "ffn_routed_down", x, n_latent), route(op, w, moe, x));
  const routed = linear(op, w, "ffn_routed_up", op.rms_norm(r, w("ffn_routed_norm", [n_latent]), s.norm_eps), s.n_embd);
  return op.add(routed, gatedFfn(op, w, x, s.n_ff_shexp, moe.act, "_shexp"));
}

function build(op: Ops, s: KimiK3Spec): T {
  let bank: Bank | undefined, p = embed(op, s); //                                         p [n_embd, n_tok]
  for (let il = 0; il < s.n_layer; il++) {
    const w = op.weights(`blk.${il}`), vector = (name: string) => w(name, [s.n_embd]), first = il % s.n_block === 0;
    const a = mixed(op, s, bank, p, vector("attn_res_score"));
    const y = attention(op, s, il, op.rms_norm(a, vector("attn_norm"), s.norm_eps));
    if (first) bank = deposit(op, s, bank, p);
    p = first ? y : op.add(p, y);
    const f = mixed(op, s, bank, p, vector("ffn_res_score"));
    p = op.add(p, ffn(op, s, il, op.rms_norm(f, vector("ffn_norm"), s.norm_eps)));
  }
  return head(op, s, mixed(op, s, bank, p, op.weights()("output_res_score", [s.n_embd])));
}

export const kimiK3: Architecture<KimiK3Spec> = { names: ["kimi-k3"], spec, build };
