import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { needingShared, sharedDir } from "../../tests/shared.ts";
import { trickyStrings } from "../../tests/tricky_strings.ts";
import { TextError } from "../errors.ts";
import { ggufValue, Metadata } from "../gguf/metadata.ts";
import { openGguf } from "../gguf/read.ts";
import { BYTE_TO_CODE_POINT } from "./byte_map.ts";
import { goldenDir, hex, metadataFromCheckpoint, readJson, SMALL, small } from "./_testing.ts";
import { tokenizerFromGguf } from "./tokenizer.ts";

const golden: { texts: string[]; ids: Record<string, number[][]>; ids_text_only: Record<string, number[][]> } =
  readJson(
    `${goldenDir}ids.json`,
  );

for (const [name, rows] of Object.entries(golden.ids)) {
  Deno.test(`encode() gives llama.cpp's ids with ${name}`, () => {
    golden.texts.forEach((text, i) => {
      assert.deepEqual([...small(name).encode(text, { parseSpecial: true })], rows[i], JSON.stringify(text));
      const asText = (golden.ids_text_only[name] ?? rows)[i];
      assert.deepEqual([...small(name).encode(text)], asText, JSON.stringify(text));
    });
  });
}

const anyText = fc.string({ unit: "binary", maxLength: 60 });
const plainWords = fc.array(
  fc.string({ unit: fc.constantFrom(..."abcdefghijklmnopqrstuvwxyz"), minLength: 1, maxLength: 12 }),
)
  .map((words) => words.join(" "));

/** Which texts come back as they were: all of them, or those that the vocabulary has characters for and does not change. */
const CYCLES: Record<string, { texts: fc.Arbitrary<string>; back?: (text: string) => string }> = {
  bloom_nano: { texts: anyText },
  tiktoken: { texts: anyText },
  spm: { texts: anyText.map((text) => text.replaceAll("\u2581", "")) }, // which would come back as a space
  unigram: { texts: plainWords },
  unigram_json: { texts: plainWords },
  // llama.cpp shows the space before the first word, too
  wordpiece: { texts: plainWords, back: (text) => text && " " + text },
};

Deno.test("every kind of vocabulary has texts that come back as they were", () => {
  assert.deepEqual(Object.keys(CYCLES).toSorted(), Object.keys(SMALL).toSorted());
});

for (const [name, { texts, back = (text: string) => text }] of Object.entries(CYCLES)) {
  Deno.test(`${name}: decode() gives back what encode() took`, () => {
    const tokenizer = small(name);
    fc.assert(
      fc.property(texts, (text) => {
        assert.equal(tokenizer.decode(tokenizer.encode(text)), back(text.toWellFormed()));
      }),
      { numRuns: 500 },
    );
  });
}

for (const name of ["bloom_nano", "tiktoken"]) {
  Deno.test(`${name}: a text cut anywhere and encoded part by part decodes to the same text`, () => {
    const tokenizer = small(name);
    fc.assert(fc.property(fc.array(anyText, { maxLength: 6 }), (parts) => {
      const ids = parts.flatMap((part) => [...tokenizer.encode(part)]);
      const stream = tokenizer.stream();
      const text = parts.map((part) => part.toWellFormed()).join("");
      assert.equal(ids.map((id) => stream.push(id)).join("") + stream.flush(), text);
      assert.equal(tokenizer.decode(ids), text);
    }));
  });
}

