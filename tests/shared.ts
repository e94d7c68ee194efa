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
