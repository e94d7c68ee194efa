/**
 * What a token adds to a text: the way back from ids to bytes.
 * @module
 */

import { BYTE_TO_CODE_POINT, CODE_POINT_TO_BYTE } from "./byte_map.ts";
import { TOKEN_TYPE } from "./types.ts";
import type { Vocab } from "./vocab.ts";

/** How normal tokens are written. */
export type PieceForm =
  | "mapped" //  bytes as printable characters
  | "mapped-or-byte" // the same, but byte tokens are bytes
  | "spaced"; //  UTF-8 with U+2581 for a space

const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Bytes of token `id`; a control token has none unless `special`. */
export function pieceBytes(vocab: Vocab, form: PieceForm, id: number, special: boolean): Uint8Array {
  const text = vocab.bytes(id);
  switch (vocab.types[id]) {
    case TOKEN_TYPE.control:
    case TOKEN_TYPE.unknown:
      return special ? text : NOTHING;
    case TOKEN_TYPE.userDefined:
      return text;
    case TOKEN_TYPE.normal:
      return form === "spaced" ? unescaped(text) : unmapped(text);
    case TOKEN_TYPE.byte:
      return form === "mapped" ? NOTHING : byteOf(text);
    default:
      return NOTHING;
  }
}

/** `<0x41>` to its byte. */
function byteOf(text: Uint8Array): Uint8Array {
  const match = /^<0x([0-9A-Fa-f]{2})>$/.exec(decoder.decode(text));
  return match ? Uint8Array.of(parseInt(match[1], 16)) : text;
}

/** U+2581 to spaces. */
function unescaped(text: Uint8Array): Uint8Array {
  const at = text.indexOf(0xe2);
  if (at < 0) return text;
  const out = new Uint8Array(text.length);
  let n = 0;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === 0xe2 && text[i + 1] === 0x96 && text[i + 2] === 0x81) {
      out[n++] = 0x20;
      i += 2;
    } else out[n++] = text[i];
  }
  return out.subarray(0, n);
}

/** Printable characters to the bytes they stand for. One that stands for none is named in the text, not dropped. */
function unmapped(text: Uint8Array): Uint8Array {
  const out = new Uint8Array(text.length);
  let n = 0;
  for (let i = 0; i < text.length; i++) {
    let cp = text[i];
    if (cp >= 0x80) cp = cp >= 0xc2 && cp <= 0xc5 ? ((cp & 0x1f) << 6) | (text[++i] & 0x3f) : 0xffff;
    const byte = cp < CODE_POINT_TO_BYTE.length ? CODE_POINT_TO_BYTE[cp] : -1;
    if (byte < 0) return unmappedWithForeign(text);
    out[n++] = byte;
  }
  return out.subarray(0, n);
}

function unmappedWithForeign(text: Uint8Array): Uint8Array {
  const whole = decoder.decode(text);
  const parts: number[] = [];
  for (const character of whole) {
    const cp = character.codePointAt(0)!;
    const byte = cp < CODE_POINT_TO_BYTE.length ? CODE_POINT_TO_BYTE[cp] : -1;
    if (byte >= 0) parts.push(byte);
    else {
      const hex = Array.from(encoder.encode(character), (b) => b.toString(16).padStart(2, "0")).join("");
      for (const b of encoder.encode(`[UNK_BYTE_0x${hex}${whole}]`)) parts.push(b);
    }
  }
  return Uint8Array.from(parts);
}

/** Bytes as a byte-level vocabulary writes them. */
export function mappedText(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(BYTE_TO_CODE_POINT[byte]);
  return text;
}

/**
 * The tidying that some vocabularies ask of whole texts, in three passes: no space before `? ! . ,`; `" ' "` closed up;
 * no space before `'s 'm 're 've`.
 */
export function cleanSpaces(bytes: Uint8Array): Uint8Array {
  // Latin-1 characters stand for bytes, so that the passes see bytes whatever the encoding of the text
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  text = text.replace(/ ([?!.,])/g, "$1").replace(/ ' /g, "'").replace(/ ('(?:s|m|re|ve))/g, "$1");
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
