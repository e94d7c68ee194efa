import assert from "node:assert/strict";
import { ModelError } from "../errors.ts";
import { ggufValue, Metadata } from "../gguf/metadata.ts";
import { checkDraftVocabulary } from "./vocabulary.ts";

function vocabulary(name: string, tokens: string[]) {
  return { name, metadata: new Metadata(name, [["tokenizer.ggml.tokens", ggufValue.strs(tokens)]]) };
}

Deno.test("checkDraftVocabulary names the first token that differs, and lets padding be", () => {
  const model = vocabulary("model.gguf", ["a", "b", "c"]);
  checkDraftVocabulary(model, vocabulary("draft.gguf", ["a", "b", "c"]));
  checkDraftVocabulary(model, vocabulary("draft.gguf", ["a", "b", "c", "[PAD3]"]));
  checkDraftVocabulary(model, vocabulary("draft.gguf", ["a", "b"]));
  const refused = (tokens: string[]) => {
    try {
      checkDraftVocabulary(model, vocabulary("draft.gguf", tokens));
    } catch (error) {
      assert.ok(error instanceof ModelError);
      assert.equal(error.code, "model.draft_vocabulary");
      return error.message;
    }
    throw new Error("the vocabulary was taken");
  };
  assert.equal(
    refused(["a", "x", "c"]),
    'Cannot guess tokens of model.gguf with draft.gguf: token 1 is "x", expected "b"',
  );
  const many = Array.from({ length: 2000 }, (_, i) => ["a", "b", "c"][i] ?? `t${i}`);
  assert.match(refused(many), /the vocabulary has 2000 tokens, expected 3/);
});
