/**
 * `bloomery score --format kld`: whole rows of log-probabilities, in llama-perplexity's format.
 * @module
 */
import type { Engine } from "../core/engine/mod.ts";
import { EvalError } from "../core/errors.ts";
import { encodeKldHeader, KldFile, type KldHeader, kldSkip } from "../eval/kld_file.ts";
import { kldChunks } from "../eval/rows.ts";
import { inGroups } from "../eval/score.ts";
import { meanOf } from "../eval/stats.ts";
import { scoredPositions, type Window } from "../eval/windows.ts";
import type { Flags } from "./command.ts";
import type { Io } from "./io.ts";

function mismatch(path: string, what: string): EvalError {
  return new EvalError("eval.resume_mismatch", `Cannot continue ${path}: ${what}`, {
    at: { file: path },
    hint: "write to another file, or use --restart",
  });
}

/**
 * How many windows an existing file holds, and their means. The format has no place for the model's name, so the last window is
 * run once more: its bytes are the same where model, device and settings are.
 * @throws {EvalError} `eval.resume_mismatch`
 */
async function existing(
  engine: Engine,
  windows: readonly Window[],
  header: KldHeader,
  path: string,
): Promise<number[]> {
  using file = KldFile.open(path);
  for (const field of ["n_ctx", "n_vocab", "n_chunk"] as const) {
    if (file.header[field] !== header[field]) {
      throw mismatch(path, `${field} is ${file.header[field]}, expected ${header[field]}`);
    }
  }
  if (file.header.ids.some((id, i) => id !== header.ids[i])) throw mismatch(path, "it has other tokens");
  const n = file.n_whole;
  if (n > 0) {
    const found = file.chunk(n - 1), [{ bytes }] = await kldChunks(engine, [windows[n - 1]]);
    if (found.some((x, i) => x !== bytes[i])) {
      throw mismatch(path, `window ${n - 1} has other numbers: another model, device or cache type wrote it`);
    }
  }
  return Array.from({ length: n }, (_, w) => {
    const { ids, skip } = windows[w];
    return -meanOf(file.rows(w).map(({ scale, least, codes }, i) => scale * codes[ids[skip + i + 1]] + least));
  });
}

function hasBytes(path: string): boolean {
  try {
    return Deno.statSync(path).size > 0;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/**
 * Writes the rows of windows, or goes on with a file that has some.
 * @param ids The tokens of all windows as the texts have them, as the file's head lists them.
 */
export async function scoreWholeRows(
  engine: Engine,
  windows: readonly Window[],
  ids: Int32Array,
  path: string,
  flags: Flags,
  io: Io,
): Promise<{ results: number[]; counts: number[] }> {
  const n_ctx = flags.num("window")!;
  const header = { n_ctx, n_vocab: engine.n_vocab, n_chunk: windows.length, ids };
  const found = !flags.bool("overwrite") && hasBytes(path);
  const results = found ? await existing(engine, windows, header, path) : [];
  using out = await Deno.open(path, { write: true, create: true, truncate: !found });
  const write = async (bytes: Uint8Array) => {
    for (let at = 0; at < bytes.length;) at += await out.write(bytes.subarray(at));
  };
  const from = results.length;
  if (found) {
    using file = KldFile.open(path);
    await out.truncate(file.end(from));
    await out.seek(0, Deno.SeekMode.End);
    if (from > 0) io.note(`${path}: continuing after window ${from} of ${windows.length}`);
  } else await write(encodeKldHeader(header));
  const bar = io.bar("score", windows.length * n_ctx, "tok");
  const limits = { n_seq: flags.num("at-once")!, n_ubatch: engine.n_ubatch };
  for (const group of inGroups(windows.slice(from), limits)) {
    for (const { bytes, logprob } of await kldChunks(engine, group)) {
      await write(bytes);
      results.push(-meanOf(logprob));
    }
    bar.update(results.length * n_ctx, from * n_ctx);
  }
  bar.stop();
  return { results, counts: results.map(() => scoredPositions(n_ctx, kldSkip(n_ctx))) };
}
