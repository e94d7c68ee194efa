/**
 * Finds and opens a native library. Nothing is opened at import; the first `openLibrary` of a name does.
 * @module
 */
import { type ErrorCode, NativeError } from "../core/errors.ts";
import { SYMBOLS } from "./symbols.ts";

export type Library = Deno.DynamicLibrary<typeof SYMBOLS>;

/** `bl_status` by number. */
export const STATUS: readonly ErrorCode[] = [
  "native.ok",
  "native.argument",
  "native.program",
  "native.input",
  "native.memory",
  "native.device",
  "native.io",
  "native.unsupported",
  "native.data",
];

/** The ABI version this TypeScript was written for (`BL_ABI_VERSION`). */
export const ABI_VERSION = 4;

/** The backends a library can be built for; each library also has the host as device 0. */
export type LibraryName = "cpu" | "cuda";

const EXTENSION = Deno.build.os === "darwin" ? "dylib" : Deno.build.os === "windows" ? "dll" : "so";

/** Folders that may hold the libraries, in order: BLOOMERY_LIB_DIR, the build folder, beside the bundle. */
function folders(): string[] {
  const env = Deno.env.get("BLOOMERY_LIB_DIR");
  if (env) return [env];
  const here = import.meta.dirname;
  return here === undefined ? [] : [`${here}/../build`, here];
}

/** Path of a built library, or undefined. */
export function libraryPath(name: LibraryName): string | undefined {
  for (const folder of folders()) {
    const path = `${folder}/libbloomery_${name}.${EXTENSION}`;
    try {
      if (Deno.statSync(path).isFile) return path;
    } catch {
      // look in the next folder
    }
  }
  return undefined;
}

const opened = new Map<LibraryName, Library>();

/**
 * Opens a library once per process.
 * @throws {NativeError} `native.library_missing`, `native.library_load`, `native.abi_version`
 */
export function openLibrary(name: LibraryName): Library {
  const known = opened.get(name);
  if (known) return known;
  const path = libraryPath(name);
  if (path === undefined) {
    throw new NativeError(
      "native.library_missing",
      `Cannot find libbloomery_${name}.${EXTENSION} in ${folders().join(", ")}`,
      {
        at: { library: name, folders: folders() },
        hint: name === "cuda"
          ? "build it with `deno task build` on a machine that has nvcc, or use --device cpu"
          : "build it with `deno task build`, for the npm package with `deno run -A npm:@bloomery/bloomery/build` " +
            "(needs g++ or clang++)",
      },
    );
  }
  let library: Library;
  try {
    library = Deno.dlopen(path, SYMBOLS);
  } catch (cause) {
    throw new NativeError("native.library_load", `Cannot open ${path}: ${(cause as Error).message}`, {
      at: { path },
      hint: "rebuild the native library with `deno task build`",
      cause,
    });
  }
  const version = library.symbols.bl_abi_version();
  if (version !== ABI_VERSION) {
    library.close();
    throw new NativeError("native.abi_version", `${path} has ABI version ${version}, expected ${ABI_VERSION}`, {
      at: { path, found: version, expected: ABI_VERSION },
      hint: "rebuild the native library with `deno task build`",
    });
  }
  opened.set(name, library);
  return library;
}
