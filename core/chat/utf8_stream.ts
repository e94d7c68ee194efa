/**
 * UTF-8 decoded in pieces: half a character waits for its other bytes.
 * @module
 */
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Decodes UTF-8 in pieces. Invalid bytes become U+FFFD; a character cut by the end of a piece waits. */
export class Utf8Stream {
  /** Bytes of a character that is not complete. */
  pending: Uint8Array = new Uint8Array();

  /** Adds bytes and returns the text that they complete. */
  push(bytes: Uint8Array): string {
    if (this.pending.length === 0 && bytes.every((b) => b < 0x80)) return String.fromCharCode(...bytes);
    const all = new Uint8Array(this.pending.length + bytes.length);
    all.set(this.pending);
    all.set(bytes, this.pending.length);
    const end = all.length - unfinished(all);
    this.pending = all.slice(end);
    return decoder.decode(all.subarray(0, end));
  }

  /** Ends the stream and returns U+FFFD for bytes left over, or "". */
  end(): string {
    const text = decoder.decode(this.pending);
    this.pending = new Uint8Array();
    return text;
  }
}

/** Number of bytes at the end that may begin a longer character. */
function unfinished(bytes: Uint8Array): number {
  for (let n = 1; n <= Math.min(3, bytes.length); n++) {
    const b = bytes[bytes.length - n];
    if (b >= 0xf8 || b < 0x80) return 0;
    if (b < 0xc0) continue;
    return (b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2) > n ? n : 0;
  }
  return 0;
}
