import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { ChatFormat } from "../core/chat/format.ts";
import { EvalError } from "../core/errors.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import { parsePrompts, promptWindows } from "./prompts.ts";

/** A token a character, but "th" is one. */
function fakeTokenizer(bos: boolean): Tokenizer {
  return {
    n_vocab: 1000,
    addBos: bos,
    bos: 999,
    encode: (text: string, options: { addSpecial?: boolean } = {}) =>
      Int32Array.from([
        ...(bos && options.addSpecial ? [999] : []),
        ...(text.match(/th|./gs) ?? []).map((t) => t === "th" ? 500 : t.charCodeAt(0)),
      ]),
  } as unknown as Tokenizer;
}

const format = new ChatFormat(
  "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
  { bosToken: "", eosToken: "" },
);

function windows(line: unknown, options: { bos?: boolean; addBos?: boolean; n_ctx?: number } = {}) {
  const tokenizer = fakeTokenizer(options.addBos ?? false);
  const model = { tokenizer, format, encodeChat: (text: string) => tokenizer.encode(text, { addSpecial: true }) };
  return promptWindows(parsePrompts(JSON.stringify(line), "p.jsonl", "p"), model, {
    n_ctx: options.n_ctx ?? 1000,
    ...(options.bos === undefined ? {} : { bos: options.bos }),
  });
}

/** The text of what is scored. */
function scored(line: unknown, options = {}): string {
  const [w] = windows(line, options);
  return [...w.ids.slice(w.skip + 1)].map((id) => id === 500 ? "th" : String.fromCharCode(id)).join("");
}

Deno.test("promptWindows() scores a completion, and where nothing is given all but what nothing predicts", () => {
  assert.equal(scored({ prompt: "ab", completion: "cd" }), "cd");
  assert.equal(scored({ prompt: "abcd" }), "bcd");
  assert.equal(scored({ prompt: "", completion: "abcd" }), "bcd");
  assert.equal(scored({ text: "abcd" }), "bcd");
  assert.equal(scored({ ids: [97, 98, 99] }), "bc");
  assert.equal(scored({ ids: [97, 98, 99], skip: 1 }), "c");
  assert.equal(scored({ prompt: "at", completion: "hx" }), "thx", "a token over the border counts as the completion's");
});

Deno.test("promptWindows() has bos before the first token, whether the vocabulary or the caller asks for it", () => {
  for (const options of [{ bos: true }, { addBos: true }, { addBos: true, bos: true }]) {
    assert.equal(scored({ prompt: "ab", completion: "cd" }, options), "cd");
    assert.equal(scored({ prompt: "", completion: "abcd" }, options), "abcd");
    assert.equal(scored({ prompt: "abcd" }, options), "abcd");
    assert.equal(scored({ text: "abcd" }, options), "abcd");
    assert.deepEqual([...windows({ text: "a" }, options)[0].ids], [999, 97]);
  }
});

Deno.test("promptWindows() renders a conversation and scores its last answer", () => {
  const user = { role: "user", content: "hi" };
  assert.equal(scored({ messages: [user, { role: "assistant", content: "yo" }] }), "yo;");
  assert.equal(scored({ messages: [user] }), "user>hi;<assistant>");
});

Deno.test("promptWindows() counts windows of each set, and names file and line of what it refuses", () => {
  const tokenizer = fakeTokenizer(false);
  const model = { tokenizer, format: undefined, encodeChat: tokenizer.encode };
  const text = [
    '{"text":"abc","set":"en"}',
    "",
    '{"text":"de","set":"ko"}',
    '{"text":"fg","set":"en"}',
    '{"text":"hi"}',
  ];
  const all = promptWindows(parsePrompts(text.join("\n"), "p.jsonl", "p"), model, { n_ctx: 100 });
  assert.deepEqual(all.map((w) => [w.source, w.index]), [["en", 0], ["ko", 0], ["en", 1], ["p", 0]]);
  const refused = (line: string, code: string) =>
    assert.throws(() => promptWindows(parsePrompts(line, "p.jsonl", "p"), model, { n_ctx: 3 }), {
      code,
      message: /p\.jsonl, line 1/,
    });
  refused('{"text":"a"}', "eval.text_too_short");
  refused('{"text":"abcd"}', "eval.prompt_too_long");
  refused('{"ids":[1,1000]}', "eval.token_id");
  refused('{"ids":[1,2],"skip":1}', "eval.text_too_short");
  refused('{"messages":[{"role":"user","content":"a"}]}', "eval.no_template");
});

Deno.test("parsePrompts() names file and line of what is wrong", () => {
  const cases: [string, RegExp][] = [
    ["", /line 1: found no prompt/],
    ["{", /line 1/],
    ["3", /line 1: found no JSON object/],
    ['{"text":"a"}\n{}', /line 2: found none of prompt, messages, text, ids/],
    ['{"text":"a","prompt":"b"}', /found prompt and text of/],
    ['{"text":3}', /text is no text/],
    ['{"prompt":"a","completion":1}', /completion is no text/],
    ['{"text":"a","set":1}', /set is no text/],
    ['{"messages":[]}', /messages is no list/],
    ['{"messages":[{"content":"a"}]}', /messages is no list/],
    ['{"messages":[{"role":"user"}],"tools":{}}', /tools is no list/],
    ['{"messages":[{"role":"user"}],"kwargs":[]}', /kwargs is no object/],
    ['{"ids":[1,-1]}', /ids is no list/],
    ['{"ids":[1,2],"skip":-1}', /skip is no whole number/],
  ];
  for (const [text, message] of cases) {
    assert.throws(() => parsePrompts(text, "p.jsonl", "p"), { code: "eval.prompts", message }, text);
  }
});

Deno.test("parsePrompts() gives prompts or an EvalError, whatever the text", () => {
  const value = fc.oneof(fc.jsonValue(), fc.constantFrom("a", [1, 2], [{ role: "user", content: "a" }]));
  const key = fc.constantFrom("prompt", "completion", "messages", "text", "ids", "skip", "set", "tools", "kwargs");
  const line = fc.oneof(fc.dictionary(key, value).map((v) => JSON.stringify(v)), fc.string());
  fc.assert(fc.property(fc.array(line, { maxLength: 3 }), (lines) => {
    try {
      for (const p of parsePrompts(lines.join("\n"), "p", "p")) assert.equal(typeof p.set, "string");
    } catch (e) {
      assert.ok(e instanceof EvalError && e.code === "eval.prompts", String(e));
    }
  }));
});
