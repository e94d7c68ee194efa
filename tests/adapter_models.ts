/**
 * Random low-rank adapters of a model file, and the model that such an adapter would become if it were merged into the weights.
 * @module
 */
import { GgufWriter } from "../core/gguf/write.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { random } from "./ops/case.ts";

const F32 = ggmlType("f32");

export interface AdapterOptions {
  readonly rank?: number;
  readonly alpha?: number;
  readonly seed?: number;
  /** Which weights it changes. */
  readonly of?: RegExp;
  /** Keys that are written as well, or instead. */
  readonly keys?: Readonly<Record<string, string>>;
}

const MATRICES = /(attn_(q|k|v|output|qkv)|ffn_(gate|up|down)(_exps)?|^output|^token_embd)\.weight$/;

/** Numbers of an adapter's matrix; they depend on its name and the seed only. */
function numbers(name: string, n: number, seed: number): Float32Array {
  const next = random(seed, name);
  return Float32Array.from({ length: n }, () => 0.4 * (next() - 0.5));
}

/** Shapes of A and B; a table of rows has them the other way round. */
function shapes(name: string, ne: readonly number[], rank: number): { a: number[]; b: number[] } {
  if (name === "token_embd.weight") return { a: [rank, ne[1]], b: [rank, ne[0]] };
  return { a: [ne[0], rank, ...ne.slice(2)], b: [rank, ne[1] ?? 1, ...ne.slice(2)] };
}

/** Writes an adapter of every matrix of a model that `of` names; returns its path. */
export function writeAdapter(path: string, model: string, options: AdapterOptions = {}): string {
  const { rank = 4, alpha = 6, seed = 1, of = MATRICES } = options;
  using file = openGguf(model);
  const arch = file.metadata.str("general.architecture");
  const metadata = new Metadata(path, [
    ["general.type", ggufValue.str("adapter")],
    ["adapter.type", ggufValue.str("lora")],
    ["general.architecture", ggufValue.str(arch)],
    ["adapter.lora.alpha", ggufValue.f32(alpha)],
  ]);
  for (const [key, value] of Object.entries(options.keys ?? {})) metadata.set(key, ggufValue.str(value));
  const tensors = file.tensors.filter((t) => of.test(t.name)).flatMap((t) => {
    const { a, b } = shapes(t.name, t.ne, rank);
    return [{ name: `${t.name}.lora_a`, type: F32, ne: a }, { name: `${t.name}.lora_b`, type: F32, ne: b }];
  });
  using writer = GgufWriter.create({ path, metadata, tensors });
  for (const [i, t] of tensors.entries()) {
    const values = numbers(t.name, t.ne.reduce((x, y) => x * y, 1), seed);
    writer.writeTensor(i, new Uint8Array(values.buffer));
  }
  writer.finish();
  return path;
}

/** Writes the f32 model whose weights are `W + scale (alpha / rank) B A`; returns its path. */
export function writeMerged(
  path: string,
  model: string,
  adapters: readonly (AdapterOptions & { readonly scale: number })[],
): string {
  using file = openGguf(model);
  using writer = GgufWriter.create({ path, metadata: file.metadata, tensors: file.tensors });
  for (const [i, t] of file.tensors.entries()) {
    const bytes = file.readTensor(t).slice();
    if (t.type === F32) {
      const w = new Float32Array(bytes.buffer);
      for (const { rank = 4, alpha = 6, seed = 1, of = MATRICES, scale } of adapters) {
        if (!of.test(t.name)) continue;
        const { a: na, b: nb } = shapes(t.name, t.ne, rank), table = t.name === "token_embd.weight";
        const n = (ne: readonly number[]) => ne.reduce((x, y) => x * y, 1);
        const a = numbers(`${t.name}.lora_a`, n(na), seed), b = numbers(`${t.name}.lora_b`, n(nb), seed);
        const [n_in, n_out] = t.ne, n_mat = t.ne[2] ?? 1;
        for (let m = 0; m < n_mat; m++) {
          for (let o = 0; o < n_out; o++) {
            for (let j = 0; j < n_in; j++) {
              let sum = 0;
              for (let r = 0; r < rank; r++) {
                sum += table
                  ? b[j * rank + r] * a[o * rank + r]
                  : b[(m * n_out + o) * rank + r] * a[(m * rank + r) * n_in + j];
              }
              w[(m * n_out + o) * n_in + j] += scale * (alpha / rank) * sum;
            }
          }
        }
      }
    }
    writer.writeTensor(i, bytes);
  }
  writer.finish();
  return path;
}
