import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { EvalError } from "../core/errors.ts";
import type { Tokenizer } from "../core/tokenizer/mod.ts";
import { fakeEngine, lseOf } from "./_testing.ts";
import { CHOICE_KINDS, type ChoiceKind, type ChoiceTask, parseChoices } from "./choice_files.ts";
import { drawTasks, planTask, runChoices, summarizeChoices } from "./choices.ts";
import { Mersenne } from "./mersenne.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const parse = (text: string, kind: ChoiceKind) => parseChoices(bytes(text), kind, "set");
/** A token a letter, with a start token. */
const tokenizer = {
  encode: (text: string) => Int32Array.from([0, ...Array.from(text, (c) => c.charCodeAt(0) % 32)]),
} as unknown as Tokenizer;

Deno.test("parseChoices() reads HellaSwag's six lines", () => {
  const [task, second] = parse("He\n2\na\nb\nc\nd\nShe\n0\ne\nf\ng\nh\n\n", "hellaswag");
  assert.deepEqual(task, {
    before: "He",
    options: [" a", " b", " c", " d"],
    after: "",
    right: [false, false, true, false],
  });
  assert.deepEqual(second.right, [true, false, false, false]);
  for (
    const bad of [
      "",
      "He\n2\na\nb\nc\n",
      "He\n4\na\nb\nc\nd",
      "He\nx\na\nb\nc\nd",
      "He\n1\na\n\nc\nd",
      "\n1\na\nb\nc\nd",
    ]
  ) {
    assert.throws(() => parse(bad, "hellaswag"), { code: "eval.tasks" }, bad);
  }
});

Deno.test("parseChoices() reads Winogrande's rows, with commas in quotes", () => {
  const rows = '0,So _ won.,Ann,Bob,2\n1,"Then, _ fell, hard.",the cat,it,1\n\n';
  assert.deepEqual(parse(rows, "winogrande"), [
    { before: "So ", options: ["Ann", "Bob"], after: " won.", right: [false, true] },
    { before: "Then, ", options: ["the cat", "it"], after: " fell, hard.", right: [true, false] },
  ]);
  for (const bad of ["", "0,So _ won.,Ann,2", "0,So won.,Ann,Bob,2", "0,So _ won.,Ann,Bob,3", "0,So _ won.,,Bob,1"]) {
    assert.throws(() => parse(bad, "winogrande"), { code: "eval.tasks" }, bad);
  }
});

/** A file of tasks, as the peer's converter writes it. */
function binary(tasks: readonly { question: string; answers: string[]; right: number }[]): Uint8Array {
  const u32 = (...xs: number[]) => new Uint8Array(Uint32Array.from(xs).buffer);
  const text = (t: string) => [u32(bytes(t).length), bytes(t)];
  const parts = tasks.map(({ question, answers, right }) =>
    [
      ...text(question),
      u32(answers.length),
      ...answers.flatMap(text),
      u32(...answers.map((_, i) => i === right ? 1 : 0)),
      u32(1),
      ...text("z"),
      u32(1),
    ].flatMap((p) => [...p])
  );
  let at = 4 + 4 * tasks.length;
  const positions = parts.map((p) => (at += p.length) - p.length);
  return Uint8Array.from([...u32(tasks.length, ...positions), ...parts.flat()]);
}

Deno.test("parseChoices() reads the binary form, and names the task that is damaged", () => {
  const file = binary([{ question: "Q?", answers: ["a", "bé"], right: 1 }, {
    question: "R",
    answers: ["c"],
    right: 0,
  }]);
  assert.deepEqual(parseChoices(file, "multiple-choice", "set"), [
    { before: "Q?", options: [" a", " bé"], after: "", right: [false, true] },
    { before: "R", options: [" c"], after: "", right: [true] },
  ]);
  const refuses = (b: Uint8Array, message: RegExp) =>
    assert.throws(() => parseChoices(b, "multiple-choice", "set"), { code: "eval.tasks", message });
  refuses(file.subarray(0, file.length - 1), /task 2: it ends after/);
  refuses(new Uint8Array(4), /the head: it has no tasks/);
  refuses(binary([{ question: "", answers: ["a"], right: 0 }]), /task 1: its question is empty/);
  refuses(binary([{ question: "q", answers: [""], right: 0 }]), /task 1: it has no answers, or an empty one/);
  const many = Array.from({ length: 101 }, () => "a");
  refuses(binary([{ question: "q", answers: many, right: 0 }]), /found 101 answers, expected at most 100/);
  const far = file.slice();
  new DataView(far.buffer).setUint32(4, 1e6, true);
  refuses(far, /task 1: it is to begin at byte 1000000/);
});

