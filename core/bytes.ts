/**
 * Bytes at an offset: the one interface through which headers are read, its two sources, and a cursor that counts what
 * remains before it reads.
 * @module
 */
import { FormatError } from "./errors.ts";
import { osHint, osReason } from "./os_error.ts";

/** Random access to the bytes of one file. Reads are synchronous. */
export interface ByteSource {
  /** What error messages call it; a path for files. */
  readonly name: string;
  /** Bytes in total when it was opened. */
  readonly size: number;
  /**
   * Exactly `length` bytes from `offset`; the result may be a view of the source and is not to be written to.
   * @throws {FormatError} `format.truncated` when the range reaches past the end.
   */
  read(offset: number, length: number): Uint8Array;
  /** Closes the file, or does nothing for bytes in memory. */
  close(): void;
}

/** What is being read, for messages; a function where making the text for every read would cost. */
export type FieldName = string | (() => string);

function pastEnd(
  name: string,
  what: FieldName,
  offset: number,
  wanted: number | bigint,
  present: number,
): FormatError {
  const field = typeof what === "string" ? what : what();
  return new FormatError(
    "format.truncated",
    `Cannot read ${field} of ${name}: wants ${wanted} bytes at ${offset}, ${present} are present`,
    {
      at: { file: name, field, offset, wanted: Number(wanted), present },
      hint: "the file was cut short or is damaged: fetch it again and compare its size or checksum with the source",
    },
  );
}

/**
 * Opens a file for reading.
 * @throws {FormatError} `format.unreadable` when it cannot be opened or is not a regular file.
 */
export function fileSource(path: string): ByteSource {
  let file: Deno.FsFile;
  let size: number;
  try {
    // Before it is opened: opening a pipe waits for somebody to write into it.
    refuseOtherThanFile(Deno.statSync(path), path);
    file = Deno.openSync(path, { read: true });
  } catch (cause) {
    if (cause instanceof FormatError) throw cause;
    const why = cause instanceof Deno.errors.NotFound ? "there is no such file" : osReason(cause);
    const hint = osHint(cause);
    throw new FormatError("format.unreadable", `Cannot open ${path}: ${why}`, {
      at: { file: path },
      ...(hint === undefined ? {} : { hint }),
      cause,
    });
  }
  try {
    const stat = file.statSync();
    refuseOtherThanFile(stat, path);
    size = stat.size;
  } catch (error) {
    file.close();
    throw error;
  }
  let open = true;
  return {
    name: path,
    size,
    read(offset, length) {
      if (offset < 0 || length < 0 || offset + length > size) {
        throw pastEnd(path, "bytes", offset, length, Math.max(0, size - offset));
      }
      const out = new Uint8Array(length);
      file.seekSync(offset, Deno.SeekMode.Start);
      for (let done = 0; done < length;) {
        const n = file.readSync(out.subarray(done));
        // The file may shrink while it is open.
        if (n === null) throw pastEnd(path, "bytes", offset, length, done);
        done += n;
      }
      return out;
    },
    close() {
      if (open) file.close();
      open = false;
    },
  };
}

/** @throws {FormatError} `format.unreadable` for what has no bytes at an offset */
function refuseOtherThanFile(stat: Deno.FileInfo, path: string): void {
  if (stat.isFile) return;
  const what = stat.isDirectory ? "a folder" : stat.isFifo ? "a pipe" : stat.isSocket ? "a socket" : "a device";
  throw new FormatError("format.unreadable", `Cannot read ${path}: it is ${what}, expected a file`, {
    at: { file: path },
    hint: stat.isDirectory
      ? "give the path of a file in it"
      : "parts of the file are read in any order: save it to a disk",
  });
}

/** Bytes already in memory; reads are views. */
export function bufferSource(name: string, bytes: Uint8Array): ByteSource {
  return {
    name,
    size: bytes.length,
    read(offset, length) {
      if (offset < 0 || length < 0 || offset + length > bytes.length) {
        throw pastEnd(name, "bytes", offset, length, Math.max(0, bytes.length - offset));
      }
      return bytes.subarray(offset, offset + length);
    },
    close() {},
  };
}

/** Bytes a cursor fetches at a time: a header of megabytes costs tens of reads, and little beyond it is touched. */
const WINDOW = 256 * 1024;

/**
 * Reads little-endian values one after another. Every method names the field it reads, so that a cut file is reported
 * as `format.truncated` with file, field, bytes wanted and present; nothing is allocated before that check.
 */
