/**
 * The map between bytes and printable characters that byte-level vocabularies are written in: 0x21-0x7e, 0xa1-0xac and
 * 0xae-0xff stand for themselves, the other 68 bytes, in order, for U+0100 to U+0143.
 * @module
 */

/** `[256]` code point of each byte. */
export const BYTE_TO_CODE_POINT: Uint16Array = (() => {
  const map = new Uint16Array(256);
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    map[byte] = isPrintable ? byte : next++;
  }
  return map;
})();

/** `[0x144]` byte of each code point, -1 for those that stand for none. */
export const CODE_POINT_TO_BYTE: Int16Array = (() => {
  const map = new Int16Array(0x144).fill(-1);
  BYTE_TO_CODE_POINT.forEach((cp, byte) => map[cp] = byte);
  return map;
})();

/** Writes the mapped form of `bytes` into `out` as UTF-8; returns the end. At most two bytes for one. */
export function mapBytes(bytes: Uint8Array, from: number, to: number, out: Uint8Array, at: number): number {
  for (let i = from; i < to; i++) {
    const cp = BYTE_TO_CODE_POINT[bytes[i]];
    if (cp < 0x80) out[at++] = cp;
    else {
      out[at++] = 0xc0 | (cp >> 6);
      out[at++] = 0x80 | (cp & 63);
    }
  }
  return at;
}
