/**
 * `bloomery eval teach` against a local server that plays an API with its faults, and `bloomery eval` against what it wrote.
 */
import assert from "node:assert/strict";
import { bloomery } from "../cli/_testing.ts";
import { parseTeacherFile } from "../eval/teacher_file.ts";
import { LanguageModel, openBackend, openGgufSource, parseFileType, quantize } from "../mod.ts";
import { bloomNano, testFolder } from "./models.ts";
import { repoDir } from "./shared.ts";

const dir = `${testFolder()}/teach`;
Deno.mkdirSync(dir);

const QUESTIONS = [
  "What is 27 + 58?",
  "Who are you?",
  "How many letters are in the word kernel?",
  "목록은 영어로 뭐야?",
];
const prompts = `${dir}/prompts.jsonl`;
Deno.writeTextFileSync(
  prompts,
  QUESTIONS.map((content, i) =>
    JSON.stringify({ messages: [{ role: "user", content }], set: i === 3 ? "korean" : "english" }) + "\n"
  ).join(""),
);

/** Greedy answers of bloom-nano to the questions, as OpenAI's API would give them. */
async function teacherAnswers(): Promise<Map<string, unknown>> {
  using opened = openBackend("cpu");
  using model = await LanguageModel.load(await bloomNano("bf16"), opened.backend, { n_ctx: 512 });
  const answers = new Map<string, unknown>();
  for (const question of QUESTIONS) {
    const prompt = model.encodeChat(model.renderChat([{ role: "user", content: question }]).prompt);
    using sequence = model.engine.createSequence();
    const bytesOf = (id: number) => [...model.tokenizer.pieceBytes(id, true)];
    const token = (id: number, logprob: number) => ({
      token: new TextDecoder().decode(Uint8Array.from(bytesOf(id))),
      bytes: bytesOf(id),
      logprob,
    });
    const content: unknown[] = [], text: number[] = [];
    let next: ArrayLike<number> = prompt;
    for (let i = 0; i < 24; i++) {
      const [out] = await model.engine.step([{ sequence, tokens: next, output: "last" }]);
      if (model.tokenizer.eogIds.has(out.ids[0])) break;
      const logprob = (k: number) => Math.min(0, out.logits[k] - out.lse[0]);
      const top = Array.from({ length: 20 }, (_, k) => token(out.ids[k], logprob(k)));
      content.push({ ...top[0], top_logprobs: top });
      text.push(...bytesOf(out.ids[0]));
      next = [out.ids[0]];
    }
    answers.set(question, {
      choices: [{
        message: { role: "assistant", content: new TextDecoder().decode(Uint8Array.from(text)) },
        logprobs: { content },
        finish_reason: "length",
      }],
      usage: { prompt_tokens: prompt.length, completion_tokens: content.length },
    });
  }
  return answers;
}
const answers = await teacherAnswers();

type Fault = (whole: string) => Response;
const reset: Fault = (whole) =>
  new Response(
    new ReadableStream({
      start(c) {
        c.enqueue(new TextEncoder().encode(whole.slice(0, 200)));
      },
      pull(c) {
        c.error(new Error("reset"));
      },
    }),
  );
const FAULTS: Fault[] = [
  () => new Response("slow down", { status: 429, headers: { "retry-after": "0" } }),
  () => new Response("overloaded", { status: 503, headers: { "retry-after": "0" } }),
  reset,
  (whole) => new Response(whole.slice(0, whole.length / 2)),
  () => new Response("<html>bad gateway</html>", { status: 502, headers: { "retry-after": "0" } }),
];

interface Api extends AsyncDisposable {
  readonly url: string;
  readonly asked: string[];
  readonly requests: any[];
}

