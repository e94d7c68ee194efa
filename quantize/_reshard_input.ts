/**
 * The models that `reshard_test.ts` splits, and that its goldens were made from. Run it to write them to a folder:
 * `deno run -A quantize/_reshard_input.ts FOLDER`.
 */
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { ggmlType } from "../core/gguf/types.ts";
import { bufferTarget, GgufWriter } from "../core/gguf/write.ts";

/** A model of F32 tensors with so many elements, all bytes pseudo-random. */
function model(sizes: readonly number[][], more: readonly (readonly [string, ReturnType<typeof ggufValue.str>])[]) {
  const metadata = new Metadata("in.gguf", [
    ["general.architecture", ggufValue.str("llama")],
    ["split.count", ggufValue.u16(0)],
    ["tokenizer.ggml.tokens", ggufValue.strs(["<s>", "é", ""])],
    ...more,
  ]);
  const tensors = sizes.map((ne, i) => ({ name: `blk.${i}.ffn_up.weight`, type: ggmlType("f32"), ne }));
  const target = bufferTarget("in.gguf");
  const out = GgufWriter.create({ path: target, metadata, tensors });
  let state = 1;
  for (const [i, ne] of sizes.entries()) {
    const bytes = new Uint8Array(4 * ne.reduce((a, b) => a * b));
    for (let j = 0; j < bytes.length; j++) {
      state = (Math.imul(state, 1103515245) + 12345) | 0;
      bytes[j] = state >> 16;
    }
    out.writeTensor(i, bytes);
  }
  out.finish();
  return target.take();
}

/** About 4.5 MB: sizes on both sides of the limits of 1 MB and 2 MB, which are the smallest that the peer takes. */
export function largeInput(): Uint8Array {
  const sizes = [1000, 250000, 100, 3, 250001, 7, 300000, 90000, 50000, 1, 2, 3, 100000, 99999];
  return model(sizes.map((n) => [n]), [["general.name", ggufValue.str("large")]]);
}

/** Small, with trailing dimensions of one, which are not written again. */
export function smallInput(): Uint8Array {
  return model([[4], [3, 2, 1, 1], [5, 1], [1, 1, 2], [8]], [["llama.block_count", ggufValue.u32(2)]]);
}

if (import.meta.main) {
  const [dir] = Deno.args;
  Deno.writeFileSync(`${dir}/large.gguf`, largeInput());
  Deno.writeFileSync(`${dir}/small.gguf`, smallInput());
}
