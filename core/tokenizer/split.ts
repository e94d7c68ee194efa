/**
 * Cuts text into words with the regex list of a pre-tokenizer. Each step cuts every piece of the step before, each piece
 * being a whole string to the regex, so that `$`, `\b` and lookaheads see its end. Matches and gaps both become pieces.
 *
 * Regexes run on stand-ins with one unit per code point: "collapsed" text, where a non-ASCII code point is reduced to
 * its general category, for those with `\p{...}`; "plain" text for the others. So no table of this file depends on the
 * engine's Unicode version, and no index is ever inside a surrogate pair.
 * @module
 */

import { collapsedUnits } from "./unicode.ts";

/** A text made ready for cutting; `n` code points. */
export class Prepared {
  readonly n: number;
  /** UTF-16 offset of each code point, and of the end; absent where the two counts are equal. */
  private offsets: Int32Array | undefined;
  private units: Uint8Array | undefined;
  private collapsedText: string | undefined;
  private plainText: string | undefined;

  /** @param text Without lone surrogates. */
  constructor(readonly text: string) {
    const isAscii = !/[^\0-\x7f]/.test(text);
    if (isAscii) this.collapsedText = this.plainText = text;
    this.n = text.length;
    if (!isAscii && /[\ud800-\udbff]/.test(text)) {
      const offsets = new Int32Array(text.length + 1);
      let n = 0;
      for (let i = 0; i < text.length; i++) {
        offsets[n++] = i;
        if ((text.charCodeAt(i) & 0xfc00) === 0xd800) i++;
      }
      offsets[n] = text.length;
      this.offsets = offsets;
      this.n = n;
    }
  }

  /** UTF-16 offset of a code point index. */
  offset(index: number): number {
    return this.offsets ? this.offsets[index] : index;
  }

  codePoint(index: number): number {
    return this.text.codePointAt(this.offset(index))!;
  }

  /** One collapsed unit per code point. */
  get collapsedBytes(): Uint8Array {
    if (this.units) return this.units;
    const { text, n, offsets } = this;
    const unitOf = collapsedUnits();
    const units = new Uint8Array(n);
    if (offsets) { for (let i = 0; i < n; i++) units[i] = unitOf[text.codePointAt(offsets[i])!]; }
    else for (let i = 0; i < n; i++) units[i] = unitOf[text.charCodeAt(i)];
    return this.units = units;
  }

  /** The collapsed units as a string. */
  get collapsed(): string {
    return this.collapsedText ??= latin1(this.collapsedBytes);
  }

  /**
   * The code points as single UTF-16 units. Whitespace beyond ASCII is U+000B. Code points beyond the BMP are U+FFFF
   * (which no regex names), the cased scripts among them that `deepseek-llm` names U+FFFE.
   */
  get plain(): string {
    return this.plainText ??= this.text.replace(/\ufffe/g, "\uffff").replace(WIDE_SPACE, "\v")
      .replace(/[\ud800-\udbff][\udc00-\udfff]/g, (pair) => isCasedAstral(pair.codePointAt(0)!) ? "\ufffe" : "\uffff");
  }
}

/** Whitespace beyond ASCII (`isWhitespace`). */
const WIDE_SPACE = /[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/g;

/** The letters beyond the BMP that the letter class of `deepseek-llm` lists. */
function isCasedAstral(cp: number): boolean {
  return (cp >= 0x10400 && cp <= 0x1044f) || (cp >= 0x104b0 && cp <= 0x104d3) || (cp >= 0x104d8 && cp <= 0x104fb) ||
    (cp >= 0x10c80 && cp <= 0x10cb2) || (cp >= 0x10cc0 && cp <= 0x10cf2) || (cp >= 0x118a0 && cp <= 0x118df) ||
    (cp >= 0x1e900 && cp <= 0x1e943);
}

const latin1Decoder = new TextDecoder("latin1");

/** Only for bytes outside 0x80-0x9f, where the encoding standard's "latin1" is Latin-1. */
export function latin1(units: Uint8Array): string {
  return latin1Decoder.decode(units);
}

/**
 * One cutting step: appends to `ends` the piece ends within `[start, end)` of `text`, in code point indices, ascending;
 * the last one is `end`. `start < end`.
 */
export type Step = (text: Prepared, start: number, end: number, ends: number[]) => void;

/** What each class means inside brackets of a regex that runs on collapsed text. */
const COLLAPSED_CLASS: Record<string, string> = {
  "\\p{N}": "0-9\\xd1",
  "\\p{L}": "A-Za-z\\xd2",
  "\\p{P}": "!-#%-*,-\\/:;?-@\\[-\\]_{}\\xd3",
  "\\p{M}": "\\xd4",
  "\\p{S}": "$+<->\\^`|~\\xd5",
  "\\s": "\\t-\\r ",
};

/** Rewrites the classes of a regex for the text it runs on; `\s` is ASCII there, wider whitespace having become U+000B. */
export function compile(source: string): RegExp {
  let inBrackets = false;
  const rewritten = source.replace(/\\p\{\w+\}|\\[sS]|\\.|\[|\]/g, (token) => {
    if (token === "[" || token === "]") inBrackets = token === "[";
    if (token === "\\S") return "[^\\t-\\r ]";
    const members = COLLAPSED_CLASS[token];
    return members === undefined ? token : inBrackets ? members : `[${members}]`;
  });
  return new RegExp(rewritten, "g");
}

/** A step that is one regex. */
export function regexStep(source: string): Step {
  const regex = compile(source);
  const isCollapsed = source.includes("\\p{");
  return (prepared, start, end, ends) => {
    const whole = isCollapsed ? prepared.collapsed : prepared.plain;
    const piece = start === 0 && end === prepared.n ? whole : whole.slice(start, end);
    let last = 0;
    regex.lastIndex = 0;
    for (let match = regex.exec(piece); match !== null; match = regex.exec(piece)) {
      if (match.index > last) ends.push(start + match.index);
      last = regex.lastIndex;
      ends.push(start + last);
    }
    if (start + last < end) ends.push(end);
  };
}

/** A step that is one regex whose matches leave no gaps and are never empty, which is cheaper to run. */
export function coveringRegexStep(source: string): Step {
  const regex = compile(source);
  const isCollapsed = source.includes("\\p{");
  return (prepared, start, end, ends) => {
    const whole = isCollapsed ? prepared.collapsed : prepared.plain;
    const piece = start === 0 && end === prepared.n ? whole : whole.slice(start, end);
    regex.lastIndex = 0;
    while (regex.test(piece)) ends.push(start + regex.lastIndex);
  };
}

/** Runs the steps one after the other; the result holds the piece ends as code point indices. */
export function split(prepared: Prepared, steps: readonly Step[]): number[] {
  let ends: number[] = [];
  if (prepared.n === 0) return ends;
  steps[0](prepared, 0, prepared.n, ends);
  for (let s = 1; s < steps.length; s++) {
    const next: number[] = [];
    let start = 0;
    for (const end of ends) {
      steps[s](prepared, start, end, next);
      start = end;
    }
    ends = next;
  }
  return ends;
}
