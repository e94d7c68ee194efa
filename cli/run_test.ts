import assert from "node:assert/strict";
import { Flags } from "./command.ts";
import { joinPrompt } from "./run.ts";
import { formOf, grammarOf, maxTokensOf, parseSamplers, reasoningKwargs, samplingOf } from "./sampling.ts";

const flags = (values: Record<string, any>) => new Flags(new Map(Object.entries(values)));

Deno.test("joinPrompt() puts a piped text before the question about it", () => {
  assert.equal(joinPrompt("the text\n", "Summarize"), "the text\n\nSummarize");
  assert.equal(joinPrompt(undefined, "Why?"), "Why?");
  assert.equal(joinPrompt("\n", "Why?"), "Why?");
  assert.equal(joinPrompt("alone\n", undefined), "alone\n");
  assert.equal(joinPrompt("", undefined), undefined);
});

Deno.test("samplingOf() gives what the flags say and nothing else", () => {
  const piece = (id: number) => new TextEncoder().encode(id === 5 ? "a:" : id === 6 ? "#" : "x");
  const vocabulary = { n_vocab: 100, eogIds: new Set([7, 9]), pieceBytes: piece };
  assert.deepEqual(samplingOf(flags({}), vocabulary), {});
  const params = samplingOf(
    flags({
      "temp": 0,
      "top-n-sigma": 2,
      "mirostat-ent": 4,
      "samplers": "top_k;temperature",
      "logit-bias": ["3+1.5", "4-inf"],
      "ignore-eos": true,
    }),
    vocabulary,
  );
  assert.deepEqual(params, {
    temperature: 0,
    top_n_sigma: 2,
    mirostat_tau: 4,
    samplers: ["top_k", "temperature"],
    logit_bias: new Map([[3, 1.5], [4, -Infinity], [7, -Infinity], [9, -Infinity]]),
  });
  for (const bias of ["3", "100+1", "3*1", "x+1", "3+inf"]) {
    assert.throws(() => samplingOf(flags({ "logit-bias": [bias] }), vocabulary), { code: "usage.value" }, bias);
  }
  const breakers = (values: Record<string, any>) => samplingOf(flags(values), vocabulary).dry_breakers;
  assert.deepEqual(breakers({ "dry-multiplier": 1 }), new Set([5]));
  assert.deepEqual(breakers({ "dry-sequence-breaker": ["#"] }), new Set([6]));
  assert.deepEqual(breakers({ "dry-sequence-breaker": ["none"] }), new Set());
  assert.equal(breakers({ "dry-multiplier": 0 }), undefined);
  assert.throws(() => parseSamplers("top_k;tempreature"), { hint: "did you mean temperature?" });
});

Deno.test("samplers by letters, and the form of an answer, come from flags or files", async () => {
  const vocabulary = { n_vocab: 100, eogIds: new Set([7]), pieceBytes: () => new Uint8Array() };
  assert.deepEqual(samplingOf(flags({ "sampler-seq": "kt" }), vocabulary), { samplers: ["top_k", "temperature"] });
  assert.throws(() => samplingOf(flags({ "sampler-seq": "kq" }), vocabulary), { code: "usage.value" });
  const told: string[] = [];
  const grammar = (values: Record<string, any>) => grammarOf(flags(values), { warn: (text) => told.push(text) });
  assert.equal(await grammar({}), undefined);
  assert.ok(await grammar({ "grammar": 'root ::= "a"' }));
  assert.ok(await grammar({ "json-schema": '{"type": "array", "uniqueItems": true}' }));
  assert.match(told[0], /uniqueItems/);
  await assert.rejects(grammar({ "grammar": "root ::= (" }), { code: "text.grammar_syntax" });
  const file = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(file, "{}");
    assert.deepEqual(formOf(flags({ "json-schema-file": file })), { json_schema: {} });
    assert.deepEqual(formOf(flags({ "grammar-file": file })), { grammar: "{}" });
  } finally {
    await Deno.remove(file);
  }
  assert.throws(() => formOf(flags({ "grammar": "x", "json-schema": "{}" })), { code: "usage.value" });
  assert.throws(() => formOf(flags({ "json-schema": "{" })), { code: "usage.value" });
});

Deno.test("maxTokensOf() and reasoningKwargs() leave to others what the flags leave open", () => {
  assert.deepEqual([maxTokensOf(flags({})), maxTokensOf(flags({ predict: -1 })), maxTokensOf(flags({ predict: 0 }))], [
    undefined,
    undefined,
    0,
  ]);
  assert.deepEqual(reasoningKwargs(flags({ "reasoning": "auto", "reasoning-effort": "default" })), {});
  assert.deepEqual(reasoningKwargs(flags({ "reasoning": "off", "reasoning-effort": "low" })), {
    enable_thinking: false,
    reasoning_effort: "low",
  });
});