for (const name of Object.keys(SMALL)) {
  Deno.test(`${name}: any string and any ids are taken, and ids are tokens`, () => {
    const tokenizer = small(name);
    const text = fc.oneof(
      fc.string({ unit: "binary", maxLength: 80 }),
      fc.string({
        unit: fc.constantFrom("\ud800", "\udc00", "a", " ", "<", "|", "\u0301", "</s>", "\0"),
        maxLength: 60,
      }),
    );
    fc.assert(fc.property(text, fc.boolean(), fc.boolean(), (given, addSpecial, parseSpecial) => {
      const ids = tokenizer.encode(given, { addSpecial, parseSpecial });
      assert.ok(ids.every((id) => id >= 0 && id < tokenizer.n_vocab));
      tokenizer.decode(ids, { special: addSpecial, removeSpecial: parseSpecial });
    }));
    for (const tricky of trickyStrings(300, 1, ["</s>", "<|im_start|>", "[UNK]", "<unk>", "[EOS]"])) {
      const ids = tokenizer.encode(tricky, { parseSpecial: true });
      assert.ok(ids.every((id) => id >= 0 && id < tokenizer.n_vocab), JSON.stringify(tricky));
      tokenizer.decode(ids, { special: true });
    }
    const anyIds = fc.array(fc.nat(tokenizer.n_vocab - 1), { maxLength: 60 });
    fc.assert(fc.property(anyIds, fc.boolean(), (ids, special) => {
      const stream = tokenizer.stream({ special });
      const streamed = ids.map((id) => stream.push(id)).join("") + stream.flush();
      let bytes = 0;
      for (const id of ids) bytes += tokenizer.pieceBytes(id, special).length;
      const joined = new Uint8Array(bytes);
      for (let i = 0, at = 0; i < ids.length; at += tokenizer.pieceBytes(ids[i++], special).length) {
        joined.set(tokenizer.pieceBytes(ids[i], special), at);
      }
      assert.equal(streamed, new TextDecoder("utf-8", { ignoreBOM: true }).decode(joined));
    }));
  });
}

Deno.test("stream() holds back unfinished characters and never emits half of one", () => {
  const tokenizer = small("bloom_nano");
  const text = "a\u{1f999}b한é\u{1f468}\u200d\u{1f469}";
  const stream = tokenizer.stream();
  const byteIds = [...new TextEncoder().encode(text)].map((byte) => {
    for (let id = 0; id < 256; id++) {
      const piece = tokenizer.pieceBytes(id);
      if (piece.length === 1 && piece[0] === byte) return id;
    }
    throw new Error("no token for the byte");
  });
  const parts = byteIds.map((id) => stream.push(id));
  assert.equal(parts.join(""), text);
  assert.ok(!parts.join("").includes("\ufffd"));
  assert.equal(stream.flush(), "");
  stream.push(byteIds[1]); // the first of four bytes
  assert.equal(stream.flush(), "\ufffd");
  // a byte that cannot continue settles it at once
  const broken = tokenizer.stream();
  assert.equal(broken.push(byteIds[1]), "");
  assert.equal(broken.push(byteIds[0]), "\ufffda");
});

Deno.test("decode() of SPM drops the space that encode() put first, and only that", () => {
  const tokenizer = small("spm");
  for (const text of ["hello", " hello", "  a b  "]) assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
});

Deno.test("encode() adds bos once, and none when asked not to (D7)", () => {
  const tokenizer = small("spm");
  assert.equal(tokenizer.addBos, true);
  const ids = [...tokenizer.encode("hello", { addSpecial: true })];
  assert.equal(ids[0], tokenizer.bos);
  assert.equal(ids.filter((id) => id === tokenizer.bos).length, 1);
  assert.deepEqual([...tokenizer.encode("hello")], ids.slice(1));
  assert.equal(tokenizer.decode(ids, { special: true, removeSpecial: true }), " hello");
});

Deno.test("a word after an added token is encoded as at a text's start (D1)", () => {
  const tokenizer = small("bloom_nano");
  const marked = [...tokenizer.encode("<|im_start|>user\n", { parseSpecial: true })];
  assert.equal(marked[0], tokenizer.tokenId("<|im_start|>"));
  assert.deepEqual(marked.slice(1), [...tokenizer.encode("user\n")]);
});

Deno.test("a space after a special token is kept beside SPM's own (D2)", () => {
  const base = metadataFromCheckpoint(SMALL.spm());
  const types = Int32Array.from(base.ints("tokenizer.ggml.token_type"));
  const tokens = base.strs("tokenizer.ggml.tokens").toArray();
  const marker = tokens.length - 1;
  tokens[marker] = "<sep>";
  types[marker] = 4;
  base.set("tokenizer.ggml.tokens", ggufValue.strs(tokens));
  base.set("tokenizer.ggml.token_type", ggufValue.i32s(types));
  const tokenizer = tokenizerFromGguf(base);
  const after = (text: string) => [...tokenizer.encode(`<sep>${text}`)].slice(1);
  assert.deepEqual(after("the"), [...tokenizer.encode("the")]);
  assert.deepEqual(after(" the"), [...tokenizer.encode(" the")]);
  assert.notDeepEqual(after(" the"), after("the"));
});

