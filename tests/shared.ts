/**
 * Where the optional set of larger oracles lies: a folder named `shared` beside the repository. Tests that use it are
 * ignored, and say so, where it is absent; nothing the product does depends on it.
 * @module
 */

const candidate = new URL("../../shared/", import.meta.url).pathname;

/** Absolute path with a trailing slash, or undefined. */
export const sharedDir: string | undefined = (() => {
  try {
    return Deno.statSync(candidate + "formats").isDirectory ? candidate : undefined;
  } catch {
    return undefined;
  }
})();

/** Repository root, with a trailing slash. */
export const repoDir: string = new URL("../", import.meta.url).pathname;

/** Name and `ignore` of a test that needs something: where that is absent the test is skipped, and its name says why. */
export function needing(name: string, isThere: boolean, what: string): { name: string; ignore: boolean } {
  return isThere ? { name, ignore: false } : { name: `${name} (skipped: it needs ${what})`, ignore: true };
}

/** The same for the optional set of larger oracles. */
export function needingShared(name: string): { name: string; ignore: boolean } {
  return needing(name, sharedDir !== undefined, "../shared");
}