export class ByteCursor {
  #window: Uint8Array = new Uint8Array(0);
  #view: DataView = new DataView(this.#window.buffer);
  #text: string | undefined; // the window, a character a byte
  #start = 0; // offset of the window in the source
  #pos = 0; //   offset of the cursor in the source

  constructor(readonly source: ByteSource) {}

  get position(): number {
    return this.#pos;
  }

  get remaining(): number {
    return this.source.size - this.#pos;
  }

  /** Makes `n` bytes available in the window (`n` is small) and returns their index in it; advances the cursor. */
  #take(n: number, field: FieldName): number {
    let at = this.#pos - this.#start;
    if (at + n > this.#window.length) {
      if (n > this.remaining) throw pastEnd(this.source.name, field, this.#pos, n, this.remaining);
      this.#start = this.#pos;
      this.#window = this.source.read(this.#pos, Math.min(Math.max(WINDOW, n), this.remaining));
      this.#text = undefined;
      this.#view = new DataView(this.#window.buffer, this.#window.byteOffset, this.#window.length);
      at = 0;
    }
    this.#pos += n;
    return at;
  }

  u8(field: FieldName): number {
    return this.#window[this.#take(1, field)];
  }
  i8(field: FieldName): number {
    return (this.u8(field) << 24) >> 24;
  }
  u16(field: FieldName): number {
    const at = this.#take(2, field);
    return this.#view.getUint16(at, true);
  }
  i16(field: FieldName): number {
    const at = this.#take(2, field);
    return this.#view.getInt16(at, true);
  }
  u32(field: FieldName): number {
    const at = this.#take(4, field);
    return this.#view.getUint32(at, true);
  }
  i32(field: FieldName): number {
    const at = this.#take(4, field);
    return this.#view.getInt32(at, true);
  }
  f32(field: FieldName): number {
    const at = this.#take(4, field);
    return this.#view.getFloat32(at, true);
  }
  f64(field: FieldName): number {
    const at = this.#take(8, field);
    return this.#view.getFloat64(at, true);
  }
  u64(field: FieldName): bigint {
    const at = this.#take(8, field);
    return this.#view.getBigUint64(at, true);
  }
  i64(field: FieldName): bigint {
    const at = this.#take(8, field);
    return this.#view.getBigInt64(at, true);
  }

  /**
   * A u64 as a number, rounded above 2^53: right for comparing against limits, and exact for everything that passes
   * one.
   */
  size(field: FieldName): number {
    const at = this.#take(8, field);
    return this.#view.getUint32(at + 4, true) * 4294967296 + this.#view.getUint32(at, true);
  }