function withPre(pre: string | undefined): Metadata {
  const metadata = metadataFromCheckpoint(SMALL.bloom_nano(), "nano.gguf").clone();
  if (pre === undefined) metadata.remove("tokenizer.ggml.pre");
  else metadata.set("tokenizer.ggml.pre", ggufValue.str(pre));
  return metadata;
}

Deno.test("tokenizerFromGguf() warns of a missing pre-tokenizer and refuses an unknown one by name (D4)", () => {
  const missing = tokenizerFromGguf(withPre(undefined));
  assert.equal(missing.pre, "default");
  assert.match(missing.warnings.join(), /nano\.gguf.*tokenizer\.ggml\.pre is missing/);
  assert.throws(
    () => tokenizerFromGguf(withPre("llama-42")),
    (error) => error instanceof TextError && error.code === "text.pre_tokenizer" && /"llama-42"/.test(error.message),
  );
  const text = "don't 12345 \r\n 中文, é e\u0301";
  const ids = ["qwen2", "default"].map((pre) => [...tokenizerFromGguf(withPre(pre)).encode(text)].join());
  assert.notEqual(ids[0], ids[1]);
});

Deno.test("tokenizerFromGguf() refuses damaged vocabularies with a code", () => {
  const damage = (change: (metadata: Metadata) => void) => () => {
    const metadata = withPre("qwen2");
    change(metadata);
    tokenizerFromGguf(metadata);
  };
  const codes: [string, (metadata: Metadata) => void][] = [
    ["text.tokenizer_model", (m) => m.set("tokenizer.ggml.model", ggufValue.str("words"))],
    ["text.missing_merges", (m) => m.remove("tokenizer.ggml.merges")],
    ["model.missing_key", (m) => m.remove("tokenizer.ggml.tokens")],
    ["model.key_type", (m) => m.set("tokenizer.ggml.tokens", ggufValue.str("abc"))],
    ["model.key_type", (m) => m.set("tokenizer.ggml.merges", ggufValue.i32s([1]))],
    ["text.vocabulary_length", (m) => m.set("tokenizer.ggml.token_type", ggufValue.i32s([1, 1]))],
    ["text.duplicate_token", (m) => {
      const tokens = m.strs("tokenizer.ggml.tokens").toArray();
      tokens[7] = tokens[3];
      m.set("tokenizer.ggml.tokens", ggufValue.strs(tokens));
    }],
  ];
  for (const [code, change] of codes) {
    assert.throws(damage(change), (error) => (error as TextError).code === code, code);
  }
  // ids that are no tokens are left out with a warning, odd merges are no merges, empty texts get one
  const odd = withPre("qwen2");
  odd.set("tokenizer.ggml.eot_token_id", ggufValue.u32(4_000_000_000));
  odd.set("tokenizer.ggml.merges", ggufValue.strs(["nospace", "", " ", "a b c", "t h"]));
  const tokens = odd.strs("tokenizer.ggml.tokens").toArray();
  tokens[9] = "";
  odd.set("tokenizer.ggml.tokens", ggufValue.strs(tokens));
  const tokenizer = tokenizerFromGguf(odd);
  assert.equal(tokenizer.warnings.length, 1);
  assert.equal(tokenizer.tokenText(9), "[EMPTY_9]");
  assert.equal(tokenizer.decode(tokenizer.encode("the cat")), "the cat");
  assert.throws(() => tokenizer.pieceBytes(tokenizer.n_vocab), { code: "text.token_id" });
});

Deno.test("special tokens have their roles, and the generation ends at them", () => {
  const tokenizer = small("bloom_nano");
  const id = (text: string) => tokenizer.tokenId(text);
  assert.equal(tokenizer.eos, id("<|im_end|>"));
  assert.equal(tokenizer.eot, id("<|im_end|>"));
  assert.equal(tokenizer.fim_pre, id("<|fim_prefix|>"));
  assert.deepEqual(new Set(tokenizer.eogIds), new Set([id("<|im_end|>"), id("<|endoftext|>")]));
  assert.ok(tokenizer.isControl(id("<|im_start|>")!));
  assert.ok(tokenizer.isUserDefined(id("<think>")!));
  assert.equal(hex(tokenizer.pieceBytes(id("<|im_end|>")!)), "");
  assert.equal(hex(tokenizer.pieceBytes(id("<|im_end|>")!, true)), hex(new TextEncoder().encode("<|im_end|>")));
  assert.equal(hex(tokenizer.pieceBytes(id("<think>")!)), hex(new TextEncoder().encode("<think>")));
});

