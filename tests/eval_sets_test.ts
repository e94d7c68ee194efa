/**
 * `bloomery eval` of one model alone gives llama-perplexity's figures: perplexity, and three kinds of multiple-choice sets.
 */
import assert from "node:assert/strict";
import { bloomery } from "../cli/_testing.ts";
import { bloomNano } from "./models.ts";
import { needingShared, repoDir, sharedDir } from "./shared.ts";

const near = (found: number, expected: number, tolerance: number, what: string) =>
  assert.ok(Math.abs(found - expected) <= tolerance, `${what}: ${found}, expected ${expected}`);

async function evaluate(...args: string[]): Promise<any> {
  const { code, out, err } = await bloomery([
    "eval",
    "-m",
    await bloomNano("bf16"),
    "--device",
    "cpu",
    "--json",
    ...args,
  ]);
  assert.equal(code, 0, err);
  return JSON.parse(out);
}

const choices = `${repoDir}tests/goldens/choices/`;
const golden = JSON.parse(Deno.readTextFileSync(`${choices}peer.json`));

Deno.test("eval --hellaswag gives the peer's answers, of the tasks that the peer draws", async () => {
  const args = ["--hellaswag", "-f", `${choices}hellaswag.txt`];
  const all = await evaluate(...args);
  assert.deepEqual([all.n_tasks, all.n_right, all.accuracy.mean], [10, golden.hellaswag.n_right, 0.5]);
  golden.hellaswag.interval.forEach((x: number, i: number) => near(all.interval[i], x, 1e-6, "interval"));
  const drawn = await evaluate(...args, "--hellaswag-tasks", "4");
  assert.deepEqual(drawn.tasks.map((t: any) => t.right), golden.hellaswag.drawn);
  const alone = await evaluate(...args, "--at-once", "1");
  assert.deepEqual(alone, all, "tasks that are run together give what each gives alone, by bits");
});

Deno.test("eval --winogrande gives the peer's scores", async () => {
  const args = ["--winogrande", "-f", `${choices}winogrande.csv`];
  const all = await evaluate(...args);
  assert.deepEqual([all.n_tasks, all.n_right], [10, golden.winogrande.n_right]);
  golden.winogrande.scores.forEach((scores: number[], task: number) =>
    scores.forEach((x, i) => near(all.tasks[task].scores[i], x, 0.03, `task ${task}`))
  );
  const drawn = await evaluate(...args, "--tasks", "4");
  assert.deepEqual(drawn.tasks.map((t: any) => t.index), golden.winogrande.drawn);
});

Deno.test("eval --multiple-choice gives the peer's answers", async () => {
  const args = ["--multiple-choice", "-f", `${choices}multiple-choice.bin`], wanted = golden["multiple-choice"];
  const all = await evaluate(...args);
  assert.deepEqual([all.n_tasks, all.n_right], [12, wanted.n_right]);
  near(all.accuracy.se, wanted.se, 1e-6, "±");
  near(all.chance, wanted.chance, 1e-6, "chance");
  const drawn = await evaluate(...args, "--tasks", "5");
  assert.deepEqual(drawn.tasks.map((t: any) => t.right), wanted.drawn);
});

Deno.test("eval --ppl gives llama-perplexity's estimate within 0.2 % in NLL, and of its chunks", async () => {
  const peer = JSON.parse(Deno.readTextFileSync(`${repoDir}tests/goldens/perplexity/peer.json`));
  const texts = Object.keys(peer.ppl);
  const files = texts.flatMap((t) => ["-f", `${repoDir}tests/goldens/perplexity/${t}.txt`]);
  const { rows } = await evaluate("--ppl", "-c", String(peer.window), ...files);
  texts.forEach((text, i) => {
    const nll = Math.log(peer.ppl[text].BF16);
    assert.equal(rows[i].source, `${text}.txt`);
    near(rows[i].nll.mean, nll, 2e-3 * nll, text);
    assert.equal(rows[i].n_tokens, rows[i].n_chunks * (peer.window / 2 - 1));
  });
  const first = await evaluate("--ppl", "--window", String(peer.window), "--chunks", "1", ...files);
  assert.deepEqual(first.rows.map((r: any) => r.n_chunks), texts.map(() => 1));
});

Deno.test({
  ...needingShared("eval --ppl gives a published perplexity within 0.2 %, and its error"),
  fn: async () => {
    const line = Deno.readTextFileSync(`${sharedDir}models/reference/ppl-peer.txt`).split("\n")
      .find((row) => row.startsWith("bloom-nano BF16 korean "))!;
    const [, ppl, se] = /([\d.]+) \+- ([\d.]+)$/.exec(line)!.map(Number);
    const { rows: [row] } = await evaluate("--ppl", "-f", `${sharedDir}eval-text/korean.txt`);
    near(row.ppl.mean, ppl, 2e-3 * ppl, "PPL");
    near(row.ppl.se, se, 5e-3 * se, "±");
  },
});

Deno.test("eval asks for one thing to measure", async () => {
  const refused = async (...args: string[]) => {
    const { code, out } = await bloomery(["eval", "-m", "none.gguf", "--json", ...args]);
    return [code, JSON.parse(out).error.code];
  };
  assert.deepEqual(await refused(), [2, "usage.missing_flag"]);
  assert.deepEqual(await refused("--ppl", "--hellaswag", "-f", "x"), [2, "usage.arguments"]);
  assert.deepEqual(await refused("--ppl", "--against", "b.gguf"), [2, "usage.arguments"]);
  assert.deepEqual(await refused("--winogrande"), [2, "usage.arguments"]);
});
