/**
 * What llama, qwen3 and qwen3moe share: the hyper-parameters of a pre-norm decoder with grouped-query attention, and the
 * feed-forward blocks.
 * @module
 */
import { ModelError } from "../errors.ts";
import type { T } from "../program/program.ts";
import type { Ops } from "../program/program.ts";
import type { LayerStreams, ModelFile, Spec, TensorWant, Weights } from "./architecture.ts";
import { readRope, type Rope } from "./rope.ts";

export interface DecoderSpec extends Spec {
  readonly n_ff: number;
  /** Width of one routed expert. */
  readonly n_ff_exp: number;
  readonly norm_eps: number;
  readonly rope: Rope;
  /** Factor on q k; `head_dim^-0.5` unless the file says otherwise. */
  readonly attn_scale: number;
}

function refuse(file: ModelFile, key: string, got: unknown, expected: string): never {
  throw new ModelError(
    "model.key_value",
    `Cannot use key "${key}" of ${file.name}: found ${got}, expected ${expected}`,
    {
      at: { file: file.name, key, got, expected },
    },
  );
}

/**
 * Reads and checks `{arch}.*`.
 * @throws {ModelError} `model.missing_key`, `model.key_type`, `model.key_value`, `model.missing_tensor`
 */
export function readDecoderSpec(file: ModelFile, arch: string): DecoderSpec {
  const m = file.metadata;
  const u32 = (key: string, fallback?: number) =>
    fallback === undefined ? m.u32(`${arch}.${key}`) : m.u32(`${arch}.${key}`, fallback);
  const n_layer = u32("block_count");
  const n_embd = u32("embedding_length");
  const uniform = (key: string, values: number[]) => {
    const odd = values.find((v) => v !== values[0]);
    if (odd !== undefined) refuse(file, `${arch}.${key}`, `${values[0]} and ${odd}`, "the same number for every layer");
    return values[0];
  };
  if (n_layer < 1 || n_layer > 4096) refuse(file, `${arch}.block_count`, n_layer, "1 to 4096");
  if (n_embd < 1) refuse(file, `${arch}.embedding_length`, n_embd, "at least 1");
  const n_head = uniform("attention.head_count", m.perLayer(`${arch}.attention.head_count`, n_layer));
  const n_head_kv = uniform(
    "attention.head_count_kv",
    m.perLayer(`${arch}.attention.head_count_kv`, n_layer, new Array<number>(n_layer).fill(n_head)),
  );
  if (!(n_head >= 1)) refuse(file, `${arch}.attention.head_count`, n_head, "at least 1");
  if (!(n_head_kv >= 1) || n_head % n_head_kv !== 0) {
    refuse(file, `${arch}.attention.head_count_kv`, n_head_kv, `a divisor of head_count ${n_head}`);
  }
  const head_dim = u32("attention.key_length", Math.floor(n_embd / n_head));
  const head_dim_v = u32("attention.value_length", Math.floor(n_embd / n_head));
  const n_rot = u32("rope.dimension_count", head_dim);
  if (n_rot < 2 || n_rot % 2 !== 0 || n_rot > head_dim) {
    refuse(file, `${arch}.rope.dimension_count`, n_rot, `an even number up to the head's ${head_dim}`);
  }
  const n_expert = u32("expert_count", 0);
  const n_expert_used = n_expert > 0 ? u32("expert_used_count") : 0;
  if (n_expert > 0 && (n_expert_used < 1 || n_expert_used > n_expert)) {
    refuse(file, `${arch}.expert_used_count`, n_expert_used, `1 to expert_count ${n_expert}`);
  }
  const n_ff = uniform(
    "feed_forward_length",
    n_expert > 0
      ? m.perLayer(`${arch}.feed_forward_length`, n_layer, new Array<number>(n_layer).fill(0))
      : m.perLayer(`${arch}.feed_forward_length`, n_layer),
  );
  return {
    arch,
    n_layer,
    n_embd,
    n_vocab: file.tensor("token_embd.weight").ne[1] ?? 1,
    n_ctx_train: u32("context_length"),
    n_head,
    n_head_kv,
    head_dim,
    head_dim_v,
    n_ff,
    n_ff_exp: n_expert > 0 ? u32("expert_feed_forward_length", n_ff) : 0,
    n_expert,
    n_expert_used,
    norm_eps: m.f32(`${arch}.attention.layer_norm_rms_epsilon`),
    rope: readRope(file, arch, n_rot),
    attn_scale: m.f32(`${arch}.attention.scale`, 0) || head_dim ** -0.5,
  };
}