Deno.test("parseChoices() gives tasks or an EvalError, whatever the bytes", () => {
  const good: Record<ChoiceKind, Uint8Array> = {
    hellaswag: bytes("He\n2\na\nb\nc\nd\n"),
    winogrande: bytes('1,"Then, _ fell.",cat,it,1\n'),
    "multiple-choice": binary([{ question: "Q", answers: ["a", "b"], right: 1 }, {
      question: "R",
      answers: ["c"],
      right: 0,
    }]),
  };
  fc.assert(
    fc.property(
      fc.constantFrom(...CHOICE_KINDS),
      fc.nat(60),
      fc.uint8Array({ maxLength: 6 }),
      fc.nat(8),
      (kind, at, put, drop) => {
        const from = good[kind], cut = Math.min(at, from.length);
        const changed = Uint8Array.from([...from.subarray(0, cut), ...put, ...from.subarray(cut + drop)]);
        try {
          for (const { options, right } of parseChoices(changed, kind, "set")) {
            assert.ok(options.length > 0 && options.length === right.length && options.every((o) => o !== ""));
          }
        } catch (e) {
          assert.ok(e instanceof EvalError && e.code === "eval.tasks", String(e));
        }
      },
    ),
    { numRuns: 600 },
  );
});

Deno.test("Mersenne gives the generator's published numbers, and draws as the peer does", () => {
  const rng = new Mersenne(5489);
  assert.equal(rng.next(), 3499211612);
  for (let i = 0; i < 9998; i++) rng.next();
  assert.equal(rng.next(), 4123659995, "the 10000th");
  const tasks = (n: number) =>
    Array.from({ length: n }, (): ChoiceTask => ({ before: "", options: [], after: "", right: [] }));
  const drawn = (of: number, kind: ChoiceKind, n: number) => drawTasks(tasks(of), kind, n).map(([i]) => i);
  // Checked against llama-perplexity on sets of this size.
  assert.deepEqual(drawn(40, "multiple-choice", 15), [16, 38, 27, 34, 0, 4, 10, 32, 36, 7, 2, 11, 5, 33, 8]);
  assert.deepEqual(drawn(30, "hellaswag", 14), [12, 29, 21, 27, 0, 4, 9, 28, 5, 7, 2, 14, 8, 15]);
  assert.deepEqual(drawn(3, "winogrande", 3), [0, 1, 2], "all of them, in their order");
});

/** Log-probability of a token after others. */
const model = fakeEngine(32, 5);
const logprob = (ids: ArrayLike<number>, at: number, token = ids[at + 1]) => {
  const row = model.logitsAfter(Array.from(ids).slice(0, at + 1));
  return row[token] - lseOf(row);
};
const mean = (values: number[]) => values.reduce((s, x) => s + x, 0) / values.length;

async function scoresOf(task: ChoiceTask, kind: ChoiceKind, n_seq = 8): Promise<(number | null)[][]> {
  const planned = [0, 1, 2].map((i) => planTask([i, task], kind, tokenizer, 100));
  const results = await Array.fromAsync(runChoices(fakeEngine(32, 5).engine, planned, kind, { n_seq }));
  return results.map((r) => [...r.scores]);
}

