/**
 * Random and adversarial strings for tokenizers, the same for the same seed.
 * @module
 */

/** First and last code points of blocks that words are made of. */
const BLOCKS: readonly (readonly [number, number])[] = [
  [0x20, 0x7e],
  [0xa0, 0x17f], // Latin
  [0x370, 0x3ff], // Greek
  [0x400, 0x4ff], // Cyrillic
  [0x531, 0x587], // Armenian
  [0x5d0, 0x5ea], // Hebrew
  [0x620, 0x669], // Arabic, its digits
  [0x900, 0x97f], // Devanagari
  [0xe00, 0xe5b], // Thai
  [0x10a0, 0x10ff], // Georgian
  [0x1100, 0x11ff], // Hangul as parts
  [0x13a0, 0x13fd], // Cherokee
  [0x1e00, 0x1fff], // Latin and Greek with marks
  [0x2000, 0x22ff], // punctuation, numbers, symbols
  [0x3000, 0x30ff], // CJK punctuation, kana
  [0x4e00, 0x9fff],
  [0xac00, 0xd7a3], // Hangul
  [0xff00, 0xffef], // full and half width
  [0x10400, 0x1044f], // Deseret: case beyond the BMP
  [0x1d400, 0x1d7ff], // mathematical letters and digits
  [0x1f300, 0x1faff], // emoji
  [0x20000, 0x2a6df],
];

const WHITESPACE = " |  |\t|\n|\r\n|\n\n\n| \n |\u00a0|\u3000|\u2028|\u0085|\u200b|\ufeff| \t \n|    ".split("|");
const CONTRACTIONS = ["", " ", "'s", "'T", "'re", "\u2019ve", "'LL", "'d", "'M", "''"];
const NUMBERS = ["3.14", "1,000,000", "0x1F", "\u0661\u0662\u0663\u0664", "\u00bd\u00b2\u2460", "\uff11\uff12"];
const COMBINING =
  "e\u0301 A\u030a \u1e9b\u0323 \u212b \u1100\u1161\u11a8 \u0915\u094d\u0937\u093f a\u0300\u0315 \u0344 o\u0302\u0323"
    .split(" ");
const EMOJI = [
  "\u{1f468}\u200d\u{1f469}\u200d\u{1f467}",
  "\u{1f44d}\u{1f3fd}",
  "\u2764\ufe0f",
  "\u{1f1e9}\u{1f1ea}",
  "\u{1f3f4}\u{e0067}\u{e0062}\u{e007f}",
  "#\ufe0f\u20e3",
];
const ODD = ["\ufffd", "\ufffe", "\uffff", "\0", "\x07", "\x7f", "\u{10ffff}", "\u1c89"]; // the last is new in Unicode 16
const CODE = [
  "if (a[i] !== 0) { return; }\n",
  "\t\tfor i in range(10):\n",
  "x->y::z<T>();",
  "// ====\n",
  '<?php $a="\\n";',
  "<div class='a'>&nbsp;</div>",
  "__init__",
  "camelCaseWORDAndMore",
  "HTTPServer2XX",
  "/usr/lib/x86_64//",
];
const WORDS = [
  "\u041f\u0440\u0438\u0432\u0435\u0442\u041c\u0438\u0440",
  "\u00c4\u00d6\u00dc\u00e4\u00f6\u00fc\u00df",
  "\u0130stanbul",
  "\u01c5\u01c8",
  "\u03a3\u03c2",
  "\u02b0\u02b1",
  "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8",
  "\ud55c\uad6d\uc5b4",
  "\u0e44\u0e17\u0e22",
];
const PUNCTUATION = [..."!?.,\u3002\uff0c\u2014\u00ab$\u20ac+=~^`|_\u00a9\u2192-"];

/**
 * @param special Texts of special tokens, which are put in whole and in part.
 * @returns `count` strings without lone surrogates.
 */
export function trickyStrings(count: number, seed: number, special: readonly string[]): string[] {
  const random = (below: number) => { // mulberry32
    seed = (seed + 0x6d2b79f5) | 0;
    let bits = Math.imul(seed ^ (seed >>> 15), seed | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) % below;
  };
  const pick = <T>(items: readonly T[]) => items[random(items.length)];
  const upTo = (most: number, part: () => string) => Array.from({ length: 1 + random(most) }, part).join("");
  const between = (low: number, high: number) => String.fromCodePoint(low + random(high - low + 1));
  const block = () => {
    const [low, high] = pick(BLOCKS);
    return upTo(8, () => between(low, high));
  };
  const letter = () => between(0x61, 0x7a);
  const parts: readonly (() => string)[] = [
    block,
    block,
    block,
    () => upTo(3, () => between(0, 0x10ffff)), // any category; halves of pairs become U+FFFD
    () => upTo(6, letter) + pick(CONTRACTIONS),
    () => pick(WHITESPACE).repeat(1 + random(6)),
    () => upTo(12, () => between(0x30, 0x39)),
    () => pick(NUMBERS),
    () => pick(COMBINING),
    () => pick(EMOJI),
    () => pick(ODD),
    () => pick(CODE),
    () => pick(WORDS),
    () => pick(PUNCTUATION).repeat(1 + random(5)),
    () => letter().repeat(1 + random(120)),
    () => pick(["", " ", "\n", "x"]) + pick(special) + pick(["", " ", "\n", "x"]),
    () => pick(special).slice(random(4), 1 + random(12)),
  ];
  return Array.from({ length: count }, () => upTo(8, () => pick(parts)()).toWellFormed());
}