/** Embedding, final norm and head; the head is tied to the embedding when `output.weight` is absent. */
export function endTensors(s: DecoderSpec): TensorWant[] {
  return [
    { name: "token_embd.weight", ne: [s.n_embd, s.n_vocab] },
    { name: "output_norm.weight", ne: [s.n_embd] },
    { name: "output.weight", ne: [s.n_embd, s.n_vocab], optional: true },
  ];
}

/** Projections of grouped-query attention and the two norms of a layer. */
export function attentionTensors(s: DecoderSpec, il: number): TensorWant[] {
  const b = `blk.${il}`;
  return [
    { name: `${b}.attn_norm.weight`, ne: [s.n_embd] },
    { name: `${b}.attn_q.weight`, ne: [s.n_embd, s.n_head * s.head_dim] },
    { name: `${b}.attn_k.weight`, ne: [s.n_embd, s.n_head_kv * s.head_dim] },
    { name: `${b}.attn_v.weight`, ne: [s.n_embd, s.n_head_kv * s.head_dim_v] },
    { name: `${b}.attn_output.weight`, ne: [s.n_head * s.head_dim_v, s.n_embd] },
    { name: `${b}.ffn_norm.weight`, ne: [s.n_embd] },
  ];
}

export function denseTensors(s: DecoderSpec, il: number): TensorWant[] {
  const b = `blk.${il}`;
  return [
    { name: `${b}.ffn_gate.weight`, ne: [s.n_embd, s.n_ff] },
    { name: `${b}.ffn_up.weight`, ne: [s.n_embd, s.n_ff] },
    { name: `${b}.ffn_down.weight`, ne: [s.n_ff, s.n_embd] },
  ];
}

export function expertTensors(s: DecoderSpec, il: number): TensorWant[] {
  const b = `blk.${il}`;
  return [
    { name: `${b}.ffn_gate_inp.weight`, ne: [s.n_embd, s.n_expert] },
    { name: `${b}.ffn_gate_exps.weight`, ne: [s.n_embd, s.n_ff_exp, s.n_expert] },
    { name: `${b}.ffn_up_exps.weight`, ne: [s.n_embd, s.n_ff_exp, s.n_expert] },
    { name: `${b}.ffn_down_exps.weight`, ne: [s.n_ff_exp, s.n_embd, s.n_expert] },
  ];
}

export function decoderStreams(s: DecoderSpec): LayerStreams[] {
  return Array.from({ length: s.n_layer }, () => ({ k: s.n_head_kv * s.head_dim, v: s.n_head_kv * s.head_dim_v }));
}

/** `x Wᵀ`, plus the bias where the file has one. */
export function linear(op: Ops, w: Weights, name: string, x: T): T {
  const y = op.mul_mat(w(`${name}.weight`), x);
  const bias = w.optional(`${name}.bias`);
  return bias ? op.add(y, bias) : y;
}

/** SwiGLU: `down(silu(gate x) * up x)`. */
export function denseFfn(op: Ops, w: Weights, il: number, f: T): T {
  const b = `blk.${il}`;
  const gate = linear(op, w, `${b}.ffn_gate`, f);
  const up = linear(op, w, `${b}.ffn_up`, f);
  return linear(op, w, `${b}.ffn_down`, op.silu_mul(gate, up));
}

/** Softmax over all experts, the best k renormalised, each expert a SwiGLU. */
export function expertFfn(op: Ops, w: Weights, s: DecoderSpec, il: number, f: T): T {
  const b = `blk.${il}`;
  const { ids, weights } = op.router(op.mul_mat(w(`${b}.ffn_gate_inp.weight`), f), s.n_expert_used, {
    score: "softmax",
    renorm: true,
  });
  const gate = op.mul_mat_id(w(`${b}.ffn_gate_exps.weight`), f, ids);
  const up = op.mul_mat_id(w(`${b}.ffn_up_exps.weight`), f, ids);
  const y = op.mul_mat_id(w(`${b}.ffn_down_exps.weight`), op.silu_mul(gate, up), ids);
  return op.expert_sum(y, weights);
}

/** Final norm of the wanted rows, and the head. */
export function head(op: Ops, w: Weights, s: DecoderSpec, x: T): T {
  const rows = op.rms_norm(op.out_rows(x), w("output_norm.weight"), s.norm_eps);
  return op.mul_mat(w.optional("output.weight") ?? w("token_embd.weight"), rows);
}
