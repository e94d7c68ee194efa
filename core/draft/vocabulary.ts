/**
 * Whether the ids of one vocabulary mean the same in another.
 * @module
 */
import { ModelError } from "../errors.ts";
import type { Metadata } from "../gguf/metadata.ts";

/** A vocabulary and the file it is of. */
export interface NamedVocabulary {
  readonly name: string;
  readonly metadata: Metadata;
}

/** Texts beyond a vocabulary's end are padding that fills a matrix; this many at most. */
const MOST_PADDING = 1024;

/**
 * Refuses a draft model whose ids are other texts. A few ids more or less at the end are padding.
 * @throws {ModelError} `model.draft_vocabulary`
 */
export function checkDraftVocabulary(model: NamedVocabulary, draft: NamedVocabulary): void {
  const [a, b] = [model, draft].map(({ metadata }) => metadata.strs("tokenizer.ggml.tokens"));
  const n = Math.min(a.length, b.length);
  const refuse = (difference: string, at: Record<string, unknown>) => {
    throw new ModelError(
      "model.draft_vocabulary",
      `Cannot guess tokens of ${model.name} with ${draft.name}: ${difference}`,
      { at: { file: draft.name, ...at }, hint: "use a draft model of the same family, or --draft lookup" },
    );
  };
  for (let id = 0; id < n; id++) {
    if (a.at(id) === b.at(id)) continue;
    const [want, got] = [a.at(id), b.at(id)];
    refuse(`token ${id} is ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`, { id, got, expected: want });
  }
  if (Math.abs(a.length - b.length) > MOST_PADDING) {
    refuse(`the vocabulary has ${b.length} tokens, expected ${a.length}`, { got: b.length, expected: a.length });
  }
}
