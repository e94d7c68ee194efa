/**
 * `--version`: version, commit, ABI and devices.
 * @module
 */
import { ABI_VERSION, buildInfo, libraryPath, openNativeBackend } from "../ffi/mod.ts";
import type { LibraryName } from "../ffi/library.ts";
import { COMMIT } from "./commit.ts";

/** That of deno.json, which is not part of the npm package. */
export const VERSION = "0.1.0";

/** One fact a line. */
export function versionText(): string {
  const lines = [`bloomery ${VERSION} (${COMMIT})`, `abi ${ABI_VERSION}`];
  for (const name of ["cpu", "cuda"] as LibraryName[]) {
    if (libraryPath(name) === undefined) {
      lines.push(`libbloomery_${name}: not built`);
      continue;
    }
    try {
      const info = buildInfo(name);
      using backend = openNativeBackend(name);
      lines.push(`libbloomery_${name}: ${info.compiler}`);
      for (const d of backend.devices) {
        if (name === "cuda" && d.kind === "cpu") continue;
        const memory = `${(d.memory_bytes / 2 ** 30).toFixed(1)} GiB`;
        lines.push(
          `  device ${d.kind === "cpu" ? "cpu" : `cuda:${d.index - 1}`}: ${d.name}, ${memory}, ${d.features.join(" ")}`,
        );
      }
    } catch (error) {
      lines.push(`libbloomery_${name}: ${(error as Error).message}`);
    }
  }
  return lines.join("\n") + "\n";
}
