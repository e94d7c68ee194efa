import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { EvalError } from "../core/errors.ts";
import { parsePrompts } from "./prompts.ts";
import { askTeacher, ATTEMPTS, questionsOf, readAnswer, type TeacherOptions } from "./teacher.ts";
import { parseTeacherFile, TEACHER_SCHEMA, teacherLine } from "./teacher_file.ts";

const token = (text: string, logprob = -0.5) => ({ token: text, logprob, bytes: [...new TextEncoder().encode(text)] });

function chat(texts: string[], content = texts.join(""), more: Record<string, unknown> = {}) {
  return {
    choices: [{
      message: { content, ...more },
      logprobs: { content: texts.map((t) => ({ ...token(t), top_logprobs: [token("z", -2), token(t)] })) },
      finish_reason: "stop",
    }],
    usage: { prompt_tokens: 7, completion_tokens: texts.length },
  };
}

Deno.test("readAnswer() takes positions with their candidates, best first", () => {
  const a = readAnswer(chat(["Hi", " you"]), "chat");
  assert.deepEqual([a.n_prompt, a.n_answer], [7, 2]);
  assert.deepEqual(a.positions.map((p) => [p.text, p.top.map((t) => t.text)]), [["Hi", ["Hi", "z"]], [" you", [
    " you",
    "z",
  ]]]);
});

Deno.test("readAnswer() joins bytes, also of characters over several tokens and of one that is cut", () => {
  const [a, b, c] = [...new TextEncoder().encode("한")];
  const body = chat(["x", "x", "x"], "x");
  const list = body.choices[0].logprobs.content as { bytes: number[] | null; token: string }[];
  list[0].bytes = [a];
  list[1].bytes = [b];
  list[2].bytes = [c];
  body.choices[0].message.content = "한";
  assert.equal(readAnswer(body, "chat").positions.length, 3);
  list.pop();
  body.choices[0].message.content = "\uFFFD";
  assert.equal(readAnswer(body, "chat").positions.length, 2);
  list[0].bytes = list[1].bytes = null;
  body.choices[0].message.content = "xx";
  assert.deepEqual(readAnswer(body, "chat").positions[0].bytes, null);
});

Deno.test("readAnswer() leaves out the end of the answer where a server counts it as a token", () => {
  assert.equal(readAnswer(chat(["Hi", "<|im_end|>"], "Hi"), "chat").positions.length, 1);
  const cut = chat(["Hi", "<|im_end|>"], "Hi");
  cut.choices[0].finish_reason = "length";
  assert.throws(() => readAnswer(cut, "chat"), { code: "eval.teacher_tokens" });
});

Deno.test("readAnswer() takes reasoning whose tokens are there, and refuses it hidden", () => {
  const shown = chat(["<think>", "so", "</think>", "Hi"], "Hi", { reasoning_content: "so" });
  assert.equal(readAnswer(shown, "chat").positions.length, 4);
  const hidden = chat(["Hi"], "Hi", { reasoning_content: "so" });
  assert.throws(() => readAnswer(hidden, "chat"), { code: "eval.teacher_reasoning" });
});

Deno.test("readAnswer() reads completions, whose tokens that are no text are named by their bytes", () => {
  const body = {
    choices: [{
      text: "é!",
      logprobs: {
        tokens: ["bytes:\\xc3", "bytes:\\xa9", "!"],
        token_logprobs: [-1, -0.25, 0],
        top_logprobs: [{ "bytes:\\xc3": -1, a: -0.5 }, { "bytes:\\xa9": -0.25 }, { "!": 0 }],
      },
    }],
  };
  const a = readAnswer(body, "completions");
  assert.deepEqual(a.positions.map((p) => p.bytes), [[0xc3], [0xa9], null]);
  assert.deepEqual(a.positions[0].top.map((t) => t.text), ["a", "bytes:\\xc3"]);
  assert.deepEqual([a.n_prompt, a.n_answer], [0, 3]);
  assert.throws(() => readAnswer({ choices: [{ text: "a", logprobs: null }] }, "completions"), {
    code: "eval.teacher_no_logprobs",
  });
});

