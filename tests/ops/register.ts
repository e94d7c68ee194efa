/**
 * Registers the op cases as tests of one device: a test a case.
 * @module
 */
import type { Backend } from "../../core/program/backend.ts";
import { openReferenceBackend } from "../../core/program/reference.ts";
import { openBackend, type OpenedBackend } from "../../ffi/mod.ts";
import type { OpCase } from "./case.ts";
import { opCases } from "./cases/mod.ts";
import { checkCase } from "./run.ts";

/** Fresh numbers in every run; BLOOMERY_SEED repeats one. */
export const seed = Number(Deno.env.get("BLOOMERY_SEED") ?? Date.now() % 1_000_000);

/**
 * Tests of `--device name`; on the CPU with 1 thread, and with 3 by bits.
 * @param options `bound`: the device's own bound of a case where it is above the case's; `without`: cases whose ops it refuses; `same`: cases
 * of which the host gives the same bits
 */
export function registerOpTests(
  name: string,
  options: {
    ignore?: boolean;
    bound?: (c: OpCase) => number;
    without?: (c: OpCase) => boolean;
    same?: (c: OpCase) => boolean;
  } = {},
): void {
  const threads = name === "cpu";
  const opened: OpenedBackend[] = [];
  // Opened at the first test: registering must not need a library.
  const open = (): OpenedBackend[] => {
    if (opened.length === 0) {
      opened.push(openBackend(name, threads ? { threads: 1 } : {}));
      if (threads) opened.push(openBackend(name, { threads: 3 }));
    }
    return opened;
  };
  const reference: Backend = openReferenceBackend();
  for (const listed of opCases("test")) {
    if (options.without?.(listed)) continue;
    const c = { ...listed, nmse: Math.max(listed.nmse, options.bound?.(listed) ?? 0) };
    Deno.test({
      name: `${name}: ${c.name}`,
      ignore: options.ignore ?? false,
      sanitizeResources: false,
      fn: async () => {
        const [one, three] = open();
        try {
          await checkCase(c, {
            backend: one.backend,
            device: one.device.index,
            ...(three ? { other: three.backend } : {}),
            reference,
            ...(options.same?.(c) ? { same: one.backend } : {}),
            native: one.backend,
            seed,
          });
        } catch (error) {
          throw new Error(`with BLOOMERY_SEED=${seed}: ${(error as Error).message}`, { cause: error });
        }
      },
    });
  }
}
