/**
 * Metadata of a quantized file: the source's keys in their order, with what the quantizer sets at the end.
 * Source: llama-quantize 0.7.0.
 * @module
 */
import { encodeUtf8 } from "../core/bytes.ts";
import { UsageError } from "../core/errors.ts";
import { type GgufValue, ggufValue, Metadata, StringArray } from "../core/gguf/metadata.ts";
import { guessFileTypeId } from "./file_types.ts";
import type { Imatrix } from "./imatrix.ts";
import type { QuantizePlan } from "./plan.ts";

/** Bytes of a key or a string that the quantizer itself sets. */
const MAX_SET = 127;

/** A key of the output that is set by hand. */
export interface Override {
  /** Of the metadata. */
  readonly key: string;
  /** With its type. */
  readonly value: GgufValue;
}

/**
 * One `KEY=TYPE:VALUE`; TYPE is int, float, bool or str.
 * @throws {UsageError} `usage.override`
 */
export function parseOverride(text: string): Override {
  const fail = (what: string) =>
    new UsageError("usage.override", `Cannot override with "${text}": ${what}`, {
      at: { got: text },
      hint: "write KEY=int:N, KEY=float:X, KEY=bool:true or KEY=str:TEXT",
    });
  const m = /^([^=]+)=(int|float|bool|str):(.*)$/s.exec(text);
  if (!m) throw fail("it is not KEY=TYPE:VALUE");
  const [, key, type, value] = m;
  if (encodeUtf8(key).length > MAX_SET) throw fail(`the key has more than ${MAX_SET} bytes`);
  switch (type) {
    case "int": {
      const n = BigInt(/^\s*([+-]?\d+)/.exec(value)?.[1] ?? 0);
      return { key, value: ggufValue.u32(Number(BigInt.asUintN(32, n < 0n ? -n : n))) };
    }
    case "float": {
      const x = Number.parseFloat(value);
      return { key, value: ggufValue.f32(Number.isNaN(x) ? 0 : x) };
    }
    case "bool":
      if (value !== "true" && value !== "false") throw fail("a bool is true or false");
      return { key, value: ggufValue.bool(value === "true") };
    default:
      if (encodeUtf8(value).length > MAX_SET) throw fail(`the text has more than ${MAX_SET} bytes`);
      return { key, value: ggufValue.str(value) };
  }
}

/** The source's metadata with overrides in force: what the plan is made from. */
export function overriddenMetadata(source: Metadata, overrides: readonly Override[]): Metadata {
  const out = source.clone();
  for (const { key, value } of overrides) out.append(key, value);
  return out;
}

function firstBytes(text: string): Uint8Array {
  return encodeUtf8(text).slice(0, MAX_SET);
}

/** A string up to its first NUL, which is where the reference's strings end. */
function cut(value: string | Uint8Array): string | Uint8Array {
  if (typeof value === "string") {
    const at = value.indexOf("\0");
    return at < 0 ? value : value.slice(0, at);
  }
  const at = value.indexOf(0);
  return at < 0 ? value : value.subarray(0, at);
}

function cutAtNul(v: GgufValue): GgufValue {
  if (v.type === "str") return { type: "str", value: cut(v.value) };
  if (v.type !== "array" || v.elem !== "str") return v;
  const items = v.value;
  let any = false;
  for (let i = 0; i < items.length && !any; i++) any = items.bytesAt(i).includes(0);
  if (!any) return v;
  const texts = Array.from({ length: items.length }, (_, i) => cut(items.bytesAt(i)));
  return { type: "array", elem: "str", value: StringArray.from(texts) };
}

export interface OutputMetadataOptions {
  readonly overrides?: readonly Override[];
  readonly imatrix?: Imatrix | undefined;
}

/**
 * Metadata of each part of the output, in order.
 * @param source The source's own metadata, without overrides.
 */
export function outputMetadata(
  source: Metadata,
  plan: QuantizePlan,
  path: string,
  options: OutputMetadataOptions = {},
): Metadata[] {
  const out = new Metadata(path);
  for (const [key, value] of source) out.set(key, cutAtNul(value));
  out.append("general.quantization_version", ggufValue.u32(2));
  out.append("general.file_type", ggufValue.u32(fileTypeId(source, plan)));
  for (const key of ["split.no", "split.count", "split.tensors.count"]) out.remove(key);
  for (const { key, value } of options.overrides ?? []) out.append(key, value);
  const { imatrix } = options;
  if (imatrix && imatrix.entries.size > 0) {
    out.append("quantize.imatrix.file", ggufValue.str(firstBytes(imatrix.path)));
    if (imatrix.dataset !== undefined) {
      out.append("quantize.imatrix.dataset", ggufValue.str(firstBytes(imatrix.dataset)));
    }
    out.append("quantize.imatrix.entries_count", ggufValue.u32(imatrix.entries.size));
    if (imatrix.n_chunks > 0) out.append("quantize.imatrix.chunks_count", ggufValue.u32(imatrix.n_chunks));
  }
  if (plan.prunedLayers !== undefined) {
    out.append(`${source.str("general.architecture")}.block_count`, ggufValue.u32(plan.prunedLayers));
  }
  if (plan.n_parts === 1) return [out];
  return Array.from({ length: plan.n_parts }, (_, no) => {
    const part = no === 0 ? out : new Metadata(path);
    return part.append("split.no", ggufValue.u16(no))
      .append("split.count", ggufValue.u16(plan.n_parts))
      .append("split.tensors.count", ggufValue.i32(plan.tensors.length));
  });
}

function fileTypeId(source: Metadata, plan: QuantizePlan): number {
  if (plan.fileType.type) return plan.fileType.id;
  return source.u32("general.file_type", undefined) ?? guessFileTypeId(plan.tensors.map((t) => t.source.type));
}
