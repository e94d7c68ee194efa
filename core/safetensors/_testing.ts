/** Builds safetensors bytes, right or wrong, for tests. */
import { encodeUtf8 } from "../bytes.ts";

/** A length, a header text and `dataBytes` bytes of 1, 2, 3, ... */
export function rawSafetensors(header: string, dataBytes: number, length?: bigint): Uint8Array {
  const text = encodeUtf8(header);
  const out = new Uint8Array(8 + text.length + dataBytes);
  new DataView(out.buffer).setBigUint64(0, length ?? BigInt(text.length), true);
  out.set(text, 8);
  for (let i = 0; i < dataBytes; i++) out[8 + text.length + i] = i + 1;
  return out;
}

/** A file of U8 tensors of the given sizes. */
export function smallSafetensors(sizes: Record<string, number>): Uint8Array {
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  let end = 0;
  for (const [name, n] of Object.entries(sizes)) {
    header[name] = { dtype: "U8", shape: [n], data_offsets: [end, end += n] };
  }
  return rawSafetensors(JSON.stringify(header), end);
}
