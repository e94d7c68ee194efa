/**
 * Bytes to text as they come: half a character waits for its other bytes.
 * @module
 */
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Decodes UTF-8 in pieces. Bytes that are no text become U+FFFD, never a character whose bytes are yet to come. */
export class Utf8Stream {
  /** Bytes of a character that is not complete. */
  pending: Uint8Array = new Uint8Array();

  /** The text that the bytes complete. */
  push(bytes: Uint8Array): string {
    if (this.pending.length === 0 && bytes.every((b) => b < 0x80)) return String.fromCharCode(...bytes);
    const all = new Uint8Array(this.pending.length + bytes.length);
    all.set(this.pending);
    all.set(bytes, this.pending.length);
    const end = all.length - unfinished(all);
    this.pending = all.slice(end);
    return decoder.decode(all.subarray(0, end));
  }

  /** What the bytes left over are when nothing follows: U+FFFD, or nothing where there are none. */
  end(): string {
    const text = decoder.decode(this.pending);
    this.pending = new Uint8Array();
    return text;
  }
}

/** How many bytes at the end may begin a character that needs more. */
function unfinished(bytes: Uint8Array): number {
  for (let n = 1; n <= Math.min(3, bytes.length); n++) {
    const b = bytes[bytes.length - n];
    if (b >= 0xf8 || b < 0x80) return 0;
    if (b < 0xc0) continue;
    return (b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2) > n ? n : 0;
  }
  return 0;
}
