/**
 * Texts as windows of tokens: what score and eval run.
 *
 * A text is tokenized whole, without special tokens, and cut into consecutive windows of `n_window` tokens; the incomplete
 * last one is dropped, and a text that is shorter than a window is one short window. Each window is run on its own from
 * position 0, so its first token is context and never predicted. With `bos`, every window starts with the vocabulary's bos in
 * place of its first token, as llama-perplexity does.
 * @module
 */
import { EvalError } from "../core/errors.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";

/** A text to score. */
export interface TextSource {
  /** What results call it. */
  readonly name: string;
  /** Its text. */
  readonly text?: string;
  /** Instead of a text: its token ids. */
  readonly ids?: ArrayLike<number>;
}

/** How texts are cut. */
export interface WindowOptions {
  /** Tokens of a window. */
  readonly n_window: number;
  /** Positions at a window's start whose predictions are not scored; `n_window / 2` is what llama-perplexity does. */
  readonly skip: number;
  /** Whether windows start with bos. Default: when the vocabulary says so. */
  readonly bos?: boolean | undefined;
}

/** Tokens that are run from position 0. */
export interface Window {
  /** Name of the text. */
  readonly source: string;
  /** Of its source, from 0. */
  readonly index: number;
  /** Its tokens. */
  readonly ids: Int32Array;
  /** Positions at its start whose predictions are not scored. */
  readonly skip: number;
}

/** Positions of a window that are scored. */
export function scoredPositions(n_window: number, skip: number): number {
  return n_window - 1 - skip;
}

/** What the predictions at a window's first position are made from, in words. */
export function firstPosition(bos: boolean): string {
  return bos
    ? "the first token of each is bos, which is context and not scored"
    : "the first token of each is context and not scored, with no bos before it";
}

/** Whether windows start with bos. @throws {EvalError} `eval.no_bos` */
export function useBos(tokenizer: Tokenizer, wanted: boolean | undefined): boolean {
  const bos = wanted ?? tokenizer.addBos;
  if (!bos || tokenizer.bos !== null) return bos;
  throw new EvalError("eval.no_bos", "Cannot start windows with bos: the vocabulary has none", {
    hint: "leave out --bos",
  });
}

/**
 * Cuts sources into windows.
 * @throws {EvalError} `eval.text_too_short` when nothing of a source would be scored, `eval.window`, `eval.no_bos`
 */
export function cutWindows(sources: readonly TextSource[], tokenizer: Tokenizer, options: WindowOptions): Window[] {
  const { n_window, skip } = options;
  if (n_window < 2 || skip < 0 || skip > n_window - 2) {
    throw new EvalError(
      "eval.window",
      `Cannot cut windows of ${n_window} tokens with ${skip} skipped: nothing would be scored`,
      {
        at: { n_window, skip },
        hint: "use --window of at least 2 and --skip below --window minus 1",
      },
    );
  }
  const bos = useBos(tokenizer, options.bos);
  return sources.flatMap((source) => {
    const ids = source.ids === undefined ? tokenizer.encode(source.text ?? "") : Int32Array.from(source.ids);
    if (scoredPositions(ids.length, skip) < 1) {
      throw new EvalError(
        "eval.text_too_short",
        `Cannot score ${source.name}: it has ${ids.length} tokens, expected at least ${skip + 2}`,
        {
          at: { source: source.name, got: ids.length, expected: skip + 2 },
          hint: "use a longer text or a smaller --skip",
        },
      );
    }
    return Array.from({ length: Math.max(1, Math.floor(ids.length / n_window)) }, (_, index) => {
      const window = ids.slice(index * n_window, (index + 1) * n_window);
      if (bos) window[0] = tokenizer.bos!;
      return { source: source.name, index, ids: window, skip };
    });
  });
}

/** `n` of many, evenly spread; all where there are no more. */
export function spread<T>(items: readonly T[], n: number | undefined): T[] {
  if (n === undefined || n >= items.length) return [...items];
  return Array.from({ length: n }, (_, i) => items[Math.floor((i + 0.5) * items.length / n)]);
}
