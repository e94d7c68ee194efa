/**
 * Whole rows of logits of windows, some at a time, because all of them would fill the memory.
 * @module
 */
import type { Engine, StepOutput } from "../core/engine/mod.ts";
import { encodeKldRow, kldRowBytes } from "./kld_file.ts";
import { scoredPositions, type Window } from "./windows.ts";

/** Logits of this many bytes are held at once per model. */
const LOGIT_BYTES = 64 * 2 ** 20;

/** Rows of one of several windows. */
export interface ScoredRows {
  /** Which of the windows. */
  readonly window: number;
  /** Of consecutive scored positions, from the last ones on; whole logits, and each row's target is the next token. */
  readonly out: StepOutput;
}

/**
 * Rows of the scored positions of windows that run as sequences of the same steps, some at a time. What a window gives does not
 * depend on the others, by bits; a window's rows come in their order.
 * @param bytes Most logits that a step brings back.
 */
export async function* scoredRows(
  engine: Engine,
  windows: readonly Window[],
  bytes: number = LOGIT_BYTES,
): AsyncGenerator<ScoredRows, void> {
  const most = Math.max(1, Math.floor(bytes / (4 * engine.n_vocab)));
  using disposables = new DisposableStack();
  const sequences = windows.map(() => disposables.use(engine.createSequence()));
  const skipped = windows.flatMap(({ ids, skip }, i) =>
    skip === 0 ? [] : [{ sequence: sequences[i], tokens: ids.subarray(0, skip), output: "none" as const, keep: false }]
  );
  if (skipped.length > 0) await engine.step(skipped);
  const ends = windows.map(({ ids, skip }) => skip + scoredPositions(ids.length, skip));
  const at = windows.map((w) => w.skip);
  for (let first = 0; first < windows.length;) {
    /** The windows of this step, with the position where each one's rows end. */
    const parts: { window: number; to: number }[] = [];
    for (let window = first, room = most; window < windows.length && room > 0; window++) {
      const to = Math.min(ends[window], at[window] + room);
      room -= to - at[window];
      parts.push({ window, to });
    }
    const outputs = await engine.step(parts.map(({ window, to }) => ({
      sequence: sequences[window],
      tokens: windows[window].ids.subarray(at[window], to),
      output: "all" as const,
      want: "logits" as const,
      targets: windows[window].ids.subarray(at[window] + 1, to + 1),
      keep: false,
    })));
    for (const [i, { window, to }] of parts.entries()) {
      at[window] = to;
      if (to === ends[window]) first = window + 1;
      yield { window, out: outputs[i] };
    }
  }
}

/** Windows' rows as chunks of a file of whole rows, and the log-probabilities of their tokens. */
export async function kldChunks(
  engine: Engine,
  windows: readonly Window[],
): Promise<{ bytes: Uint8Array<ArrayBuffer>; logprob: number[] }[]> {
  const { n_vocab } = engine, size = kldRowBytes(n_vocab);
  const chunks = windows.map((w) => ({
    bytes: new Uint8Array(scoredPositions(w.ids.length, w.skip) * size),
    logprob: [] as number[],
  }));
  for await (const { window, out } of scoredRows(engine, windows)) {
    const { bytes, logprob } = chunks[window];
    for (let r = 0; r < out.n_rows; r++) {
      const row = out.full!.subarray(r * n_vocab, (r + 1) * n_vocab);
      encodeKldRow(row, out.lse[r], bytes, logprob.length * size);
      logprob.push(out.targetLogprob[r]);
    }
  }
  return chunks;
}
