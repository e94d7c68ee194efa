/** Layouts of early converters give what today's give. */
import assert from "node:assert/strict";
import { Metadata } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { GgufWriter } from "../core/gguf/write.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { familyPrompt } from "./families.ts";
import { FAMILY_MODELS, writeFamilyModel } from "./family_models.ts";
import { wholePrompt, withEngine } from "./logits_checks.ts";
import { testFolder } from "./models.ts";

/** An f32 tensor: shape, fastest first, and its numbers. */
interface Values {
  readonly ne: readonly number[];
  readonly data: Float32Array;
}

/** Writes a model's random file, and beside it the same file after `change`. */
async function twoFiles(
  name: string,
  change: (metadata: Metadata, tensors: Map<string, Values>) => void,
): Promise<{ now: string; before: string }> {
  const now = await writeFamilyModel(`${testFolder()}/now-${name}.gguf`, FAMILY_MODELS[name]);
  const before = `${testFolder()}/before-${name}.gguf`;
  using file = openGguf(now);
  const tensors = new Map(file.tensors.map((t): [string, Values] => {
    const bytes = file.readTensor(t).slice();
    return [t.name, { ne: t.ne, data: new Float32Array(bytes.buffer) }];
  }));
  const metadata = new Metadata(before, [...file.metadata.keys()].map((k) => [k, file.metadata.get(k)!]));
  change(metadata, tensors);
  const infos = [...tensors].map(([name, { ne }]) => ({ name, type: ggmlType("f32"), ne }));
  using writer = GgufWriter.create({ path: before, metadata, tensors: infos });
  [...tensors.values()].forEach(({ data }, i) => writer.writeTensor(i, new Uint8Array(data.buffer)));
  writer.finish();
  return { now, before };
}

async function sameLogits({ now, before }: { now: string; before: string }, name: string): Promise<void> {
  using backend = openReferenceBackend();
  const run = (path: string) =>
    withEngine(
      path,
      backend,
      { n_ctx: 128, cacheTypeK: "f32", cacheTypeV: "f32" },
      (engine) => wholePrompt(engine, familyPrompt(name, 40)),
    );
  const a = (await run(now)).full!, b = (await run(before)).full!;
  a.forEach((x, i) => assert.ok(Math.abs(x - b[i]) <= 1e-4, `logit ${i}: ${x} and ${b[i]}`));
}

/** Takes a tensor out. */
function take(tensors: Map<string, Values>, name: string): Values {
  const t = tensors.get(name)!;
  tensors.delete(name);
  return t;
}

Deno.test("deepseek2 with one attn_kv_b gives what attn_k_b and attn_v_b give", async () => {
  const name = "deepseek2, V3";
  const files = await twoFiles(name, (metadata, tensors) => {
    const a = "deepseek2.attention", u32 = (value: number) => ({ type: "u32", value }) as const;
    metadata.set(`${a}.head_count_kv`, u32(metadata.u32(`${a}.head_count`)));
    metadata.set(`${a}.key_length`, u32(metadata.u32(`${a}.key_length_mla`)));
    metadata.set(`${a}.value_length`, u32(metadata.u32(`${a}.value_length_mla`)));
    for (const kind of ["key", "value"]) metadata.remove(`${a}.${kind}_length_mla`);
    for (const prefix of [...tensors.keys()].flatMap((n) => /^(blk\.\d+\.)attn_k_b\./.exec(n)?.[1] ?? [])) {
      const k = take(tensors, `${prefix}attn_k_b.weight`), v = take(tensors, `${prefix}attn_v_b.weight`);
      const [n_nope, rank, H] = k.ne, n_v = v.ne[1], rows = n_nope + n_v, data = new Float32Array(rank * rows * H);
      for (let h = 0; h < H; h++) {
        for (let i = 0; i < rank * n_nope; i++) { // keys are stored transposed
          data[(h * rows + i % n_nope) * rank + Math.floor(i / n_nope)] = k.data[h * rank * n_nope + i];
        }
        data.set(v.data.subarray(h * rank * n_v, (h + 1) * rank * n_v), (h * rows + n_nope) * rank);
      }
      tensors.set(`${prefix}attn_kv_b.weight`, { ne: [rank, rows * H], data });
    }
  });
  await sameLogits(files, name);
});

