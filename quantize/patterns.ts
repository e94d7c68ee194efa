/**
 * Patterns of names, as `--take`, `--only`, `--drop` and their like take them.
 * @module
 */

/** Patterns that fit none of the names: probably mistyped. */
export function unmatched(patterns: readonly string[] | undefined, names: Iterable<string>): string[] {
  const all = [...names];
  return (patterns ?? []).filter((pattern) => !all.some((name) => globs([pattern])!.test(name)));
}

/** One expression for names that fit a pattern, in which `*` is any text; undefined without patterns. */
export function globs(patterns: readonly string[] | undefined): RegExp | undefined {
  if (!patterns || patterns.length === 0) return undefined;
  const one = (pattern: string) => pattern.split("*").map(RegExp.escape).join(".*");
  return new RegExp(`^(?:${patterns.map(one).join("|")})$`, "s");
}