Deno.test("runChoices() scores what comes after the options' common start", async () => {
  const task = { before: "say", options: [" so", " sit", " no"], after: "", right: [true, false, false] };
  const options = task.options.map((o) => tokenizer.encode(task.before + o));
  const expected = options.map((ids) => mean(Array.from({ length: ids.length - 5 }, (_, i) => logprob(ids, 4 + i))));
  for (const n_seq of [1, 3, 8, 100]) {
    for (const scores of await scoresOf(task, "hellaswag", n_seq)) {
      scores.forEach((x, i) =>
        assert.ok(Math.abs(x! - expected[i]) < 1e-6, `option ${i}: ${x}, expected ${expected[i]}`)
      );
    }
  }
  // One that is the beginning of all others keeps its last token.
  const [beginning] = await scoresOf({ ...task, options: [" s", " sit"], right: [true, false] }, "multiple-choice");
  const short = tokenizer.encode("say s");
  assert.ok(Math.abs(beginning[0]! - logprob(short, short.length - 2)) < 1e-6);
});

Deno.test("runChoices() scores Winogrande's endings, and the choices too where little follows, as the peer does", async () => {
  const long = { before: "x ", options: ["an", "bob"], after: " fell.", right: [true, false] };
  const [scores] = await scoresOf(long, "winogrande");
  long.options.forEach((o, i) => {
    const ids = tokenizer.encode(long.before + o + long.after), from = tokenizer.encode(long.before + o).length;
    const targets = Array.from({ length: ids.length - 1 - from }, (_, k) => from + k); // not the last token
    assert.ok(Math.abs(scores[i]! - mean(targets.map((t) => logprob(ids, t - 1)))) < 1e-6, `option ${i}`);
  });
  const short = { ...long, options: ["a", "bo"], after: "." };
  const [a, b] = short.options.map((o) => tokenizer.encode(short.before + o + short.after));
  const [both] = await scoresOf(short, "winogrande");
  assert.ok(Math.abs(both[0]! - logprob(a, 2)) < 1e-6);
  // The first token of the second choice is asked of the row behind the first option's end.
  assert.ok(Math.abs(both[1]! - mean([logprob(a, a.length - 1, b[3]), logprob(b, 3)])) < 1e-6);
});

Deno.test("runChoices() takes the first of equal scores, and in Winogrande the second, as the peer does", async () => {
  const equal = { before: "x ", options: ["an", "an"], after: " fell over.", right: [true, false] };
  for (const [kind, chosen] of [["multiple-choice", 0], ["winogrande", 1]] as const) {
    const planned = planTask([0, equal], kind, tokenizer, 100);
    const [result] = await Array.fromAsync(runChoices(fakeEngine(32, 5).engine, [planned], kind, { n_seq: 4 }));
    assert.deepEqual([result.chosen, result.right], [chosen, chosen === 0], kind);
  }
});

Deno.test("planTask() refuses a task without a common start, and one that is too long", () => {
  const bare = { encode: (text: string) => tokenizer.encode(text).slice(1) } as unknown as Tokenizer;
  const task = { before: "", options: ["a", "b"], after: "", right: [true, false] };
  assert.throws(() => planTask([4, task], "multiple-choice", bare, 9), { code: "eval.task", message: /task 5/ });
  const long = { ...task, options: ["a".repeat(9), "b"] };
  assert.throws(() => planTask([0, long], "hellaswag", tokenizer, 9), {
    code: "eval.prompt_too_long",
    message: /10 tokens/,
  });
  assert.equal(planTask([0, long], "hellaswag", tokenizer, 10).ids.length, 0 + 10 + 2);
});

Deno.test("summarizeChoices() counts, with the error of a share and what guessing gives", () => {
  const result = (right: boolean, n: number) => ({ index: 0, scores: Array(n).fill(-1), chosen: 0, right });
  const s = summarizeChoices([result(true, 4), result(false, 2), result(true, 4), result(true, 2)]);
  assert.deepEqual([s.n_tasks, s.n_right, s.accuracy.mean, s.chance], [4, 3, 0.75, 4 / 12]);
  assert.ok(Math.abs(s.accuracy.se! - Math.sqrt(0.75 * 0.25 / 3)) < 1e-15);
  // Wilson's interval of 3 in 4.
  assert.ok(Math.abs(s.interval[0] - 0.300642) < 1e-6 && Math.abs(s.interval[1] - 0.954413) < 1e-6, String(s.interval));
  assert.equal(summarizeChoices([result(true, 4)]).accuracy.se, null);
});
