/**
 * One answer on the terminal: printed as it comes, and how it ended.
 * @module
 */
import type { Piece, StopReason } from "../core/language_model.ts";
import type { Io } from "./io.ts";

export interface Answer {
  readonly text: string;
  readonly n_tokens: number;
  readonly reason: StopReason;
}

/** Prints pieces as they come, then the rate. */
export async function printAnswer(pieces: AsyncGenerator<Piece, StopReason>, io: Io): Promise<Answer> {
  let text = "";
  let n_tokens = 0;
  const start = performance.now();
  for (;;) {
    const next = await pieces.next();
    if (next.done) {
      if (!text.endsWith("\n")) io.out("\n");
      io.note(`${n_tokens} tokens, ${(n_tokens / Math.max(performance.now() - start, 1) * 1000).toFixed(1)} tok/s`);
      return { text, n_tokens, reason: next.value };
    }
    const { id, text: piece } = next.value;
    if (id >= 0) n_tokens++;
    text += piece;
    io.out(piece);
  }
}

/** Why an answer is not whole, or undefined where it is. */
export function cutText(answer: Answer, n_ctx: number): string | undefined {
  if (answer.reason === "limit") return `the answer was cut after ${answer.n_tokens} tokens, see --predict (-n)`;
  if (answer.reason === "context") {
    return `the answer was cut after ${answer.n_tokens} tokens: the context of ${n_ctx} tokens is full, see --ctx-size`;
  }
  return answer.reason === "aborted" ? "the answer was stopped" : undefined;
}
