/**
 * Suggestions for names that were mistyped.
 * @module
 */

/** Insertions, deletions, replacements and swaps of neighbours that turn one word into the other. */
export function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      next[j] = Math.min(replaced, row[j] + 1, next[j - 1] + 1);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        next[j] = Math.min(next[j], before[j - 2] + 1);
      }
    }
    before = row;
    row = next;
  }
  return row[b.length];
}

/** The known name that is most likely meant, or undefined where none is close. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  const plain = (s: string) => s.toLowerCase().replace(/^-+/, "").replaceAll("_", "-");
  const wanted = plain(name);
  const limit = Math.max(1, Math.floor(wanted.length / 3));
  let best: string | undefined;
  let least = limit + 1;
  for (const candidate of known) {
    const distance = editDistance(wanted, plain(candidate));
    if (distance < least) [best, least] = [candidate, distance];
  }
  if (best !== undefined || wanted.length < 3) return best;
  // A part of a longer name: `context` for `context-size`.
  return [...known].find((candidate) => plain(candidate).startsWith(wanted));
}
