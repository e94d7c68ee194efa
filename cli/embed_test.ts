import assert from "node:assert/strict";
import { ENCODER_MODELS } from "../tests/encoder_models.ts";
import { writeFamilyModel } from "../tests/family_models.ts";
import { testFolder } from "../tests/models.ts";
import { WORDPIECE } from "../tests/peer_encoders.ts";
import { bloomery } from "./_testing.ts";

const made = (name: string) =>
  writeFamilyModel(`${testFolder()}/embed-${name.replace(/\W+/g, "-")}.gguf`, ENCODER_MODELS[name], {
    written: WORDPIECE,
  });
const numbers = (line: string) => line.split(" ").map(Number);

Deno.test("bloomery embed prints vectors: of the file's pooling or another, of any norm, as lines or objects", async () => {
  const path = await made("bert"), file = `${testFolder()}/embed.txt`;
  Deno.writeTextFileSync(file, "the cat sat on the mat\r\n\ndog\n");
  const embed = async (...args: string[]) => {
    const { code, out, err } = await bloomery(["embed", "-m", path, "--device", "cpu", ...args], "who is the dog\n");
    assert.equal(code, 0, err);
    return out;
  };
  const two = (await embed("-f", file)).trimEnd().split("\n");
  assert.equal(two.length, 2);
  for (const line of two) assert.ok(Math.abs(Math.hypot(...numbers(line)) - 1) < 1e-5);
  assert.equal(await embed("-p", "the cat sat on the mat", "-p", "dog"), two.join("\n") + "\n");
  const objects = (await embed("-f", file, "--json", "--pooling", "cls")).trimEnd().split("\n").map((l) =>
    JSON.parse(l)
  );
  assert.deepEqual(objects.map((o) => [o.schema, o.index, o.n_tok]), [
    ["bloomery.embed.v1", 0, 8],
    ["bloomery.embed.v1", 1, 3],
  ]);
  assert.deepEqual(objects.map((o) => o.embedding[0].join(" ")), two, "cls is what the file says");
  const whole = await embed("--normalize", "-1", "--pooling", "mean");
  assert.ok(Math.hypot(...numbers(whole.trimEnd())) > 2, "standard input, not normalised");
  const rows = (await embed("-p", "dog", "--pooling", "none")).split("\n");
  assert.deepEqual([rows.length, rows[3], rows[4]], [5, "", ""], "[CLS] dog [SEP], and an empty line");
});

Deno.test("bloomery embed prints a reranker's scores, and refuses what gives none", async () => {
  const path = await made("bert, reranker"), args = ["embed", "-m", path, "--device", "cpu"];
  const { code, out, err } = await bloomery([
    ...args,
    "--query",
    "what is the cat",
    "-p",
    "the cat sat on the mat",
    "-p",
    "dog",
  ]);
  assert.equal(code, 0, err);
  const scores = out.trimEnd().split("\n").map(Number);
  // llama-server's (tests/serve/rerank_test.ts)
  [1.9742316, 1.6885134].forEach((x, i) => assert.ok(Math.abs(scores[i] - x) < 4e-4, out));
  const refused = await bloomery([...args, "--query", "a", "-p", "b", "--pooling", "mean"]);
  assert.equal(refused.code, 2);
  assert.match(refused.err, /--pooling mean with --query/);
  const other = await bloomery(["embed", "-m", await made("bert"), "--device", "cpu", "--query", "a", "-p", "b"]);
  assert.equal(other.code, 2);
  assert.match(other.err, /usage\.pooling/);
  const nothing = await bloomery([...args]);
  assert.equal(nothing.code, 2);
  assert.match(nothing.err, /Cannot embed nothing: standard input/);
});

Deno.test("an encoder is refused by name where text is continued, before a request", async () => {
  const path = await made("bert");
  const { code, err } = await bloomery(["run", "-m", path, "--device", "cpu", "--raw", "-p", "a", "-n", "2"]);
  assert.equal(code, 1);
  assert.match(err, /gives vectors of texts only \[engine\.no_logits\]/);
  assert.match(err, /bloomery embed/);
});
