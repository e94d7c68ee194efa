/**
 * Reading a stream whose chunks may end anywhere, as straight-line code: a parser is a generator that yields whenever
 * it needs more text, and what it says depends on the text alone, never on the chunks.
 * @module
 */

import type { ToolSet } from "./call.ts";
import { JsonScanner } from "./json_scan.ts";

/** A parser step: yields for more text. */
export type Reading<T> = Generator<void, T, void>;

/** What text is: undecided, reasoning, the answer, markup that may still turn out to be text, or a call. */
export type Place = "start" | "reasoning" | "answer" | "head" | "call";

/** The text so far and how far it is read. */
export class Source {
  /** What the text is at its end, as far as that is certain. */
  place: Place = "start";
  /** Where the answer begins behind the reasoning, and where its shown text may begin; undefined until certain. */
  answerFrom: number | undefined;
  shownFrom: number | undefined;
  /** Position of the marker behind which a call is being read. */
  callFrom: number | undefined;
  text = "";
  pos = 0;
  /**
   * Begin of the text that is not explained yet: the marker that `until` found with the white space dropped before it, and
   * later the end of each complete call.
   */
  mark = 0;
  /** The text from the mark on may still become content and must be kept. */
  held = false;
  ended = false;

  /** Number of characters that `forget` dropped. */
  #dropped = 0;

  get readTo(): number {
    return this.offset(this.pos);
  }

  /** Turns a position within `text` into one within the whole answer. */
  offset(pos: number): number {
    return this.#dropped + pos;
  }

  /** The text from the position on is not reasoning. */
  beginAnswer(): void {
    this.place = "answer";
    this.callFrom = undefined;
    this.answerFrom ??= this.offset(this.pos);
  }

  /** The text from the position on may be shown. */
  beginShown(): void {
    this.beginAnswer();
    this.shownFrom ??= this.offset(this.pos);
  }

  /** A call is certain. */
  beginCall(): void {
    this.answerFrom ??= this.callFrom;
    this.shownFrom ??= this.callFrom;
    this.place = "call";
  }

  /** Text from `from` to the position read. */
  since(from: number): string {
    return this.text.slice(from, this.pos);
  }

  /** Drops the text that is read, so that a long answer needs little memory. */
  forget(): void {
    if (this.held) return;
    this.#dropped += this.pos;
    this.text = this.text.slice(this.pos);
    this.pos = this.mark = 0;
  }
}

const white = (c: string): boolean => c === " " || c === "\n" || c === "\t" || c === "\r";

/** Length of the longest end of `text` that is a proper beginning of a marker. */
function partial(text: string, from: number, markers: readonly string[]): number {
  const longest = Math.min(text.length - from, Math.max(0, ...markers.map((m) => m.length - 1)));
  for (let n = longest; n > 0; n--) {
    const end = text.slice(text.length - n);
    if (markers.some((m) => m.length > n && m.startsWith(end))) return n;
  }
  return 0;
}

/** The earliest marker at or after `from`; the longest of those that begin there. */
export function earliest(
  text: string,
  from: number,
  markers: readonly string[],
): { at: number; marker: string } | undefined {
  let best: { at: number; marker: string } | undefined;
  for (const marker of markers) {
    const at = text.indexOf(marker, from);
    if (at < 0) continue;
    if (!best || at < best.at || (at === best.at && marker.length > best.marker.length)) best = { at, marker };
  }
  return best;
}

/**
 * Reads text up to a marker, which is consumed and returned; undefined at the end of the stream.
 * Markers must not be beginnings of one another.
 *
 * @param show Receives the text as soon as it is certain. White space before a marker is dropped when `trim` is set:
 * it belongs to the markup.
 * @param awaited Markers that the end of the stream may have cut: two or more of a marker's first characters at the end are
 * dropped.
 */
export function* until(
  s: Source,
  markers: readonly string[],
  show: (text: string) => void,
  trim: boolean,
  awaited: readonly string[] = [],
): Reading<string | undefined> {
  while (true) {
    const found = earliest(s.text, s.pos, markers);
    if (found) {
      let end = found.at;
      while (trim && end > s.pos && white(s.text[end - 1])) end--;
      const from = s.pos;
      s.pos = end; // read before it is shown
      if (end > from) show(s.text.slice(from, end));
      if (!s.held) s.mark = end;
      s.callFrom = s.offset(found.at);
      s.pos = found.at + found.marker.length;
      return found.marker;
    }
    const held = partial(s.text, s.pos, s.ended ? awaited : markers);
    const cut = s.ended && held > 1;
    let end = s.text.length - (s.ended && !cut ? 0 : held);
    while (trim && (!s.ended || cut) && end > s.pos && white(s.text[end - 1])) end--;
    if (end > s.pos) {
      const from = s.pos;
      s.pos = end;
      show(s.text.slice(from, end));
    }
    if (s.ended) {
      s.pos = s.text.length;
      return undefined;
    }
    s.forget(); // text that was shown is not read again
    yield;
  }
}

