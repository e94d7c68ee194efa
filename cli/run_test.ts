import assert from "node:assert/strict";
import { Flags } from "./command.ts";
import { joinPrompt } from "./run.ts";
import { maxTokensOf, parseSamplers, reasoningKwargs, samplingOf } from "./sampling.ts";

const flags = (values: Record<string, any>) => new Flags(new Map(Object.entries(values)));

Deno.test("joinPrompt() puts a piped text before the question about it", () => {
  assert.equal(joinPrompt("the text\n", "Summarize"), "the text\n\nSummarize");
  assert.equal(joinPrompt(undefined, "Why?"), "Why?");
  assert.equal(joinPrompt("\n", "Why?"), "Why?");
  assert.equal(joinPrompt("alone\n", undefined), "alone\n");
  assert.equal(joinPrompt("", undefined), undefined);
});

Deno.test("samplingOf() gives what the flags say and nothing else", () => {
  const vocabulary = { n_vocab: 100, eogIds: [7, 9] };
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
  assert.throws(() => parseSamplers("top_k;tempreature"), { hint: "did you mean temperature?" });
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
