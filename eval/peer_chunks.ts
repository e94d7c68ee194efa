/**
 * Texts as `llama-perplexity` cuts and counts them, so that published perplexities can be compared: the whole text is tokenized as a
 * prompt is (with bos where the vocabulary starts texts with it) and cut into chunks of `n_ctx` tokens; of each the second half
 * is counted, and bos stands in place of the first token. The last chunk, where it is incomplete, is dropped.
 * @module
 */
import { EvalError } from "../core/errors.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import { kldSkip } from "./kld_file.ts";
import { type TextSource, useBos, type Window } from "./windows.ts";

/** A text's chunks. */
export interface PeerChunks {
  readonly windows: Window[];
  /** `[windows.length * n_ctx]` the tokens as the text has them, without the bos that is put into chunks. */
  readonly ids: Int32Array;
}

/**
 * Cuts a text as llama-perplexity does. One newline at its end does not count, as in a file that `-f` reads.
 * @param options `chunks`: the most of them; `bos`: start chunks with it even where the vocabulary does not ask for it.
 * @throws {EvalError} `eval.window`, `eval.text_too_short`, `eval.no_bos`
 */
export function peerChunks(
  source: TextSource,
  tokenizer: Tokenizer,
  options: { readonly n_ctx: number; readonly chunks?: number; readonly bos?: boolean | undefined },
): PeerChunks {
  const { n_ctx } = options, skip = kldSkip(n_ctx);
  if (skip > n_ctx - 2) {
    throw new EvalError("eval.window", `Cannot count the second half of chunks of ${n_ctx} tokens: it is empty`, {
      at: { n_ctx },
      hint: "use chunks of at least 3 tokens",
    });
  }
  const bos = useBos(tokenizer, options.bos);
  const all = source.ids === undefined
    ? tokenizer.encode((source.text ?? "").replace(/\n$/, ""), { addSpecial: true })
    : Int32Array.from(source.ids);
  const n = Math.min(Math.floor(all.length / n_ctx), options.chunks ?? Infinity);
  if (n < 1) {
    throw new EvalError(
      "eval.text_too_short",
      `Cannot score ${source.name}: it has ${all.length} tokens, expected at least a chunk of ${n_ctx}`,
      { at: { source: source.name, got: all.length, expected: n_ctx }, hint: "use a longer text or smaller chunks" },
    );
  }
  const ids = all.slice(0, n * n_ctx);
  const windows = Array.from({ length: n }, (_, index) => {
    const chunk = ids.slice(index * n_ctx, (index + 1) * n_ctx);
    if (bos) chunk[0] = tokenizer.bos!;
    return { source: source.name, index, ids: chunk, skip };
  });
  return { windows, ids };
}
