import assert from "node:assert/strict";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import { peerChunks } from "./peer_chunks.ts";

const digits = (addBos: boolean) =>
  ({
    addBos,
    bos: 9,
    encode: (text: string, options: { addSpecial?: boolean } = {}) =>
      Int32Array.from([
        ...addBos && options.addSpecial ? [9] : [],
        ...Array.from(text, (c) => c === "\n" ? 8 : Number(c)),
      ]),
  }) as unknown as Tokenizer;

const cut = (text: string, addBos: boolean, more = {}) => {
  const { windows, ids } = peerChunks({ name: "a", text }, digits(addBos), { n_ctx: 4, ...more });
  return { ids: [...ids], windows: windows.map((w) => [...w.ids]), skips: windows.map((w) => w.skip) };
};

Deno.test("peerChunks() counts the second half of each chunk and leaves out the rest of the text", () => {
  assert.deepEqual(cut("0123456701", false), {
    ids: [0, 1, 2, 3, 4, 5, 6, 7],
    windows: [[0, 1, 2, 3], [4, 5, 6, 7]],
    skips: [2, 2],
  });
  assert.deepEqual(cut("0123456", false, { chunks: 1 }).windows, [[0, 1, 2, 3]]);
  assert.deepEqual(cut("01234567", false, { chunks: 1 }).ids, [0, 1, 2, 3]);
});

Deno.test("peerChunks() puts bos before the text and in place of each chunk's first token, and keeps the text's own", () => {
  assert.deepEqual(cut("0123456", true), {
    ids: [9, 0, 1, 2, 3, 4, 5, 6],
    windows: [[9, 0, 1, 2], [9, 4, 5, 6]],
    skips: [2, 2],
  });
  const asked = cut("01234567", false, { bos: true });
  assert.deepEqual([asked.ids.slice(0, 5), asked.windows[1]], [[0, 1, 2, 3, 4], [9, 5, 6, 7]]);
});

Deno.test("peerChunks() does not count one newline at the end, and refuses a text without a chunk", () => {
  assert.throws(() => cut("012\n", false), {
    code: "eval.text_too_short",
    message: /3 tokens, expected at least a chunk of 4/,
  });
  assert.deepEqual(cut("012\n\n", false).ids, [0, 1, 2, 8]);
  assert.throws(() => cut("0123", false, { n_ctx: 2 }), { code: "eval.window" });
  assert.throws(() => peerChunks({ name: "a", ids: [1, 2] }, digits(false), { n_ctx: 3 }), {
    code: "eval.text_too_short",
  });
  assert.equal(peerChunks({ name: "a", ids: [1, 2, 3] }, digits(false), { n_ctx: 3 }).windows[0].skip, 1);
});
