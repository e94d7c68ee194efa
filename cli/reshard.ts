/**
 * What split, merge and splice have in common: flags, progress, the closing report.
 * @module
 */
import type { ReshardOptions, ReshardResult } from "../quantize/reshard.ts";
import { EXIT, type Flag, type Invocation } from "./command.ts";
import { COMMON } from "./flags.ts";
import { formatAmount } from "./progress.ts";
import { tensorProgress } from "./tensor_progress.ts";

export const RESHARD_FLAGS: readonly Flag[] = [
  COMMON.overwrite,
  COMMON.config,
  { ...COMMON.json, help: "print one JSON object a line on stdout: events, then the result" },
  COMMON.quiet,
];

/** Runs the work under a bar and reports what was made. */
export async function reshard<R extends ReshardResult>(
  name: string,
  { flags, io }: Invocation,
  work: (options: ReshardOptions) => Promise<R>,
): Promise<number> {
  using _ = io.hold();
  const start = performance.now();
  const progress = tensorProgress(name, flags, io);
  const result = await work({
    overwrite: flags.bool("overwrite"),
    signal: io.signal,
    onProgress: (p) => {
      const type = p.tensor.type.name;
      progress.update({ ...p, name: p.tensor.name, what: type, facts: { type } });
    },
  }).finally(() => progress.stop());
  const seconds = (performance.now() - start) / 1000;
  const { paths, tensors, bytes, ...more } = result;
  if (flags.bool("json")) {
    io.json({ schema: `bloomery.${name}.v1`, paths, n_tensors: tensors, bytes, ...more, seconds });
  } else {
    const where = paths.length === 1 ? paths[0] : `${paths.length} files, ${paths[0]} and so on`;
    io.note(`wrote ${where}: ${tensors} tensors, ${formatAmount(bytes, "B")} in ${seconds.toFixed(1)} s`);
  }
  return EXIT.done;
}
