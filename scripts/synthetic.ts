/**
 * Writes a GGUF file with a real architecture's shapes and random blocks, for benchmarks: the bytes a model of that size
 * has, numbers that stay finite, no meaning.
 *
 *   deno run -A scripts/synthetic.ts SHAPE OUT.gguf [--arch llama] [--type q4_K] [--skew 1] [--layers 12]
 *
 * Every matrix is of the given type, token_embd and output are Q6_K; there is no vocabulary. `--arch llama` drops the head
 * norms of qwen3. `--skew` makes routing uneven, by Zipf's law with that exponent; `--layers` takes fewer layers than the shape has.
 * @module
 */
import { type SyntheticModel, writeSynthetic } from "../tests/quantize/synthetic.ts";

/** Released shapes; the `peer-` ones are those of the peer's published numbers, with head_dim = n_embd / n_head. */
export const SHAPES: Readonly<Record<string, SyntheticModel>> = {
  "qwen3-0.6b": {
    n_embd: 1024,
    n_layer: 28,
    n_head: 16,
    n_head_kv: 8,
    head_dim: 128,
    n_ff: 3072,
    n_vocab: 151936,
    tied: true,
  },
  "qwen3-8b": { n_embd: 4096, n_layer: 36, n_head: 32, n_head_kv: 8, head_dim: 128, n_ff: 12288, n_vocab: 151936 },
  "qwen3-30b-a3b": {
    n_embd: 2048,
    n_layer: 48,
    n_head: 32,
    n_head_kv: 4,
    head_dim: 128,
    n_ff: 768,
    n_vocab: 151936,
    n_expert: 128,
    n_expert_used: 8,
  },
  "peer-0.6b": { n_embd: 1024, n_layer: 28, n_head: 16, n_head_kv: 8, head_dim: 64, n_ff: 3072, n_vocab: 151936 },
  "peer-8b": { n_embd: 4096, n_layer: 36, n_head: 32, n_head_kv: 8, head_dim: 128, n_ff: 12288, n_vocab: 151936 },
  "peer-30b-a3b": {
    n_embd: 2048,
    n_layer: 48,
    n_head: 32,
    n_head_kv: 4,
    head_dim: 64,
    n_ff: 768,
    n_vocab: 151936,
    n_expert: 128,
    n_expert_used: 8,
  },
};

/** Writes a model of one of the {@link SHAPES} and gives its size. */
export function writeShape(
  name: string,
  path: string,
  options: { arch?: string; type?: string; skew?: number; n_layer?: number } = {},
): number {
  const shape = SHAPES[name];
  if (!shape) throw new Error(`no shape "${name}": expected one of ${Object.keys(SHAPES).join(", ")}`);
  const arch = name.startsWith("peer-") ? "llama" : shape.n_expert === undefined ? "qwen3" : "qwen3moe";
  return writeSynthetic(path, { ...shape, arch, type: "q4_K", ...options });
}

if (import.meta.main) {
  const flag = (name: string) => {
    const i = Deno.args.indexOf(`--${name}`);
    return i < 0 ? undefined : Deno.args[i + 1];
  };
  const [name, path] = Deno.args;
  if (!name || !path) {
    console.error(
      `usage: synthetic.ts SHAPE OUT.gguf [--arch llama] [--type q4_K] [--skew 1] [--layers N]\nshapes: ${
        Object.keys(SHAPES).join(", ")
      }`,
    );
    Deno.exit(2);
  }
  const arch = flag("arch"), type = flag("type"), skew = flag("skew"), layers = flag("layers");
  const bytes = writeShape(name, path, {
    ...(arch ? { arch } : {}),
    ...(type ? { type } : {}),
    ...(skew ? { skew: Number(skew) } : {}),
    ...(layers ? { n_layer: Number(layers) } : {}),
  });
  console.log(`${path}: ${bytes} bytes`);
}