Deno.test("qwen3next with one ssm_in gives what attn_qkv and attn_gate give", async () => {
  const name = "qwen3next";
  const files = await twoFiles(name, (metadata, tensors) => {
    const n_head_k = metadata.u32("qwen3next.ssm.group_count"), dk = metadata.u32("qwen3next.ssm.state_size");
    for (const prefix of [...tensors.keys()].flatMap((n) => /^(blk\.\d+\.)attn_qkv\./.exec(n)?.[1] ?? [])) {
      const qkv = take(tensors, `${prefix}attn_qkv.weight`), z = take(tensors, `${prefix}attn_gate.weight`);
      const [n_in, n_v] = z.ne, of_k = n_v / n_head_k, data: number[] = [];
      const rows = (t: Values, start: number, n: number) =>
        data.push(...t.data.subarray(start * n_in, (start + n) * n_in));
      for (let h = 0; h < n_head_k; h++) {
        rows(qkv, h * dk, dk);
        rows(qkv, (n_head_k + h) * dk, dk);
        rows(qkv, 2 * n_head_k * dk + h * of_k, of_k);
        rows(z, h * of_k, of_k);
      }
      tensors.set(`${prefix}ssm_in.weight`, { ne: [n_in, data.length / n_in], data: Float32Array.from(data) });
    }
  });
  await sameLogits(files, name);
});

/** Tensors one behind the other along their last axis but the experts'. */
function stacked(parts: readonly Values[]): Values {
  const [first] = parts, n_in = first.ne[0], n_expert = first.ne[2] ?? 1;
  const data: number[] = [];
  for (let e = 0; e < n_expert; e++) {
    for (const { data: from } of parts) {
      data.push(...from.subarray(e * from.length / n_expert, (e + 1) * from.length / n_expert));
    }
  }
  const rows = parts.reduce((sum, p) => sum + (p.ne[1] ?? p.ne[0]), 0);
  return { ne: first.ne.length === 1 ? [rows] : [n_in, rows, ...first.ne.slice(2)], data: Float32Array.from(data) };
}

Deno.test("qwen2 with one attn_qkv gives what three matrices with biases give", async () => {
  const files = await twoFiles("qwen2", (_, tensors) => {
    for (let il = 0; il < 2; il++) {
      for (const kind of ["weight", "bias"]) {
        const parts = ["q", "k", "v"].map((of) => take(tensors, `blk.${il}.attn_${of}.${kind}`));
        tensors.set(`blk.${il}.attn_qkv.${kind}`, stacked(parts));
      }
    }
  });
  await sameLogits(files, "qwen2");
});

Deno.test("qwen3moe with one ffn_gate_up_exps gives what two matrices an expert give", async () => {
  const files = await twoFiles("qwen3moe", (_, tensors) => {
    for (let il = 0; il < 2; il++) {
      const parts = ["gate", "up"].map((of) => take(tensors, `blk.${il}.ffn_${of}_exps.weight`));
      tensors.set(`blk.${il}.ffn_gate_up_exps.weight`, stacked(parts));
    }
  });
  await sameLogits(files, "qwen3moe");
});

Deno.test("qwen3moe with scales beside its matrices gives what scaled matrices give", async () => {
  const files = await twoFiles("qwen3moe", (metadata, tensors) => {
    const n_expert = metadata.u32("qwen3moe.expert_count");
    const divide = (name: string, scales: Float32Array) => {
      const { ne, data } = take(tensors, `${name}.weight`), each = data.length / scales.length;
      tensors.set(`${name}.weight`, { ne, data: data.map((x, i) => x / scales[Math.floor(i / each)]) });
      tensors.set(`${name}.scale`, { ne: [scales.length], data: scales });
    };
    divide("blk.0.attn_output", Float32Array.of(0.25));
    divide("blk.1.ffn_down_exps", Float32Array.from({ length: n_expert }, (_, e) => 2 ** (e - 2)));
    divide("blk.1.ffn_up_exps", Float32Array.from({ length: n_expert }, (_, e) => 1 + e));
  });
  await sameLogits(files, "qwen3moe");
});
