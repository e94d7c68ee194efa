/**
 * A vocabulary as a GGUF file holds it, checked: token texts, their types and scores, found by text.
 * @module
 */

import { TextError } from "../errors.ts";
import { type Metadata, StringArray } from "../gguf/metadata.ts";
import { TextTable } from "./text_table.ts";
import { TOKEN_TYPE } from "./types.ts";

const encoder = new TextEncoder();

export class Vocab {
  readonly n: number;
  /** `[n]` `TOKEN_TYPE`; special_ids.ts corrects some. */
  readonly types: Uint8Array;
  /** `[n]`, absent where the file has none. */
  readonly scores: ArrayLike<number> | undefined;
  readonly table: TextTable;

  constructor(metadata: Metadata) {
    const tokens = withoutEmptyTexts(metadata.strs("tokenizer.ggml.tokens"));
    this.n = tokens.length;
    this.table = new TextTable(tokens);
    const duplicate = this.table.duplicate();
    if (duplicate) {
      const [first, second] = duplicate;
      throw new TextError(
        "text.duplicate_token",
        `Cannot use the vocabulary of ${metadata.file}: tokens ${first} and ${second} are both ` +
          `${JSON.stringify(tokens.at(first))}, expected unique texts in tokenizer.ggml.tokens`,
        { at: { file: metadata.file, key: "tokenizer.ggml.tokens", ids: [first, second] } },
      );
    }
    this.types = new Uint8Array(this.n).fill(TOKEN_TYPE.normal);
    const types = metadata.ints("tokenizer.ggml.token_type", undefined);
    if (types) {
      checkLength(metadata, "tokenizer.ggml.token_type", types.length, this.n);
      this.types.set(types.subarray(0, this.n));
    }
    const key = "tokenizer.ggml.scores";
    if (metadata.has(key)) {
      const elem = metadata.get(key)!.elem;
      this.scores = elem === "f32" || elem === "f64" ? metadata.floats(key) : metadata.ints(key);
      checkLength(metadata, key, this.scores.length, this.n);
    }
  }

  /** Id of a token by its text, or -1. */
  find(text: string): number {
    return this.table.find(encoder.encode(text));
  }

  text(id: number): string {
    return this.table.strings.at(id);
  }

  bytes(id: number): Uint8Array {
    return this.table.strings.bytesAt(id);
  }
}

function checkLength(metadata: Metadata, key: string, length: number, n: number): void {
  if (length >= n) return;
  throw new TextError(
    "text.vocabulary_length",
    `Cannot use the vocabulary of ${metadata.file}: ${key} has ${length} elements, expected at least ${n}, one per token`,
    { at: { file: metadata.file, key, got: length, expected: n } },
  );
}

/** Empty texts become `[EMPTY_<id>]`, so that every token has a text of its own. */
function withoutEmptyTexts(tokens: StringArray): StringArray {
  const { ends } = tokens;
  let isClean = true;
  for (let i = 0, start = 8; i < ends.length && isClean; start = ends[i++] + 8) isClean = ends[i] > start;
  if (isClean) return tokens;
  const texts: (string | Uint8Array)[] = [];
  for (let i = 0; i < tokens.length; i++) {
    const bytes = tokens.bytesAt(i);
    texts.push(bytes.length > 0 ? bytes : `[EMPTY_${i}]`);
  }
  return StringArray.from(texts);
}
