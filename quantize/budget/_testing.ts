/**
 * A model without bytes, for tests that need its headers alone.
 * @module
 */
import { ggufValue, Metadata } from "../../core/gguf/metadata.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import type { QuantizeSource } from "../quantize_source.ts";

/** @param types Of tensors that are not bf16, or f32 where they have one dimension. */
export function openMemory(shapes: Record<string, number[]>, types: Record<string, string> = {}): QuantizeSource {
  const metadata = new Metadata("m").set("general.architecture", ggufValue.str("llama"))
    .set("llama.block_count", ggufValue.u32(2));
  return {
    name: "m",
    paths: [],
    metadata,
    tensors: Object.entries(shapes).map(([name, ne]) => ({
      name,
      ne,
      type: ggmlType(types[name] ?? (ne.length > 1 ? "bf16" : "f32")),
      shard: 0,
    })),
    warnings: [],
    read: () => {
      throw new Error("it has no bytes");
    },
    [Symbol.dispose]() {},
  };
}