  /**
   * A u64 count of things that take at least `bytesEach` bytes each in what follows.
   * @throws {FormatError} `format.limit` above `limit`, `format.truncated` when fewer bytes remain.
   */
  count(field: FieldName, bytesEach: number, limit: number): number {
    const n = this.size(field);
    if (n * bytesEach > this.remaining) {
      throw pastEnd(this.source.name, field, this.#pos, BigInt(n) * BigInt(bytesEach), this.remaining);
    }
    if (n > limit) {
      const what = typeof field === "string" ? field : field();
      throw new FormatError("format.limit", `Cannot read ${what} of ${this.source.name}: ${n} is above ${limit}`, {
        at: { file: this.source.name, field: what, got: n, limit },
      });
    }
    return n;
  }

  /** The next `n` bytes, as a copy. */
  bytes(n: number, field: FieldName): Uint8Array {
    const at = this.#pos - this.#start;
    if (at + n <= this.#window.length) {
      this.#pos += n;
      return this.#window.slice(at, at + n);
    }
    if (n <= WINDOW) {
      const from = this.#take(n, field);
      return this.#window.slice(from, from + n);
    }
    if (n > this.remaining) throw pastEnd(this.source.name, field, this.#pos, n, this.remaining);
    const out = this.source.read(this.#pos, n).slice();
    this.#pos += n;
    return out;
  }

  /** The next `n` bytes as text, or undefined when they are not valid UTF-8. */
  text(n: number, field: FieldName): string | undefined {
    if (n > WINDOW) return decodeUtf8(this.bytes(n, field));
    const at = this.#take(n, field);
    for (let i = at; i < at + n; i++) {
      if (this.#window[i] > 127) return decodeUtf8(this.#window.subarray(at, at + n));
    }
    // Slices of one text of the window cost a fraction of a decoder's call each.
    this.#text ??= latin1.decode(this.#window);
    return this.#text.slice(at, at + n);
  }

  /**
   * Steps over `ends.length` strings, each a u64 length and its bytes, and writes into `ends` where each of them ends,
   * counted from where the first began. A vocabulary has hundreds of thousands: a step costs no call and no text.
   * @param field Names string `i`.
   * @returns the bytes of all; `ends` is right where that is below 4 GiB.
   */
  skipStrings(ends: Uint32Array, field: (i: number) => string, limit: number): number {
    const start = this.#pos;
    for (let i = 0; i < ends.length;) {
      i = this.#skipStringsInWindow(ends, i, start, limit);
      if (i === ends.length) break;
      const name = () => field(i);
      this.skip(this.count(name, 1, limit), name);
      ends[i++] = this.#pos - start;
    }
    return this.#pos - start;
  }

  /** The same for as many strings from `i` on as begin in the window and have less than 64 KiB; the next one. */
  #skipStringsInWindow(ends: Uint32Array, i: number, start: number, limit: number): number {
    const window = this.#window;
    const last = window.length - 8;
    const size = this.source.size - this.#start;
    let at = this.#pos - this.#start;
    while (i < ends.length && at <= last) {
      const length = window[at] | (window[at + 1] << 8);
      if ((window[at + 2] | window[at + 3] | window[at + 4] | window[at + 5] | window[at + 6] | window[at + 7]) !== 0) {
        break;
      }
      if (length > limit || at + 8 + length > size) break;
      at += 8 + length;
      ends[i++] = this.#start + at - start;
    }
    this.#pos = this.#start + at;
    return i;
  }

  /** Steps over `n` bytes without reading them. */
  skip(n: number, field: FieldName): void {
    if (n > this.remaining) throw pastEnd(this.source.name, field, this.#pos, n, this.remaining);
    this.#pos += n;
  }
}

const latin1 = new TextDecoder("latin1");
const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lossyUtf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** Text of UTF-8 bytes, or undefined when they are not valid UTF-8. A byte order mark is text. */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  // Short ASCII, the common case by far, is several times faster without the decoder.
  if (bytes.length <= 64) {
    let i = 0;
    while (i < bytes.length && bytes[i] < 128) i++;
    if (i === bytes.length) return String.fromCharCode.apply(null, bytes as unknown as number[]);
  }
  try {
    return strictUtf8.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Text of bytes; what is not UTF-8 becomes U+FFFD. */
export function decodeLossy(bytes: Uint8Array): string {
  return decodeUtf8(bytes) ?? lossyUtf8.decode(bytes);
}

const utf8 = new TextEncoder();

/** UTF-8 bytes of a text. */
export function encodeUtf8(text: string): Uint8Array<ArrayBuffer> {
  return utf8.encode(text);
}

/** Writes a text as UTF-8 at `out[at]`, where there is room for three bytes a unit; returns where it ends. */
export function writeText(text: string, out: Uint8Array, at: number): number {
  const start = at;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) out[at++] = unit;
    else if (unit < 0x800) {
      out[at++] = 0xc0 | (unit >> 6);
      out[at++] = 0x80 | (unit & 0x3f);
    } else if ((unit & 0xf800) === 0xd800) {
      return start + utf8.encodeInto(text, out.subarray(start)).written; // pairs and halves of them are its business
    } else {
      out[at++] = 0xe0 | (unit >> 12);
      out[at++] = 0x80 | ((unit >> 6) & 0x3f);
      out[at++] = 0x80 | (unit & 0x3f);
    }
  }
  return at;
}

/**
 * Why a file that should hold binary data holds none, or undefined: it is empty, or it is the text pointer that Git LFS
 * leaves where a large file was not fetched.
 */
export function emptyOrPointer(source: ByteSource): { what: string; hint: string } | undefined {
  if (source.size === 0) {
    return { what: "is empty (0 bytes)", hint: "the download did not finish: fetch the file again" };
  }
  if (source.size > 1024) return undefined;
  const text = decodeLossy(source.read(0, source.size));
  if (!text.startsWith("version https://git-lfs")) return undefined;
  const size = /^size (\d+)$/m.exec(text)?.[1];
  return {
    what: `is a Git LFS pointer of ${source.size} bytes, not the file itself` + (size ? ` (${size} bytes)` : ""),
    hint: "fetch the contents with `git lfs pull`, or download the file again",
  };
}
