/**
 * Falcon H1: `falcon-h1`. Attention and Mamba 2 side by side in every block. The configuration's multipliers are worked into
 * the weights, since files have no keys for them.
 * @module
 */
import type { Config } from "../config.ts";
import type { Family } from "../family.ts";
import { f32View, mapF32, type View } from "../view.ts";
import { bytesOf, f32Of } from "../dtype.ts";
import { mambaKeys, mambaRules } from "./mamba.ts";

const AT = "model.layers.{il}";
const f = Math.fround;

/** Times a number, in f32. */
function times(...factors: readonly number[]): (v: View) => View {
  return (v) => mapF32(v, (x) => factors.reduce((y, factor) => f(y * f(factor)), x));
}

interface Sizes {
  readonly width: number;
  readonly n_group: number;
  readonly state: number;
  readonly n_head: number;
}

function sizes(c: Config): Sizes {
  return {
    width: c.int("mamba_d_ssm") ?? c.needInt("mamba_expand") * c.n_embd,
    n_group: c.needSize("mamba_n_groups"),
    state: c.needSize("mamba_d_state"),
    n_head: c.needSize("mamba_n_heads"),
  };
}

/** The projection into Mamba: rows of gate, input, B, C and time step have a multiplier each. */
function inputMap(c: Config): (v: View) => View {
  const { width, n_group, state, n_head } = sizes(c);
  const multipliers = c.nums("ssm_multipliers") ?? [1, 1, 1, 1, 1];
  const counts = [width, width, n_group * state, n_group * state, n_head];
  const byRow = counts.flatMap((n, i) => new Array<number>(n).fill(f(multipliers[i] ?? 1)));
  const first = f(c.num("ssm_in_multiplier") ?? 1);
  return (v) => {
    const n = v.shape[v.shape.length - 1];
    const source = f32View(v);
    return {
      ...source,
      locate: undefined,
      read(start, count) {
        const x = f32Of(source.read(start, count)).slice();
        for (let i = 0; i < count; i++) x[i] = f(f(x[i] * first) * byRow[Math.floor((start + i) / n)]);
        return bytesOf(x);
      },
    };
  };
}

export const FALCON_H1: Family = {
  classes: ["FalconH1ForCausalLM"],
  arch: "falcon-h1",
  rules(r, c) {
    const { n_embd, n_head, n_head_kv, head_dim } = c;
    const { width, n_group, state, n_head: n_ssm } = sizes(c);
    const num = (field: string) => c.num(field) ?? 1;
    const n_ff = c.needSize("intermediate_size");
    const [gate, down] = c.nums("mlp_multipliers") ?? [1, 1];
    const attention = num("attention_in_multiplier");
    const table = c.int("vocab_size") === undefined ? undefined : [c.needInt("vocab_size"), n_embd];
    r.weight("model.embed_tokens", "token_embd", { shape: table, map: times(num("embedding_multiplier")) })
      .weight("lm_head", "output", {
        shape: table,
        map: times(num("lm_head_multiplier")),
        optional: c.bool("tie_word_embeddings", false),
      })
      .weight("model.final_layernorm", "output_norm", { shape: [n_embd] })
      .weight(`${AT}.input_layernorm`, "blk.{il}.attn_norm", { shape: [n_embd] })
      .exact(`${AT}.pre_ff_layernorm.weight`, "blk.{il}.ffn_norm", { shape: [n_embd] }) // without .weight, as llama.cpp reads it
      .weight(`${AT}.feed_forward.gate_proj`, "blk.{il}.ffn_gate", { shape: [n_ff, n_embd], map: times(gate) })
      .weight(`${AT}.feed_forward.up_proj`, "blk.{il}.ffn_up", { shape: [n_ff, n_embd] })
      .weight(`${AT}.feed_forward.down_proj`, "blk.{il}.ffn_down", { shape: [n_embd, n_ff], map: times(down) })
      .weight(`${AT}.self_attn.q_proj`, "blk.{il}.attn_q", {
        shape: [n_head * head_dim, n_embd],
        map: times(attention),
      })
      .weight(`${AT}.self_attn.k_proj`, "blk.{il}.attn_k", {
        shape: [n_head_kv * head_dim, n_embd],
        map: times(num("key_multiplier"), attention),
      })
      .weight(`${AT}.self_attn.v_proj`, "blk.{il}.attn_v", {
        shape: [n_head_kv * head_dim, n_embd],
        map: times(attention),
      })
      .weight(`${AT}.self_attn.o_proj`, "blk.{il}.attn_output", {
        shape: [n_embd, n_head * head_dim],
        map: times(num("attention_out_multiplier")),
      });
    mambaRules(r, `${AT}.mamba`, undefined, n_group, { in: inputMap(c), out: times(num("ssm_out_multiplier")) });
    r.weight(`${AT}.mamba.in_proj`, "blk.{il}.ssm_in", {
      shape: [2 * width + 2 * n_group * state + n_ssm, n_embd],
      map: inputMap(c),
    });
  },
  keys(k, c) {
    const { width, n_group, state, n_head } = sizes(c);
    mambaKeys(k, { conv: c.needInt("mamba_d_conv"), state, n_group, width, n_head });
    k.u32("vocab_size", c.needInt("vocab_size"))
      .inOrder([
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "block_count",
        "ssm.conv_kernel",
        "ssm.inner_size",
        "ssm.state_size",
        "ssm.time_step_rank",
        "ssm.group_count",
        "attention.layer_norm_rms_epsilon",
        "general.file_type",
        "vocab_size",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.freq_base",
      ]);
  },
};