Deno.test("readAnswer() gives an answer or an EvalError, whatever the API says", () => {
  const paths = [
    "choices",
    "choices.0",
    "choices.0.message",
    "choices.0.message.content",
    "choices.0.logprobs",
    "choices.0.logprobs.content",
    "choices.0.logprobs.content.0",
    "choices.0.logprobs.content.0.logprob",
    "choices.0.logprobs.content.0.bytes",
    "choices.0.logprobs.content.0.top_logprobs",
    "choices.0.logprobs.content.0.top_logprobs.0",
    "choices.0.logprobs.content.0.top_logprobs.0.logprob",
    "usage",
  ];
  const values = fc.oneof(fc.jsonValue(), fc.constantFrom(-1, 1, null, [], {}, [300], [65]));
  fc.assert(
    fc.property(fc.constantFrom(...paths), values, fc.constantFrom("chat", "completions"), (path, value, api) => {
      const body = structuredClone(chat(["Hi", " you"])) as any;
      const keys = path.split(".");
      let place = body;
      for (const key of keys.slice(0, -1)) place = place[key];
      place[keys.at(-1)!] = value;
      try {
        for (const p of readAnswer(body, api).positions) {
          assert.ok(p.logprob <= 0 && p.top.every((t) => t.logprob <= 0));
        }
      } catch (e) {
        assert.ok(e instanceof EvalError && e.code.startsWith("eval.teacher_"), String(e));
      }
    }),
  );
});

Deno.test("questionsOf() takes prompts that ask for an answer, and refuses others by line", () => {
  const of = (line: unknown, api: "chat" | "completions") =>
    questionsOf(parsePrompts(JSON.stringify(line), "p", "p"), api);
  const user = { role: "user", content: "a" };
  assert.deepEqual(of({ text: "a" }, "chat"), [{ index: 0, set: "p", messages: [user] }]);
  assert.deepEqual(of({ prompt: "a", set: "s" }, "completions"), [{ index: 0, set: "s", prompt: "a" }]);
  assert.deepEqual(of({ messages: [user] }, "chat"), [{ index: 0, set: "p", messages: [user] }]);
  for (
    const [line, api] of [
      [{ messages: [user] }, "completions"],
      [{ messages: [user, { role: "assistant", content: "b" }] }, "chat"],
      [{ messages: [user], kwargs: { enable_thinking: false } }, "chat"],
      [{ prompt: "a", completion: "b" }, "chat"],
      [{ ids: [1, 2] }, "completions"],
    ] as const
  ) assert.throws(() => of(line, api), { code: "eval.teacher_prompt", message: /p, line 1/ });
});

Deno.test("askTeacher() waits as the API says, longer each time where it says nothing, and gives up", async () => {
  const waits: number[] = [];
  let n = 0;
  await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, () => {
    const headers: Record<string, string> = n++ === 0 ? { "retry-after": "7" } : {};
    return new Response("busy", { status: n === 1 ? 429 : 500, headers });
  });
  const options: TeacherOptions = {
    url: `http://127.0.0.1:${server.addr.port}`,
    model: "m",
    api: "chat",
    top_k: 5,
    max_tokens: 3,
    sleep: (ms) => Promise.resolve(void waits.push(ms)),
  };
  await assert.rejects(askTeacher({ index: 4, set: "s", messages: [] }, options), {
    code: "eval.teacher_unreachable",
    message: /prompt 5: the API answers 500/,
  });
  assert.equal(n, ATTEMPTS);
  assert.deepEqual(waits, [7000, 2000, 4000, 8000, 16000, 32000, 64000]);
});

const header = {
  schema: TEACHER_SCHEMA,
  url: "http://u",
  model: "m",
  api: "chat",
  top_k: 2,
  max_tokens: 9,
  n_prompts: 2,
  prompts_sha256: "00",
};
const question = { index: 1, set: "s", messages: [{ role: "user" as const, content: "a" }] };
const lineOf = (index: number) => teacherLine({ ...question, index }, readAnswer(chat(["Hi", " you"]), "chat"));

Deno.test("parseTeacherFile() reads what was written, in the order of the prompts, and drops a cut line", () => {
  const text = JSON.stringify(header) + "\n" + lineOf(1) + lineOf(0);
  const { lines } = parseTeacherFile(text + lineOf(0).slice(0, 20), "t");
  assert.deepEqual(lines.map((l) => l.index), [0, 1]);
  assert.deepEqual(lines[1], { ...question, ...readAnswer(chat(["Hi", " you"]), "chat") });
  const twice = { code: "eval.teacher_file", message: /line 4, field "index": .* each prompt once; line 2 has it too/ };
  assert.throws(() => parseTeacherFile(text + lineOf(1), "t"), twice);
});

Deno.test("parseTeacherFile() gives a file or an EvalError, whatever the text", () => {
  const good = JSON.stringify(header) + "\n" + lineOf(1) + lineOf(0);
  fc.assert(
    fc.property(
      fc.nat(good.length),
      fc.nat(8),
      fc.constantFrom("", "1", "null", "[", '"', "-", "{}", "\n"),
      (at, n, text) => {
        try {
          for (const l of parseTeacherFile(good.slice(0, at) + text + good.slice(at + n), "t").lines) {
            assert.ok(l.positions.every((p) => p.top.length > 0 && p.logprob <= 0));
          }
        } catch (e) {
          assert.ok(e instanceof EvalError && e.code === "eval.teacher_file", String(e));
        }
      },
    ),
    { numRuns: 500 },
  );
});
