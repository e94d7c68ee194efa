/**
 * Cutting steps that are not plain regexes, or would be quadratic as such.
 * @module
 */

import { compile, coveringRegexStep, latin1, type Prepared, type Step } from "./split.ts";
import { collapsedUnits, UNIT } from "./unicode.ts";

const isDigitUnit = (unit: number) => (unit >= 0x30 && unit <= 0x39) || unit === UNIT.N;
const isSpaceUnit = (unit: number) => (unit >= 0x09 && unit <= 0x0d) || unit === 0x20;

/**
 * Runs of numbers become groups of three counted from the right. What lies before a run stays in one piece with its
 * first group: a later step sees the two together.
 */
export const groupDigitsFromRight: Step = (prepared, start, end, ends) => {
  const units = prepared.collapsedBytes;
  let last = start;
  for (let i = start; i < end;) {
    if (!isDigitUnit(units[i])) {
      i++;
      continue;
    }
    let stop = i;
    while (stop < end && isDigitUnit(units[stop])) stop++;
    for (let cut = i + ((stop - i) % 3 || 3); cut <= stop; cut += 3) ends.push(cut);
    i = last = stop;
  }
  if (last < end) ends.push(end);
};

/** Cuts before every position followed by a multiple of three ASCII digits that ends the run of digits. */
export const cutThousands: Step = (prepared, start, end, ends) => {
  const text = prepared.plain;
  const isDigit = (i: number) => text.charCodeAt(i) >= 0x30 && text.charCodeAt(i) <= 0x39;
  for (let i = start; i < end;) {
    if (!isDigit(i)) {
      i++;
      continue;
    }
    let stop = i;
    while (stop < end && isDigit(stop)) stop++;
    for (let cut = i + (stop - i) % 3; cut < stop; cut += 3) if (cut > start) ends.push(cut);
    i = stop;
  }
  ends.push(end);
};

/** Cuts off the whitespace at the piece's end: `\s+$`. */
export const cutTrailingSpace: Step = (prepared, start, end, ends) => {
  const text = prepared.plain;
  let cut = end;
  while (cut > start && isSpaceUnit(text.charCodeAt(cut - 1))) cut--;
  if (cut > start) ends.push(cut);
  if (cut < end) ends.push(end);
};

/**
 * Cuts runs of whitespace without line ends, as the step before left them, into 512, 256, ... 4, 2 and 1, longest
 * first. (In the run's last place before a word the step before has left that one space out.)
 */
export const halveSpaces: Step = (prepared, start, end, ends) => {
  const text = prepared.collapsed;
  for (let i = start; i < end; i++) {
    const unit = text.charCodeAt(i);
    if (!isSpaceUnit(unit) || unit === 0x0a || unit === 0x0d) {
      ends.push(end);
      return;
    }
  }
  for (let at = start, size = 512; at < end;) {
    while (size > end - at) size >>= 1;
    at += size;
    ends.push(at);
  }
};

/**
 * `exaone-moe`: a word goes on over marks and over single spaces between letters. That part is a loop here: as a regex,
 * its stack grows with the text.
 */
export const exaoneStep: Step = (prepared, start, end, ends) => {
  const text = prepared.collapsed.slice(start, end);
  const isLetter = (unit: number) =>
    unit === UNIT.L || (unit >= 0x41 && unit <= 0x5a) || (unit >= 0x61 && unit <= 0x7a);
  EXAONE.lastIndex = 0;
  for (let match = EXAONE.exec(text); match !== null; match = EXAONE.exec(text)) {
    let at = EXAONE.lastIndex;
    if (match[1] !== undefined) {
      for (; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        if (isLetter(unit) || unit === UNIT.M) continue;
        if (unit !== 0x20 || at + 1 === text.length || !isLetter(text.charCodeAt(at + 1))) break;
      }
      EXAONE.lastIndex = at;
    }
    ends.push(start + at);
  }
};

const EXAONE = compile(
  "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|([^\\r\\n\\p{L}\\p{N}]?\\p{L})|\\p{N}|" +
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
);

