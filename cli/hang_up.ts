/**
 * SIGHUP, which asks a service to read its settings again.
 * @module
 */
import type { Io } from "./io.ts";

/** Calls a function at each SIGHUP until the result is disposed. What it throws is told, and leaves everything as it was. */
export function onHangUp(io: Pick<Io, "note" | "warn">, reload: () => void): Disposable {
  if (Deno.build.os === "windows") return { [Symbol.dispose]() {} }; // it has no such signal
  const listener = () => {
    try {
      reload();
      io.note("read keys and the chat template again");
    } catch (error) {
      io.warn(
        `keys and the chat template stay as they were: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  };
  Deno.addSignalListener("SIGHUP", listener);
  return {
    [Symbol.dispose]() {
      Deno.removeSignalListener("SIGHUP", listener);
    },
  };
}
