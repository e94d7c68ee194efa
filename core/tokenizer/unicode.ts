/**
 * Character classes as the pre-tokenizers of GGUF vocabularies see them: Unicode 15.1, five letters of category, one
 * whitespace set. Also the two case and decomposition maps that WordPiece needs.
 * @module
 */

import { UNICODE_CATEGORY_RUNS } from "./_unicode_categories.ts";

/** Units that stand for a non-ASCII code point in collapsed text; ASCII stands for itself. */
export const UNIT = { space: 0x0b, other: 0xd0, N: 0xd1, L: 0xd2, P: 0xd3, M: 0xd4, S: 0xd5 } as const;

/** The 25 code points that count as whitespace (U+FEFF, U+180E and U+200B do not). */
export function isWhitespace(cp: number): boolean {
  return (cp >= 0x09 && cp <= 0x0d) || cp === 0x20 || cp === 0x85 || cp === 0xa0 || cp === 0x1680 ||
    (cp >= 0x2000 && cp <= 0x200a) || cp === 0x2028 || cp === 0x2029 || cp === 0x202f || cp === 0x205f || cp === 0x3000;
}

/** A table over all code points of what `valueOf` gives for the first letter of the general category. */
function tableOf(valueOf: (letter: string) => number): Uint8Array {
  const table = new Uint8Array(0x110000);
  let at = 0;
  for (const [, letter, length] of UNICODE_CATEGORY_RUNS.matchAll(/([A-Z])([0-9a-z]+)/g)) {
    const end = at + parseInt(length, 36);
    table.fill(valueOf(letter), at, end);
    at = end;
  }
  return table;
}

let categoryTable: Uint8Array | undefined;

/** First letter of the general category of every code point as a char code; "U" where 15.1 assigns nothing. */
function categories(): Uint8Array {
  return categoryTable ??= tableOf((letter) => letter.charCodeAt(0));
}

let unitTable: Uint8Array | undefined;

/** Collapsed unit of every code point (`UNIT`, or the code point itself below 128). */
export function collapsedUnits(): Uint8Array {
  if (unitTable) return unitTable;
  const unitOf: Record<string, number> = UNIT;
  const table = tableOf((letter) => unitOf[letter] ?? UNIT.other);
  for (let cp = 0; cp < 128; cp++) table[cp] = cp;
  for (let cp = 128; cp <= 0x3000; cp++) if (isWhitespace(cp)) table[cp] = UNIT.space;
  return unitTable = table;
}

/** "L", "M", "N", "P", "S", "Z", "C", or "U" for a code point that Unicode 15.1 does not assign. */
export function generalCategory(cp: number): string {
  return String.fromCharCode(categories()[cp]);
}

/** Simple lower case: one code point to one; code points unknown to Unicode 15.1 are left alone. */
export function lowerCase(cp: number): number {
  if (cp < 128) return cp >= 0x41 && cp <= 0x5a ? cp + 32 : cp;
  if (categories()[cp] === 0x55) return cp;
  return String.fromCodePoint(cp).toLowerCase().codePointAt(0)!;
}

/** First code point of the canonical decomposition. */
export function firstOfDecomposition(cp: number): number {
  if (cp < 0xc0 || categories()[cp] === 0x55) return cp;
  return String.fromCodePoint(cp).normalize("NFD").codePointAt(0)!;
}

/** Bytes of the UTF-8 sequence that starts with `lead`. */
export function sequenceLength(lead: number): number {
  return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/** The code point whose sequence begins at `bytes[at]`; valid UTF-8 is taken for granted. */
export function codePointAt(bytes: Uint8Array, at: number): number {
  const lead = bytes[at];
  if (lead < 0x80) return lead;
  if (lead < 0xe0) return ((lead & 0x1f) << 6) | (bytes[at + 1] & 0x3f);
  if (lead < 0xf0) return ((lead & 0x0f) << 12) | ((bytes[at + 1] & 0x3f) << 6) | (bytes[at + 2] & 0x3f);
  return ((lead & 7) << 18) | ((bytes[at + 1] & 0x3f) << 12) | ((bytes[at + 2] & 0x3f) << 6) | (bytes[at + 3] & 0x3f);
}

/** Writes a code point at `out[at]`; returns where it ends. */
export function writeUtf8(cp: number, out: Uint8Array, at: number): number {
  if (cp < 0x80) {
    out[at] = cp;
    return at + 1;
  }
  const size = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
  for (let i = size - 1; i > 0; i--, cp >>= 6) out[at + i] = 0x80 | (cp & 0x3f);
  out[at] = (0xf00 >> size) & 0xff | cp;
  return at + size;
}