const HAN: readonly (readonly [number, number])[] = [
  [0x4e00, 0x9fff],
  [0x3400, 0x4dbf],
  [0x20000, 0x2a6df],
  [0x2a700, 0x2b73f],
  [0x2b740, 0x2b81f],
  [0x2b820, 0x2ceaf],
  [0x2ceb0, 0x2ebef],
  [0xf900, 0xfaff],
  [0x2f800, 0x2fa1f],
];
const isHan = (cp: number) => cp >= 0x3400 && HAN.some(([low, high]) => cp >= low && cp <= high);

/** A covering regex over collapsed text whose units were changed for some code points. */
function remappedStep(source: string, remap: (cp: number, unit: number) => number): Step {
  const step = coveringRegexStep(source);
  const remapped = new WeakMap<Prepared, { n: number; collapsed: string }>();
  return (prepared, start, end, ends) => {
    let text = remapped.get(prepared);
    if (!text) {
      const unitOf = collapsedUnits();
      const units = new Uint8Array(prepared.n);
      for (let i = 0; i < units.length; i++) {
        const cp = prepared.codePoint(i);
        units[i] = remap(cp, unitOf[cp]);
      }
      remapped.set(prepared, text = { n: prepared.n, collapsed: latin1(units) });
    }
    step(text as Prepared, start, end, ends);
  };
}

/**
 * `kimi-k2` as llama.cpp reads it: runs of Han, words of other letters with a contraction, numbers by three. (The
 * release in addition cuts words where upper case follows lower case.) \xd6 is a Han letter, \xd7 Han but no letter.
 */
export const kimiStep: Step = remappedStep(
  "[\\xd6\\xd7]+|[^\\r\\n\\p{L}\\xd6\\p{N}]?\\p{L}+(?:'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL])?|\\p{N}{1,3}|" +
    " ?[^\\s\\p{L}\\xd6\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|[^]",
  (cp, unit) => !isHan(cp) ? unit : unit === UNIT.L ? 0xd6 : 0xd7,
);

/** `k2-horizon`: as llama 3, but marks and the zero-width joiners (\xd6) count as letters of a word. */
export const horizonStep: Step = remappedStep(
  "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}\\xd6]+|\\p{N}{1,3}|" +
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  (cp, unit) => cp === 0x200c || cp === 0x200d ? 0xd6 : unit,
);

const isUpper = (cp: number) => /[\p{Lu}\p{Lt}]/u.test(String.fromCodePoint(cp));
const isLower = (cp: number) => /\p{Ll}/u.test(String.fromCodePoint(cp));

/** Letters by case: \xd6 is upper or title case, \xd7 lower, \xd2 neither; Han can be kept apart as in `kimiStep`. */
function casedUnit(cp: number, unit: number, keepsHan: boolean): number {
  if (keepsHan && isHan(cp)) return unit === UNIT.L ? 0xd8 : 0xd9;
  if (unit !== UNIT.L) return unit;
  return isUpper(cp) ? 0xd6 : isLower(cp) ? 0xd7 : unit;
}

const LETTER = "A-Za-z\\xd2\\xd6\\xd7\\xd8";
const CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";

/**
 * A step as the releases of GPT-4o's family define it: words are cut where upper case follows lower case in every
 * script, and marks are part of words.
 */
export function releasedCasedStep(
  options: { contractions: boolean; number: string; slash: boolean; han: boolean },
): Step {
  const contraction = options.contractions ? CONTRACTION : "";
  const upper = "[A-Z\\xd6\\xd2\\xd4]";
  const lower = "[a-z\\xd7\\xd2\\xd4]";
  return remappedStep(
    (options.han ? "[\\xd8\\xd9]+|" : "") +
      `[^\\r\\n${LETTER}\\p{N}]?${upper}*${lower}+${contraction}|[^\\r\\n${LETTER}\\p{N}]?${upper}+${lower}*${contraction}|` +
      `${options.number}| ?[^\\s${LETTER}\\p{N}]+[\\r\\n${
        options.slash ? "/" : ""
      }]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|[^]`,
    (cp, unit) => casedUnit(cp, unit, options.han),
  );
}
