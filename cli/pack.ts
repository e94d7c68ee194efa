/**
 * `bloomery pack`: the packed form of a model, which the host maps as it is.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import { COMMON } from "./flags.ts";
import { refuseExisting } from "./overwrite.ts";
import { formatAmount } from "./progress.ts";

export const pack: Command = {
  name: "pack",
  summary: "Write the packed form of a model beside it, so that the host starts at once",
  arguments: [{ name: "file", help: "GGUF file, or the first of a split set" }],
  flags: [COMMON.overwrite, COMMON.config, COMMON.json, COMMON.quiet],
  epilog:
    "The host's kernels want matrices in another order than files have them, and keep a copy in memory. FILE.packed has that copy: it is\n" +
    "mapped as it is, shared by all processes, and the system drops pages of it that memory does not hold, so that a model can be larger\n" +
    "than memory. Experts that are read while tokens are computed come from it too. It is used wherever it lies beside its model, and\n" +
    "refused where the model has changed since.\n\nExample:\n  bloomery pack qwen3-8b-Q4_K_M.gguf",

  async run({ args, flags, io }) {
    const { openGguf } = await import("../core/gguf/read.ts");
    const { packedPath } = await import("../core/gguf/packed.ts");
    const { packModel } = await import("../core/engine/pack.ts");
    const { openNativeBackend } = await import("../ffi/mod.ts");
    using file = openGguf(args[0]);
    refuseExisting(packedPath(file.name), flags);
    using backend = openNativeBackend("cpu");
    using _ = io.hold();
    let bar: ReturnType<typeof io.bar> | undefined;
    const packed = await packModel(file, backend, {
      signal: io.signal,
      onProgress: (done, total) => (bar ??= io.bar("pack", total, "B")).update(done),
    });
    if (packed === undefined) {
      bar?.cancel();
      return EXIT.interrupted;
    }
    bar?.stop();
    if (flags.bool("json")) io.json({ schema: "bloomery.pack/1", model: file.name, ...packed });
    else io.out(`${packed.path}: ${packed.n_tensor} tensors, ${formatAmount(packed.bytes, "B")}\n`);
    return EXIT.done;
  },
};