/** Vocabularies of plain UTF-8, where a line, or all that is not a space, is one word to merge. */
const RAW: Record<string, [model: string, pre: string]> = {
  gemma4: ["gemma4", "gemma4"],
  mmbert: ["gpt2", "mmbert"],
  whitespace: ["whitespace", "whitespace"],
};

for (const name of [...Object.keys(SMALL), ...Object.keys(RAW)]) {
  Deno.test(`${name}: a megabyte of one letter, of spaces, of emoji is encoded in linear time`, () => {
    const runs = ["aaaaaaaa", "\u2581\u2581\u2581\u2581", "\n\n\n\n", "777", "\u{1f600}\u{1f600}", "'s's"];
    const tokenizer = RAW[name] ? tokenizerFromGguf(vocabularyOfWords(...RAW[name], runs)) : small(name);
    for (const unit of ["a", " ", "\n", "7", "\u{1f600}", "<|im_start|>", "\u4e2d", "'s", "aB "]) {
      const started = performance.now();
      const text = unit.repeat(Math.ceil(1_000_000 / new TextEncoder().encode(unit).length));
      tokenizer.encode(text, { parseSpecial: true });
      // each takes a second or so on a slow machine; quadratic work would take hours
      assert.ok(performance.now() - started < 30_000, JSON.stringify(unit));
    }
  });
}

const released: { strings: { text: string; ids: number[] }[] } = readJson(`${goldenDir}released_ids.json`);

Deno.test("follow: release gives the released tokenizer's ids, llama.cpp's ways the same but for NFC", () => {
  const metadata = metadataFromCheckpoint(SMALL.bloom_nano());
  const release = tokenizerFromGguf(metadata, { follow: "release" });
  let composed = 0;
  for (const { text, ids } of released.strings) {
    assert.deepEqual([...release.encode(text, { parseSpecial: true })], ids, JSON.stringify(text));
    if (text.normalize("NFC") !== text) composed++;
    else assert.deepEqual([...small("bloom_nano").encode(text, { parseSpecial: true })], ids, JSON.stringify(text));
  }
  assert.ok(composed > 10);
});

Deno.test({
  ...needingShared("every string of ../shared/models/reference/tokenizer has the released tokenizer's ids"),
  fn: () => {
    const release = tokenizerFromGguf(metadataFromCheckpoint(SMALL.bloom_nano()), { follow: "release" });
    const { strings } = readJson(`${sharedDir}models/reference/tokenizer/tricky_strings.json`);
    for (const { text, ids, decoded } of strings as { text: string; ids: number[]; decoded: string }[]) {
      assert.deepEqual([...release.encode(text, { parseSpecial: true })], ids, JSON.stringify(text));
      assert.equal(release.decode(ids, { special: true }), decoded);
    }
  },
});

interface Expected {
  cases: { text: string; add_special: boolean; parse_special: boolean; ids: number[]; detok: string }[];
}

