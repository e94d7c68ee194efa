/** Builds GGUF bytes field by field, right or wrong, for tests. */
import { bufferSource, type ByteSource, encodeUtf8 } from "../bytes.ts";
import { ggufValue, Metadata } from "./metadata.ts";
import { ggmlType } from "./types.ts";
import { bufferTarget, GgufWriter, type TensorInfo } from "./write.ts";

export class Raw {
  readonly parts: number[] = [];
  u8(n: number): this {
    this.parts.push(n);
    return this;
  }
  u32(n: number): this {
    for (let i = 0; i < 4; i++) this.parts.push((n >>> (8 * i)) & 255);
    return this;
  }
  u64(n: bigint | number): this {
    for (let i = 0n; i < 8n; i++) this.parts.push(Number((BigInt.asUintN(64, BigInt(n)) >> (8n * i)) & 255n));
    return this;
  }
  str(s: string | Uint8Array): this {
    const bytes = typeof s === "string" ? encodeUtf8(s) : s;
    return this.u64(bytes.length).bytes(bytes);
  }
  bytes(b: Iterable<number>): this {
    this.parts.push(...b);
    return this;
  }
  /** Magic, version 3, counts. */
  head(tensors: bigint | number, keys: bigint | number, version: number = 3): this {
    return this.bytes(encodeUtf8("GGUF")).u32(version).u64(tensors).u64(keys);
  }
  info(name: string | Uint8Array, ne: readonly (bigint | number)[], type: number, offset: bigint | number): this {
    this.str(name).u32(ne.length);
    for (const n of ne) this.u64(n);
    return this.u32(type).u64(offset);
  }
  /** Zeros to a multiple of `alignment`, then `n` more. */
  data(n: number, alignment: number = 32): this {
    while (this.parts.length % alignment !== 0) this.parts.push(0);
    return this.bytes(new Uint8Array(n));
  }
  take(): Uint8Array {
    return Uint8Array.from(this.parts);
  }
  source(name: string = "raw.gguf"): ByteSource {
    return bufferSource(name, this.take());
  }
}

/** A value of every type and arrays of every type. */
export function everyValue(): Metadata {
  return new Metadata("every.gguf", [
    ["general.architecture", ggufValue.str("llama")],
    ["v.u8", ggufValue.u8(200)],
    ["v.i8", ggufValue.i8(-100)],
    ["v.u16", ggufValue.u16(60000)],
    ["v.i16", ggufValue.i16(-30000)],
    ["v.u32", ggufValue.u32(4000000000)],
    ["v.i32", ggufValue.i32(-2000000000)],
    ["v.f32", ggufValue.f32(0.5)],
    ["v.f64", ggufValue.f64(-1e300)],
    ["v.u64", ggufValue.u64(2n ** 64n - 1n)],
    ["v.i64", ggufValue.i64(-(2n ** 63n))],
    ["v.true", ggufValue.bool(true)],
    ["v.false", ggufValue.bool(false)],
    ["v.bytes", ggufValue.str(Uint8Array.of(0xff, 0xfe, 65))],
    ["v.bom", ggufValue.str("\ufeffa")],
    ["v.empty", ggufValue.str("")],
    ["a.strs", ggufValue.strs(["a", "", "한국어", Uint8Array.of(0x80), "\ufeff"])],
    ["a.i32s", ggufValue.i32s([-1, 2, 3])],
    ["a.u32s", ggufValue.u32s([1, 2, 4294967295])],
    ["a.f32s", ggufValue.f32s([0.25, -1, NaN])],
    ["a.bools", ggufValue.bools([true, false])],
    ["a.u8s", { type: "array", elem: "u8", value: Uint8Array.of(1, 2, 3) }],
    ["a.i8s", { type: "array", elem: "i8", value: Int8Array.of(-1) }],
    ["a.u16s", { type: "array", elem: "u16", value: Uint16Array.of(1, 65535) }],
    ["a.i16s", { type: "array", elem: "i16", value: Int16Array.of(-1, 5) }],
    ["a.u64s", { type: "array", elem: "u64", value: BigUint64Array.of(2n ** 63n) }],
    ["a.i64s", { type: "array", elem: "i64", value: BigInt64Array.of(-7n, 8n) }],
    ["a.f64s", { type: "array", elem: "f64", value: Float64Array.of(Math.PI) }],
    ["a.none", ggufValue.strs([])],
  ]);
}

/** A small file of three tensors, the last of them with padding after it. */
export function smallFile(metadata: Metadata = everyValue(), alignment: number = 32): Uint8Array {
  const tensors: TensorInfo[] = [
    { name: "token_embd.weight", type: ggmlType("q4_0"), ne: [64, 3] },
    { name: "output_norm.weight", type: ggmlType("f32"), ne: [8] },
    { name: "blk.0.ffn_down_exps.weight", type: ggmlType("f16"), ne: [3, 2, 2] },
  ];
  const target = bufferTarget(metadata.file);
  using out = GgufWriter.create({ path: target, metadata, tensors, alignment });
  let byte = 1;
  for (const n of [108, 32, 24]) out.writeTensor(out.next!.name, Uint8Array.from({ length: n }, () => byte++ & 255));
  out.finish();
  return target.take();
}
