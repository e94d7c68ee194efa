/** A file without a vocabulary runs by token ids: the library, the server, `score --tokens`; texts are refused by name. */
import assert from "node:assert/strict";
import { TextError } from "../core/errors.ts";
import { ggufValue } from "../core/gguf/metadata.ts";
import { openModel } from "../ffi/mod.ts";
import { servedModel } from "../serve/language_model.ts";
import { startServer } from "../serve/server.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { testFolder } from "./models.ts";
import { repoDir } from "./shared.ts";

for (const [what, model] of [["missing", undefined], ["none", "none"], ["unknown", "rwkv"]] as const) {
  Deno.test(`tokenizer.ggml.model ${what}: ids in, ids out`, async () => {
    const path = `${testFolder()}/by-ids-${what}.gguf`;
    await writeFamilyModel(path, FAMILY_MODELS.llama, {
      written: {
        ...(model === undefined ? {} : { "tokenizer.ggml.model": ggufValue.str(model) }),
        "tokenizer.ggml.eos_token_id": ggufValue.u32(3),
      },
    });
    using opened = await openModel(path, { device: "cpu", n_ctx: 64, n_seq: 1 });
    const { tokenizer } = opened.model;
    assert.equal(tokenizer.n_vocab, N_VOCAB);
    assert.deepEqual([...tokenizer.eogIds], [3]);
    assert.equal(tokenizer.warnings.length, 1);
    assert.match(
      tokenizer.warnings[0],
      model === undefined ? /is missing/ : new RegExp(`"${model}", which is not known`),
    );
    assert.equal(tokenizer.decode([1, 2]), "");
    assert.throws(() => tokenizer.decode([N_VOCAB]), { code: "text.token_id" });

    const ids: number[] = [];
    const sampling = { temperature: 0, logit_bias: new Map([[3, -100]]) };
    for await (const { id } of opened.model.generate([1, 5, 9], { maxTokens: 4, sampling })) ids.push(id);
    assert.equal(ids.filter((id) => id >= 0).length, 4);
    await assert.rejects(opened.model.generate("hello").next(), (e: unknown) => {
      assert.ok(e instanceof TextError && e.code === "text.no_vocabulary", String(e));
      assert.ok(e.message.includes(path));
      return true;
    });

    const server = await startServer({ model: servedModel(opened.model), port: 0, n_slots: 1 });
    try {
      const ask = async (prompt: unknown) => {
        const body = JSON.stringify({
          prompt,
          n_predict: 4,
          temperature: 0,
          logit_bias: [[3, false]],
          return_tokens: true,
        });
        const response = await fetch(`${server.url}/completion`, { method: "POST", body });
        return { status: response.status, ...await response.json() };
      };
      assert.deepEqual((await ask([1, 5, 9])).tokens, ids.filter((id) => id >= 0));
      const refused = await ask("hello");
      assert.equal(refused.status, 400);
      assert.match(refused.error.message, /no vocabulary|tokenizer\.ggml\.model/);
    } finally {
      await server.stop();
    }
  });
}

Deno.test("score --tokens needs no vocabulary", async () => {
  const path = await writeFamilyModel(`${testFolder()}/by-ids-scored.gguf`, FAMILY_MODELS.llama);
  const tokens = `${testFolder()}/by-ids.json`, output = `${testFolder()}/by-ids.jsonl`;
  Deno.writeTextFileSync(tokens, JSON.stringify([1, 5, 9, 2, 8, 7, 11, 4, 6]));
  const args = [
    "score",
    "-m",
    path,
    "--tokens",
    tokens,
    "-o",
    output,
    "--window",
    "8",
    "--device",
    "cpu",
    "--json",
    "-c",
    "64",
  ];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args],
  }).output();
  const text = new TextDecoder();
  assert.equal(code, 0, text.decode(stderr));
  assert.match(text.decode(stderr), /has no vocabulary/);
  const report = JSON.parse(text.decode(stdout));
  assert.equal(report.n_windows, 1);
  assert.ok(report.nll.mean > 0, JSON.stringify(report));
});
