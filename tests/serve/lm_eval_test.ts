/**
 * The flow of lm-eval's local-completions: multiple choice by log-likelihood over POST /v1/completions, with the requests that it
 * makes and what it takes from the answers. Held to what the engine gives without a server.
 */
import assert from "node:assert/strict";
import { type ChoiceTask, parseChoices } from "../../eval/choice_files.ts";
import { scoreWindow } from "../../eval/score.ts";
import { libraryPath, openModel } from "../../ffi/mod.ts";
import { servedModel } from "../../serve/language_model.ts";
import { startServer } from "../../serve/server.ts";
import { bloomNano } from "../models.ts";
import { needing, repoDir } from "../shared.ts";
import { withServer } from "./harness.ts";

/** What lm-eval sends: `max_tokens` of 1 and the prompts as token ids, or as texts. */
const request = (prompt: unknown) => ({
  model: "bloom-nano",
  prompt,
  temperature: 0,
  max_tokens: 1,
  logprobs: 1,
  seed: 1234,
  echo: true,
});

/** What lm-eval makes of an answer: the sum of what follows the context, without the generated token, and whether all is greedy. */
function taken(body: any, ctxlens: readonly number[]): { logprob: number; greedy: boolean }[] {
  const choices = [...body.choices].sort((a: any, b: any) => a.index - b.index);
  return choices.map(({ logprobs: { token_logprobs, top_logprobs } }: any, i: number) => {
    const own: number[] = token_logprobs.slice(ctxlens[i], -1), tops = top_logprobs.slice(ctxlens[i], -1);
    return {
      logprob: own.reduce((s, x) => s + x, 0),
      greedy: own.every((x, k) => x === Math.max(...Object.values<number>(tops[k]))),
    };
  });
}

Deno.test({
  ...needing(
    "multiple choice by lm-eval's requests gives the engine's log-likelihoods",
    libraryPath("cpu") !== undefined,
    "the native library",
  ),
  fn: async () => {
    using opened = await openModel(await bloomNano("bf16"), { device: "cpu", n_ctx: 128, n_cache: 128 * 8, n_seq: 8 });
    const { engine, tokenizer } = opened.model;
    const file = `${repoDir}tests/goldens/choices/multiple-choice.bin`;
    const tasks = parseChoices(Deno.readFileSync(file), "multiple-choice", file);
    const prompts = tasks.flatMap((t: ChoiceTask) =>
      t.options.map((o) => ({
        ids: [...tokenizer.encode(t.before + o)],
        ctxlen: tokenizer.encode(t.before).length,
        text: t.before + o,
      }))
    );
    // A greedy continuation too, so that some answers are greedy.
    const start = [...tokenizer.encode("The function returns the")];
    const greedy = [...start];
    for (let i = 0; i < 4; i++) {
      using sequence = engine.createSequence();
      greedy.push((await engine.step([{ sequence, tokens: greedy, output: "last" }]))[0].ids[0]);
    }
    prompts.push({ ids: greedy, ctxlen: start.length, text: "" });
    const expected: { logprob: number; greedy: boolean }[] = [];
    for (const { ids, ctxlen } of prompts) {
      const { logprob, topIds } = await scoreWindow(engine, Int32Array.from(ids), ctxlen - 1, 1);
      expected.push({
        logprob: logprob.reduce((s, x) => s + x, 0),
        greedy: topIds.every((id, k) => id === ids[ctxlen + k]),
      });
    }
    assert.ok(expected.at(-1)!.greedy && expected.some((e) => !e.greedy));

    const server = await startServer({ model: servedModel(opened.model), port: 0, n_slots: 8 });
    try {
      const post = async (prompt: unknown) => {
        const response = await fetch(`${server.url}/v1/completions`, {
          method: "POST",
          body: JSON.stringify(request(prompt)),
        });
        const body = await response.json();
        assert.equal(response.status, 200, JSON.stringify(body));
        return body;
      };
      const ctxlens = prompts.map((p) => p.ctxlen);
      const whole = await post(prompts.map((p) => p.ids));
      const { n_busy, n_steps } = server.scheduler.counters;
      assert.ok(n_busy / n_steps > 4, `${n_busy} prompts in ${n_steps} steps: one request's prompts run together`);
      assert.equal(whole.choices.length, prompts.length);
      whole.choices.forEach((c: any, i: number) =>
        assert.equal(c.logprobs.token_logprobs.length, prompts[i].ids.length + 1, "the prompt's tokens and one more")
      );
      const together = taken(whole, ctxlens);
      together.forEach(({ logprob, greedy }, i) => {
        assert.ok(
          Math.abs(logprob - expected[i].logprob) < 1e-5,
          `prompt ${i}: ${logprob}, expected ${expected[i].logprob}`,
        );
        assert.equal(greedy, expected[i].greedy, `prompt ${i}`);
      });
      for (const i of [0, 5, prompts.length - 1]) {
        assert.deepEqual(taken(await post([prompts[i].ids]), [ctxlens[i]]), [together[i]], "alone, by bits");
      }
      const texts = prompts.slice(0, 9);
      const byText = taken(await post(texts.map((p) => p.text)), ctxlens);
      assert.deepEqual(byText, together.slice(0, 9), "prompts as texts");
      // The answers by the highest log-likelihood.
      let at = 0;
      const chosen = tasks.map((t) => {
        const scores = together.slice(at, at += t.options.length).map((s) => s.logprob);
        return scores.indexOf(Math.max(...scores));
      });
      at = 0;
      const wanted = tasks.map((t) => {
        const scores = expected.slice(at, at += t.options.length).map((s) => s.logprob);
        return scores.indexOf(Math.max(...scores));
      });
      assert.deepEqual(chosen, wanted);
    } finally {
      await server.stop();
    }
  },
});

Deno.test("a scored prompt has one generated token behind it, also where that ends the answer", async () => {
  await withServer({}, async ({ post }) => {
    const prompt = "Ok [[[]]]"; // the model has nothing more to say
    const { body } = await post("/v1/completions", request([prompt, "Ok [[[a]]]"]));
    const [ended, going] = [...body.choices].sort((a: any, b: any) => a.index - b.index);
    assert.equal(ended.finish_reason, "stop");
    assert.equal(ended.text, prompt);
    assert.equal(ended.logprobs.tokens.at(-1), "<|im_end|>");
    assert.equal(ended.logprobs.token_logprobs.length, prompt.length + 2); // the start token, and the end
    assert.equal(going.logprobs.token_logprobs.length, "Ok [[[a]]]".length + 2);
    assert.equal(ended.logprobs.top_logprobs.at(-1)["<|im_end|>"], ended.logprobs.token_logprobs.at(-1));
    const plain = await post("/v1/completions", { ...request(prompt), echo: false });
    assert.deepEqual(plain.body.choices[0].logprobs.tokens, [], "an answer of its own shows no end");
  });
});
