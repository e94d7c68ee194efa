import assert from "node:assert/strict";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { encodeHeader } from "../core/gguf/write.ts";
import { folder } from "../core/tokenizer/_testing.ts";
import { tokenizerFromGguf, vocabularyFromCheckpoint } from "../core/tokenizer/mod.ts";
import { repoDir } from "../tests/shared.ts";
import { bloomery } from "./_testing.ts";

Deno.test("bloomery tokenize shows ids and pieces, and answers a line an object", async () => {
  const metadata = new Metadata("nano", [
    ["general.architecture", ggufValue.str("qwen3")],
    ...vocabularyFromCheckpoint(folder(`${repoDir}models/bloom-nano`)).entries,
  ]);
  metadata.set("tokenizer.ggml.add_bos_token", ggufValue.bool(true));
  const tokenizer = tokenizerFromGguf(metadata);
  const file = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    await Deno.writeFile(file, encodeHeader(metadata, []));
    const text = "Hi \u{1f999}<|im_end|>";
    const encode = (
      addSpecial: boolean,
      parseSpecial: boolean,
    ) => [...tokenizer.encode(text, { addSpecial, parseSpecial })];
    const plain = await bloomery(["tokenize", "-m", file, text]);
    assert.equal(plain.code, 0);
    const lines = plain.out.trimEnd().split("\n");
    assert.deepEqual(lines.map((line) => parseInt(line)), encode(true, false));
    assert.match(lines[0], /8180 {2}"<\|endoftext\|>"/);
    assert.ok(lines.some((line) => / <[0-9a-f]*f09f[0-9a-f]*>$/.test(line)));
    const ids = await bloomery(["tokenize", "-m", file, "--ids", "--no-bos", "--parse-special"], text);
    assert.equal(ids.out, `[${encode(false, true).join(", ")}]\n`);
    const json = JSON.parse((await bloomery(["tokenize", "-m", file, "--json", text])).out);
    assert.equal(json.schema, "bloomery.tokenize.v1");
    assert.deepEqual(json.ids, encode(true, false));
    const asked = [
      { text, add_special: true, parse_special: true },
      { text },
      { ids: encode(true, true) },
      { ids: [1e9] },
      { words: 1 },
    ];
    const { out } = await bloomery(
      ["tokenize", "-m", file, "--jsonl", "--no-bos"],
      asked.map((line) => JSON.stringify(line) + "\n").join("") + "no",
    );
    const answers = out.trim().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(answers[0].ids, encode(true, true));
    assert.equal(new TextDecoder().decode(Uint8Array.fromHex(answers[0].detok)), "<|endoftext|>" + text);
    assert.deepEqual(answers[1].ids, encode(false, false));
    assert.equal(answers[2].text, "<|endoftext|>" + text);
    assert.equal(answers[3].error.code, "text.token_id");
    assert.equal(answers[4].error.code, "usage.tokenize_line");
    assert.equal(answers[5].error.code, "usage.tokenize_line");
  } finally {
    await Deno.remove(file);
  }
});
