/**
 * Whole rows of logits of a window, some at a time, because all of them would fill the memory.
 * @module
 */
import type { Engine, StepOutput } from "../core/engine/mod.ts";
import { encodeKldRow, kldRowBytes } from "./kld_file.ts";
import { scoredPositions, type Window } from "./windows.ts";

/** Logits of this many bytes are held at once per model. */
const LOGIT_BYTES = 64 * 2 ** 20;

/** Rows of a window's scored positions with whole logits, some at a time; each row's target is the next token. */
export async function* scoredRows(engine: Engine, w: Window): AsyncGenerator<StepOutput, void> {
  const { skip } = w;
  const n = scoredPositions(w.ids.length, skip);
  const rows = Math.max(1, Math.floor(LOGIT_BYTES / (4 * engine.n_vocab)));
  using sequence = engine.createSequence();
  if (skip > 0) await engine.step([{ sequence, tokens: w.ids.subarray(0, skip), output: "none", keep: false }]);
  for (let at = skip; at < skip + n; at += rows) {
    const end = Math.min(at + rows, skip + n);
    const [out] = await engine.step([{
      sequence,
      tokens: w.ids.subarray(at, end),
      output: "all",
      want: "logits",
      targets: w.ids.subarray(at + 1, end + 1),
      keep: false,
    }]);
    yield out;
  }
}

/** A window's rows as a chunk of a file of whole rows, and the log-probabilities of its tokens. */
export async function kldChunk(
  engine: Engine,
  w: Window,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; logprob: number[] }> {
  const { n_vocab } = engine, size = kldRowBytes(n_vocab);
  const bytes = new Uint8Array(scoredPositions(w.ids.length, w.skip) * size);
  const logprob: number[] = [];
  for await (const out of scoredRows(engine, w)) {
    for (let r = 0; r < out.n_rows; r++) {
      const row = out.full!.subarray(r * n_vocab, (r + 1) * n_vocab);
      encodeKldRow(row, out.lse[r], bytes, logprob.length * size);
      logprob.push(out.targetLogprob[r]);
    }
  }
  return { bytes, logprob };
}