/** @param respond What answers a request; its number counts from 0. */
function api(respond: (n: number, whole: string, question: string) => Response | Promise<Response>): Api {
  const asked: string[] = [], requests: any[] = [];
  const server = Deno.serve({
    hostname: "127.0.0.1",
    port: 0,
    onListen() {},
    onError: () => new Response(null, { status: 500 }),
  }, async (r) => {
    const body = await r.json();
    requests.push({ ...body, path: new URL(r.url).pathname, key: r.headers.get("authorization") });
    const question = body.messages.at(-1).content as string;
    asked.push(question);
    return respond(requests.length - 1, JSON.stringify(answers.get(question)), question);
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/v1`,
    asked,
    requests,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

const teachArgs = (url: string, out: string) => [
  ...["eval", "teach", "--url", url, "--model", "teacher", "-f", prompts, "-o", out, "--json", "--max-tokens", "24"],
];

/** A file without its address, in the order of the prompts. */
function contentOf(path: string): unknown {
  const { header, lines } = parseTeacherFile(Deno.readTextFileSync(path), path);
  return [{ ...header, url: "" }, lines];
}

async function reference(): Promise<string> {
  const path = `${dir}/plain.jsonl`;
  await using server = api((_, whole) => new Response(whole));
  const { code, out, err } = await bloomery([...teachArgs(server.url, path), "--price-in", "1", "--price-out", "2"]);
  assert.equal(code, 0, err);
  assert.equal(server.requests.length, 4);
  const { model, temperature, logprobs, top_logprobs, max_tokens, path: asked } = server.requests[0];
  assert.deepEqual([model, temperature, logprobs, top_logprobs, max_tokens, asked], [
    "teacher",
    0,
    true,
    20,
    24,
    "/v1/chat/completions",
  ]);
  const result = JSON.parse(out);
  assert.ok(Math.abs(result.cost - (result.n_prompt + 2 * result.n_answer) / 1e6) < 1e-12);
  return path;
}
const plain = reference();

Deno.test("eval teach gets over every fault, and its file is the one of a run without faults", async () => {
  let n_faults = 0;
  const path = `${dir}/faults.jsonl`;
  await using server = api((n, whole) => n < FAULTS.length ? (n_faults++, FAULTS[n](whole)) : new Response(whole));
  const { code, out, err } = await bloomery([...teachArgs(server.url, path), "--at-once", "2"]);
  assert.equal(code, 0, err);
  assert.equal(n_faults, FAULTS.length);
  assert.equal(JSON.parse(out).n_retries, FAULTS.length);
  assert.equal(server.requests.length, QUESTIONS.length + FAULTS.length);
  assert.deepEqual(contentOf(path), contentOf(await plain));
});

Deno.test("eval teach goes on after a kill without asking again for what it has", async () => {
  const path = `${dir}/killed.jsonl`;
  let kill = () => {};
  await using server = api((n, whole) => {
    if (n === 2) kill();
    return new Response(whole);
  });
  const args = [...teachArgs(server.url, path), "--at-once", "1"];
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args],
    stdout: "null",
    stderr: "null",
  }).spawn();
  kill = () => child.kill("SIGKILL");
  await child.status;
  kill = () => {};
  const whole = Deno.readTextFileSync(path);
  assert.equal(whole.split("\n").length - 1, 3, "a header and two answers");
  // What a kill in the middle of a write leaves.
  Deno.writeTextFileSync(path, whole.slice(0, -30));
  const { code, out, err } = await bloomery(args);
  assert.equal(code, 0, err);
  assert.deepEqual(server.asked.slice(3), QUESTIONS.slice(1), "the first is not asked again");
  assert.equal(JSON.parse(out).n_answers, 4);
  assert.deepEqual(contentOf(path), contentOf(await plain));
  const again = await bloomery(args);
  assert.deepEqual([again.code, server.asked.length], [0, 6], "a whole file asks for nothing");
  const other = await bloomery([...args, "--top", "5"]);
  assert.deepEqual([JSON.parse(other.out).error.code, JSON.parse(other.out).error.at.field], [
    "eval.resume_mismatch",
    "top_k",
  ]);
});

Deno.test("eval teach ends at Ctrl-C in the middle of a question, says how to go on, and does", async () => {
  const path = `${dir}/stopped.jsonl`;
  let stop = () => {};
  const over = Promise.withResolvers<void>();
  await using server = api(async (n, whole) => {
    if (n === 1) {
      stop();
      await over.promise;
    }
    return new Response(whole);
  });
  const args = [...teachArgs(server.url, path), "--at-once", "1"];
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args],
    stdout: "null",
    stderr: "piped",
  }).spawn();
  stop = () => child.kill("SIGINT");
  const { code, stderr } = await child.output();
  over.resolve();
  assert.equal(code, 130);
  assert.match(new TextDecoder().decode(stderr), /run the same command to continue/);
  assert.equal((await bloomery(args)).code, 0);
  assert.equal(server.requests.length, 5, "only the question under way was asked twice");
  assert.deepEqual(contentOf(path), contentOf(await plain));
});

Deno.test("eval teach --dry-run prints what it would cost and asks nothing", async () => {
  await using server = api((_, whole) => new Response(whole));
  const path = `${dir}/dry.jsonl`;
  const args = [...teachArgs(server.url, path), "--dry-run", "--price-out", "10"];
  const { code, out } = await bloomery(args);
  const result = JSON.parse(out);
  assert.deepEqual([code, result.n_open, result.n_answer, server.requests.length], [0, 4, 96, 0]);
  assert.ok(Math.abs(result.cost - 96 * 10 / 1e6) < 1e-12);
  assert.throws(() => Deno.statSync(path), Deno.errors.NotFound);
});

Deno.test("eval teach sends the key, refuses what the API does differently by name, and keeps what it has", async () => {
  const change = (edit: (body: any) => void) => (whole: string) => {
    const body = JSON.parse(whole);
    edit(body);
    return new Response(JSON.stringify(body));
  };
  const cases: [string, (whole: string) => Response][] = [
    ["eval.teacher_no_logprobs", change((b) => b.choices[0].logprobs = null)],
    ["eval.teacher_no_logprobs", change((b) => b.choices[0].logprobs.content[0].top_logprobs = [])],
    ["eval.teacher_tokens", change((b) => b.choices[0].message.content += "!")],
    ["eval.teacher_reasoning", change((b) => b.choices[0].message.reasoning_content = "a thought that no token shows")],
    [
      "eval.teacher_reasoning",
      change((b) => {
        b.usage.completion_tokens += 50;
        b.usage.completion_tokens_details = { reasoning_tokens: 50 };
      }),
    ],
    ["eval.teacher_answer", () => new Response("{}")],
    ["eval.teacher_refused", () => new Response('{"error":"no such model"}', { status: 404 })],
    ["eval.teacher_refused", () => new Response(null, { status: 307, headers: { location: "http://127.0.0.1:1/" } })],
  ];
  Deno.env.set("BLOOMERY_TEST_KEY", "sesame");
  for (const [i, [expected, respond]] of cases.entries()) {
    const path = `${dir}/refused-${i}.jsonl`;
    await using server = api((n, whole) => n === 0 ? new Response(whole) : respond(whole));
    const args = [...teachArgs(server.url, path), "--at-once", "1", "--api-key-env", "BLOOMERY_TEST_KEY"];
    const { code, out, err } = await bloomery(args);
    assert.deepEqual([code, JSON.parse(out).error.code], [1, expected], err);
    assert.equal(server.requests[0].key, "Bearer sesame");
    assert.ok(!(out + err + Deno.readTextFileSync(path)).includes("sesame"), "the key is not told");
    assert.equal(parseTeacherFile(Deno.readTextFileSync(path), path).lines.length, 1);
  }
});

Deno.test("eval against a teacher: the same model is at no distance, and sets have rows of their own", async () => {
  const path = await plain;
  const evaluate = async (...more: string[]) => {
    const { code, out, err } = await bloomery([
      ...["eval", "-m", await bloomNano("bf16"), "--device", "cpu", "--against", path, "--json", ...more],
    ]);
    assert.equal(code, 0, err);
    return JSON.parse(out);
  };
  const { rows, kl_support } = await evaluate();
  assert.deepEqual(rows.map((r: any) => [r.source, r.n_windows]), [["english", 3], ["korean", 1], ["all", 4]]);
  for (const row of rows) {
    assert.ok(row.kl.mean < 1e-6, `${row.source}: KL ${row.kl.mean}`);
    assert.equal(row.same_top.mean, 1);
    assert.ok(Math.abs(row.delta_nll.mean) < 1e-5, `${row.source}: dNLL ${row.delta_nll.mean}`);
  }
  const { lines } = parseTeacherFile(Deno.readTextFileSync(path), path);
  assert.equal(rows[2].n_tokens, lines.reduce((n, l) => n + l.positions.length, 0));
  assert.match(kl_support, /best 20 candidates of teacher/);
});

Deno.test("eval compare of a model with itself sees no difference, and of one with a worse one which is nearer", async () => {
  const worse = `${dir}/q4.gguf`;
  {
    using opened = openBackend("cpu");
    using source = openGgufSource(await bloomNano("bf16"));
    await quantize(source, worse, opened.backend, { fileType: parseFileType("Q4_0") });
  }
  const reports = [await bloomNano("bf16"), worse].map(async (model, i) => {
    const { out, err } = await bloomery(["eval", "-m", model, "--device", "cpu", "--against", await plain, "--json"]);
    assert.equal(err.includes("error"), false, err);
    Deno.writeTextFileSync(`${dir}/report-${i}.json`, out);
    return `${dir}/report-${i}.json`;
  });
  const [a, b] = await Promise.all(reports);
  const compare = async (x: string, y: string) => JSON.parse((await bloomery(["eval", "compare", x, y, "--json"])).out);
  const same = await compare(a, a);
  assert.ok(same.rows.every((r: any) => r.kl.nearer === "neither" && r.kl.difference.mean === 0));
  const differ = (await compare(a, b)).rows.at(-1);
  assert.ok(differ.kl.difference.mean > 1e-4, `KL ${differ.kl.difference.mean}`);
  assert.equal(differ.n_windows, 4);
  const text = await bloomery(["eval", "compare", a, b]);
  assert.match(text.out, /all +KL +0\.00000 /);
});

Deno.test("eval refuses a teacher of another tokenizer", async () => {
  const text = Deno.readTextFileSync(await plain).split("\n").slice(0, -1);
  const rewrite = async (name: string, edit: (positions: any[]) => any[]) => {
    const path = `${dir}/${name}.jsonl`;
    const lines = text.slice(1).map((row) => {
      const line = JSON.parse(row);
      return JSON.stringify({ ...line, positions: edit(line.positions) });
    });
    Deno.writeTextFileSync(path, [text[0], ...lines].join("\n") + "\n");
    const { out } = await bloomery([
      "eval",
      "-m",
      await bloomNano("bf16"),
      "--device",
      "cpu",
      "--against",
      path,
      "--json",
    ]);
    return JSON.parse(out).error;
  };
  const bytes = await rewrite(
    "bytes",
    (positions) =>
      positions.flatMap(([text, bytes, logprob, top]) => bytes.map((b: number) => [text, [b], logprob, top])),
  );
  assert.equal(bytes.code, "eval.vocabulary");
  assert.match(bytes.message, /cuts the teacher's answers differently/);
  const joined = await rewrite("joined", (positions) => [
    ["all", positions.flatMap((p) => p[1]), positions[0][2], positions[0][3]],
  ]);
  assert.equal(joined.code, "eval.vocabulary");
  assert.match(joined.message, /the model has no token/);
});