async function readGzip(path: string): Promise<Expected> {
  const stream = new Blob([Deno.readFileSync(path)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

Deno.test({
  ...needingShared("every reference vocabulary (../shared/vocab): ids and detokenized bytes are llama.cpp's"),
  fn: async (t) => {
    const vocabDir = `${sharedDir}vocab/`;
    for (const { name: file } of Deno.readDirSync(vocabDir)) {
      if (!file.endsWith(".gguf")) continue;
      const name = file.replace(".gguf", "");
      await t.step(name, async () => {
        using gguf = openGguf(vocabDir + file);
        const tokenizer = tokenizerFromGguf(gguf.metadata);
        for (const expected of (await readGzip(`${vocabDir}expected/${name}.json.gz`)).cases) {
          const options = { addSpecial: expected.add_special, parseSpecial: expected.parse_special };
          const ids = tokenizer.encode(expected.text, options);
          assert.deepEqual([...ids], expected.ids, JSON.stringify(expected.text));
          assert.equal(hex(tokenizer.decodeBytes(ids, { special: true })), expected.detok);
        }
      });
    }
  },
});

/** A vocabulary in which the characters of each word join to the word. */
function vocabularyOfWords(model: string, pre: string, words: readonly string[]): Metadata {
  const tokens = new Set(["<s>", "</s>"]);
  const merges = new Set<string>();
  for (let byte = 0; byte < 256; byte++) tokens.add(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  for (const word of words) {
    const characters = [...word];
    for (let n = 1; n <= characters.length; n++) {
      tokens.add(characters[n - 1]).add(characters.slice(0, n).join(""));
      if (n > 1) merges.add(`${characters.slice(0, n - 1).join("")} ${characters[n - 1]}`);
    }
  }
  const types = [...tokens].map((text) => text.startsWith("<0x") ? 6 : /^<\/?s>$/.test(text) ? 3 : 1);
  return new Metadata(model, [
    ["tokenizer.ggml.model", ggufValue.str(model)],
    ["tokenizer.ggml.pre", ggufValue.str(pre)],
    ["tokenizer.ggml.tokens", ggufValue.strs(tokens)],
    ["tokenizer.ggml.token_type", ggufValue.i32s(types)],
    ["tokenizer.ggml.merges", ggufValue.strs(merges)],
    ["tokenizer.ggml.bos_token_id", ggufValue.u32(0)],
    ["tokenizer.ggml.eos_token_id", ggufValue.u32(1)],
  ]);
}

Deno.test("vocabularies of plain UTF-8: gemma4, mmbert and whitespace cut and fall back to bytes as llama.cpp does", () => {
  const texts = (metadata: Metadata, text: string) => {
    const tokenizer = tokenizerFromGguf(metadata);
    return [...tokenizer.encode(text)].map((id) => tokenizer.tokenText(id)).join("|");
  };
  const words = ["▁ab", "ab", "ÄB", "äb", "\n\n"];
  const gemma = vocabularyOfWords("gemma4", "gemma4", words);
  assert.equal(texts(gemma, "ab ab\n\né"), "ab|▁ab|\n\n|<0xC3>|<0xA9>");
  assert.equal(tokenizerFromGguf(gemma).addBos, true);
  assert.equal(tokenizerFromGguf(gemma).decode(tokenizerFromGguf(gemma).encode("ab ab é")), "ab ab é");
  assert.equal(texts(vocabularyOfWords("gpt2", "mmbert", words), "ab ab\nab"), "▁ab|▁ab|\n|▁ab");
  const spaced = vocabularyOfWords("whitespace", "whitespace", words);
  assert.equal(texts(spaced, "ab\u3000 ÄB\nabq"), "ab|ÄB|ab|<0x71>");
  spaced.set("tokenizer.ggml.normalizer.lowercase", ggufValue.bool(true));
  assert.equal(texts(spaced, "AB ÄB"), "ab|äb");
});

Deno.test("what a tokenizer has seen does not change the ids of a long word", () => {
  // Long words merge by a queue, and nearly each has pairs that none had before: the table of pairs grows in the middle
  // of some. Every two letters are a token here, of a rank that goes up and down.
  const letters = [..."abcdefghijklmnopqrstuvwxyz"];
  const merges = letters.flatMap((a, i) => letters.map((b, j) => ({ text: a + b, rank: (i * 26 + j) * 101 % 676 })))
    .sort((x, y) => x.rank - y.rank).map(({ text }) => text);
  const bytes = Array.from(BYTE_TO_CODE_POINT, (cp) => String.fromCharCode(cp));
  const tokens = [...bytes, ...merges];
  const tokenizer = tokenizerFromGguf(
    new Metadata("pairs", [
      ["tokenizer.ggml.model", ggufValue.str("gpt2")],
      ["tokenizer.ggml.pre", ggufValue.str("gpt-2")],
      ["tokenizer.ggml.tokens", ggufValue.strs(tokens)],
      ["tokenizer.ggml.token_type", ggufValue.i32s(tokens.map(() => 1))],
      ["tokenizer.ggml.merges", ggufValue.strs(merges.map((m) => m.split("").join(" ")))],
    ]),
  );
  const rank = new Map(merges.map((text, i) => [text, i]));
  const expected = (word: string) => {
    const parts = [...word];
    while (true) {
      let best = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const r = rank.get(parts[i] + parts[i + 1]);
        if (r !== undefined && (best < 0 || r < rank.get(parts[best] + parts[best + 1])!)) best = i;
      }
      if (best < 0) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  };
  let seed = 1;
  const next = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (let i = 0; i < 3000; i++) {
    const word = Array.from({ length: 41 + next(60) }, () => letters[next(26)]).join("");
    assert.deepEqual(Array.from(tokenizer.encode(word), (id) => tokens[id]), expected(word));
  }
});
