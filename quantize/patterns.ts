/**
 * Patterns of names, as `--take`, `--only`, `--drop` and their like take them.
 * @module
 */

/** One expression for names that fit a pattern, in which `*` is any text; undefined without patterns. */
export function globs(patterns: readonly string[] | undefined): RegExp | undefined {
  if (!patterns || patterns.length === 0) return undefined;
  const one = (pattern: string) => pattern.split("*").map(RegExp.escape).join(".*");
  return new RegExp(`^(?:${patterns.map(one).join("|")})$`, "s");
}