/** Reads one of the literals if the text goes on with it; undefined, and nothing read, otherwise. */
export function* literal(s: Source, literals: readonly string[]): Reading<string | undefined> {
  while (true) {
    const rest = s.text.slice(s.pos, s.pos + Math.max(...literals.map((l) => l.length)));
    const waiting = !s.ended && literals.some((l) => l.length > rest.length && l.startsWith(rest));
    if (!waiting) {
      const hits = literals.filter((l) => rest.startsWith(l));
      const longest = hits.reduce<string | undefined>(
        (a, b) => a === undefined || b.length > a.length ? b : a,
        undefined,
      );
      if (longest !== undefined) s.pos += longest.length;
      return longest;
    }
    yield;
  }
}

/** Reads white space. */
export function* space(s: Source): Reading<void> {
  while (true) {
    while (s.pos < s.text.length && white(s.text[s.pos])) s.pos++;
    if (s.pos < s.text.length || s.ended) return;
    yield;
  }
}

/** Reads an optional marker with white space before it; the text up to there is explained then. */
export function* closing(s: Source, markers: readonly string[]): Reading<void> {
  const from = s.pos;
  yield* space(s);
  if ((yield* literal(s, markers)) === undefined) s.pos = cutOff(s, markers) ? s.text.length : from;
  s.mark = s.pos;
}

/**
 * Reads one of the markers within a section of calls, with white space before it; undefined for other text.
 * @param complete The section has a complete call already, so it may end without its marker: other text is left unread
 * then, and a marker that the end of the stream cut is dropped.
 */
export function* part(s: Source, markers: readonly string[], complete: boolean): Reading<string | undefined> {
  const from = s.pos;
  yield* space(s);
  const marker = yield* literal(s, markers);
  if (marker === undefined && complete) s.pos = cutOff(s, markers) ? s.text.length : from;
  return marker;
}

/** Whether the stream ended within one of the markers. */
export function cutOff(s: Source, markers: readonly string[]): boolean {
  const rest = s.text.slice(s.pos);
  return s.ended && rest !== "" && markers.some((m) => m.startsWith(rest));
}

/**
 * Reads a tool's name and the marker behind it. Returns undefined, and reads nothing, as soon as the text cannot be a
 * tool's name.
 * @param plain Removes the text that the family writes around the name.
 */
export function* toolName(
  s: Source,
  markers: readonly string[],
  tools: ToolSet,
  plain: (text: string) => string = (text) => text,
): Reading<{ name: string; text: string; marker: string } | undefined> {
  while (true) {
    const found = earliest(s.text, s.pos, markers);
    const end = found?.at ?? s.text.length - partial(s.text, s.pos, markers);
    const text = s.text.slice(s.pos, end).trim(), name = plain(text);
    if (found) {
      if (!tools.has(name)) return undefined;
      s.pos = found.at + found.marker.length;
      return { name, text, marker: found.marker };
    }
    if (s.ended || !tools.begins(name)) return undefined;
    yield;
  }
}

/** Reads text up to a marker and returns it without the marker; undefined, all read, where the marker never comes. */
export function* before(s: Source, markers: readonly string[]): Reading<{ text: string; marker: string } | undefined> {
  let from = s.pos;
  const longest = Math.max(...markers.map((m) => m.length));
  while (true) {
    const found = earliest(s.text, from, markers);
    // No marker is the beginning of another, so the first one found is the right one.
    if (found) {
      const text = s.text.slice(s.pos, found.at);
      s.pos = found.at + found.marker.length;
      return { text, marker: found.marker };
    }
    if (s.ended) {
      s.pos = s.text.length;
      return undefined;
    }
    from = Math.max(s.pos, s.text.length - longest + 1);
    yield;
  }
}

/** Reads one JSON value and returns its text; undefined, at the position of the first error, when there is one. */
export function* jsonValue(s: Source): Reading<string | undefined> {
  yield* space(s);
  const start = s.pos, scanner = new JsonScanner();
  while (true) {
    s.pos = scanner.scan(s.text, s.pos);
    if (scanner.done) return s.text.slice(start, s.pos).trimEnd();
    if (scanner.bad || s.ended) return undefined;
    yield;
  }
}
