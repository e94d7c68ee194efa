/**
 * `bloomery score` on bloom-nano: prompts of every form, many at once, and continued.
 */
import assert from "node:assert/strict";
import { bloomery } from "../cli/_testing.ts";
import { parseScoreFile } from "../eval/score_file.ts";
import { bloomNano, referencePrompts, testFolder } from "./models.ts";

const dir = `${testFolder()}/score`;
Deno.mkdirSync(dir);

async function score(name: string, ...args: string[]): Promise<{ text: string; result: any }> {
  const path = `${dir}/${name}.jsonl`;
  const model = await bloomNano("bf16");
  const { code, out, err } = await bloomery(["score", "-m", model, "--device", "cpu", "-o", path, "--json", ...args]);
  assert.equal(code, 0, err);
  return { text: Deno.readTextFileSync(path), result: JSON.parse(out) };
}

const user = { role: "user", content: "What is 27 + 58?" };
const LINES = [
  { prompt: "The quick brown fox", completion: " jumps over the lazy dog.", set: "english" },
  { messages: [user, { role: "assistant", content: "27 + 58 = 85." }], set: "chat" },
  { text: "한국어 문장입니다.", set: "korean" },
  { ids: [10, 20, 30, 40], skip: 1, set: "ids" },
  { messages: [user], set: "chat" },
];

Deno.test("score gives the same file whether prompts are run together or alone, and continues a cut one", async () => {
  const prompts = `${dir}/prompts.jsonl`;
  Deno.writeTextFileSync(prompts, LINES.map((line) => JSON.stringify(line)).join("\n"));
  const alone = await score("alone", "--prompts", prompts, "--at-once", "1", "--top", "100");
  const together = await score("together", "--prompts", prompts, "--at-once", "8", "--top", "100");
  assert.equal(together.text, alone.text);
  const file = parseScoreFile(alone.text, "alone");
  assert.deepEqual(file.header.sources, [
    { name: "english", n_windows: 1 },
    { name: "chat", n_windows: 2 },
    { name: "korean", n_windows: 1 },
    { name: "ids", n_windows: 1 },
  ]);
  assert.deepEqual(file.lines.map((l) => l.logprob.length), file.lines.map((l) => l.ids.length - 1 - l.skip));
  assert.equal(file.lines[3].logprob.length, 2);
  assert.ok(file.lines.every((l) => l.top_ids.every((row) => row.length === 100)));
  assert.equal(alone.result.n_tokens, file.lines.reduce((n, l) => n + l.logprob.length, 0));
  assert.match(alone.result.first_position, /no bos before it/);
  const cut = alone.text.slice(0, alone.text.trimEnd().lastIndexOf("\n") - 20);
  Deno.writeTextFileSync(`${dir}/cut.jsonl`, cut);
  const continued = await score("cut", "--prompts", prompts, "--top", "100");
  assert.equal(continued.text, alone.text);
  assert.ok(Math.abs(continued.result.nll.mean - alone.result.nll.mean) < 1e-6);
});

Deno.test("score gives the reference's log-probabilities for token ids, and takes a short text as one window", async () => {
  const { english } = referencePrompts();
  const tokens = `${dir}/tokens.json`, short = `${dir}/short.txt`;
  Deno.writeTextFileSync(tokens, JSON.stringify(english.ids));
  Deno.writeTextFileSync(short, "A short text.");
  const { text } = await score("tokens", "--tokens", tokens, "-f", short, "--window", "4096");
  const [shortLine, line] = parseScoreFile(text, "tokens").lines;
  assert.equal(shortLine.source, "short.txt");
  assert.deepEqual(line.ids, [...english.ids]);
  const worst = Math.max(...line.logprob.map((x, i) => Math.abs(x - english.next_logprob[i])));
  assert.ok(worst < 0.05, `log-probabilities differ by ${worst}`);
});

Deno.test("score refuses a prompt that is longer than the context, and a set that is also a text's name", async () => {
  const model = await bloomNano("bf16");
  const prompts = `${dir}/long.jsonl`, text = `${dir}/english`;
  Deno.writeTextFileSync(prompts, JSON.stringify({ text: "one two three four five", set: "english" }));
  Deno.writeTextFileSync(text, "Some text.");
  const args = ["score", "-m", model, "--device", "cpu", "-o", `${dir}/no.jsonl`, "--json", "--prompts", prompts];
  const long = await bloomery([...args, "--window", "3"]);
  assert.deepEqual([long.code, JSON.parse(long.out).error.code], [1, "eval.prompt_too_long"]);
  const both = await bloomery([...args, "-f", text]);
  assert.deepEqual([both.code, JSON.parse(both.out).error.code], [1, "eval.sources"]);
});
