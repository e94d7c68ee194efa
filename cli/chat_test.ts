import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import type { ChatMessage } from "../core/chat/messages.ts";
import { BloomeryError } from "../core/errors.ts";
import type { ChatOptions, Piece, StopReason } from "../core/language_model.ts";
import { fakeIo } from "./_testing.ts";
import { Chat, type ChatModel, type ChatSettings, readConversation } from "./chat.ts";
import type { Terminal } from "./terminal.ts";

/** A model with one token a character, which answers what `answers` gives. */
class FakeModel implements ChatModel {
  readonly asked: { messages: ChatMessage[]; options: ChatOptions }[] = [];

  constructor(readonly engine: { n_ctx: number }, readonly answers: (string | (() => void))[] = []) {}

  renderChat(messages: ChatMessage[]) {
    return { prompt: messages.map((m) => `${m.role[0]}:${m.content};`).join(""), generationPrompt: "" };
  }
  encodeChat(prompt: string) {
    return { length: prompt.length };
  }
  splitAnswer(text: string) {
    return { content: text.replace(/^<.*>/, ""), reasoning: "" };
  }
  async *chat(messages: ChatMessage[], options: ChatOptions): AsyncGenerator<Piece, StopReason> {
    this.asked.push({ messages, options });
    const answer = this.answers.shift() ?? "ok";
    if (typeof answer === "function") answer();
    else for (const text of answer) yield { id: 1, text };
    if (options.signal?.aborted) return "aborted";
    return answer.length === options.maxTokens ? "limit" : "end";
  }
}

/** Runs a chat whose user types these lines; a function is called when its line is due. */
async function chat(
  model: FakeModel,
  lines: (string | "interrupted" | (() => string))[],
  settings: Partial<ChatSettings> = {},
) {
  const { io, printed } = fakeIo();
  const rest = [...lines];
  const terminal: Terminal = {
    readLine() {
      const next = rest.shift();
      if (next === undefined) return Promise.resolve(undefined);
      const line = typeof next === "function" ? next() : next;
      return Promise.resolve(line === "interrupted" ? line : { line });
    },
  };
  const it = new Chat(model, io, { sampling: { temperature: 0.5 }, kwargs: {}, ...settings });
  await it.run(terminal);
  return { printed, messages: it.messages, left: rest.length };
}

const contents = (messages: readonly ChatMessage[]) => messages.map((m) => m.content);

Deno.test("a chat keeps its turns, its system message, and the answers without their reasoning", async () => {
  const model = new FakeModel({ n_ctx: 1000 }, ["<thought>one", "two"]);
  const { printed, messages } = await chat(model, ["first", "", "second"], { system: "be brief" });
  assert.deepEqual(contents(messages), ["first", "one", "second", "two"]);
  assert.deepEqual(contents(model.asked[1].messages), ["be brief", "first", "one", "second"]);
  assert.equal(printed.out, "<thought>one\ntwo\n");
});

Deno.test("commands change what the model gets, and end the chat", async () => {
  const model = new FakeModel({ n_ctx: 1000 });
  const { printed, left } = await chat(model, [
    "/help",
    "/system answer in French",
    "/system",
    "/set temp 0.25",
    "/set top_k 7",
    "/set top-p 0.949999988079071",
    "/set predict 5",
    "/set",
    "bonjour",
    "/clear",
    "//etc is a folder",
    "/exit",
    "never read",
  ]);
  assert.equal(left, 1);
  assert.deepEqual(printed.errors, []);
  assert.match(printed.out, /\/save FILE/);
  assert.match(printed.out, /answer in French\ntemp 0\.25\ntop-k 7\ntop-p 0\.95\npredict 5\n/);
  const [first, second] = model.asked;
  assert.deepEqual(first.options.sampling, { temperature: 0.25, top_k: 7, top_p: 0.949999988079071 });
  assert.equal(first.options.maxTokens, 5);
  assert.deepEqual(contents(second.messages), ["answer in French", "/etc is a folder"]);
});

Deno.test("a command that is not right says so, and the chat goes on", async () => {
  const model = new FakeModel({ n_ctx: 1000 });
  const { printed, messages } = await chat(model, [
    "/svae x",
    "/set tepm 1",
    "/set temp hot",
    "/set temp",
    "/load /nowhere/x.json",
    "/save",
    "still here",
  ]);
  assert.deepEqual(printed.errors, [
    "There is no command /svae",
    "hint: did you mean /save?",
    "There is no setting tepm",
    "hint: did you mean temp?",
    "Cannot use temp hot: expected a number of at least 0",
    "/set temp needs a value",
    "hint: temperature, 0 = always the likeliest token; default: what the model recommends, else 0.8",
    "Cannot use /nowhere/x.json: there is no such file or folder",
    "hint: check the path; a relative one begins at the folder the command runs in",
    "/save needs a file",
    "hint: /save chat.json",
  ]);
  assert.deepEqual(contents(messages), ["still here", "ok"]);
});

Deno.test("Ctrl-C ends the answer and not the chat", async () => {
  let pressCtrlC = () => {};
  const model = new FakeModel({ n_ctx: 1000 }, [() => pressCtrlC()]);
  const { io, printed } = fakeIo();
  pressCtrlC = () => printed.onCtrlC!();
  const lines = ["interrupted", "a question", "another"];
  const it = new Chat(model, io, { sampling: {}, kwargs: {} });
  await it.run({
    readLine: () => {
      const line = lines.shift();
      return Promise.resolve(line === undefined ? undefined : line === "interrupted" ? line : { line });
    },
  });
  assert.equal(printed.notes[1], "/exit or Ctrl-D ends the chat");
  assert.ok(printed.notes.includes("the answer was stopped"));
  assert.deepEqual(contents(it.messages), ["a question", "", "another", "ok"]);
  assert.equal(printed.onCtrlC, undefined, "between answers Ctrl-C is the prompt's");
});

Deno.test("a chat that fills the context loses its oldest turns, and says so", async () => {
  // A message of 8 letters has 11 tokens, u:11111111; the fourth question finds 70 taken, and no quarter left for an answer.
  const model = new FakeModel({ n_ctx: 80 }, ["a".repeat(8), "b".repeat(8), "c".repeat(8), "d".repeat(8)]);
  const { printed, messages } = await chat(model, ["1".repeat(8), "2".repeat(8), "3".repeat(8), "4".repeat(8)], {
    system: "S",
  });
  const full = printed.notes.filter((line) => line.startsWith("the context is full"));
  assert.deepEqual(full, ["the context is full: the oldest 2 messages were dropped"]);
  assert.deepEqual(contents(model.asked[3].messages), [
    "S",
    "22222222",
    "bbbbbbbb",
    "33333333",
    "cccccccc",
    "44444444",
  ]);
  assert.equal(messages.length, 6);
});

Deno.test("a message that does not fit alone is refused, and the conversation stays", async () => {
  const model = new FakeModel({ n_ctx: 50 });
  const { printed, messages } = await chat(model, ["short", "x".repeat(60), "again"]);
  assert.deepEqual(printed.errors, [
    "The message has 63 tokens, the context holds 50",
    "hint: shorten it, or start with a larger --ctx-size",
  ]);
  assert.deepEqual(contents(messages), ["short", "ok", "again", "ok"]);
});

Deno.test("an answer that is cut says why", async () => {
  const { printed } = await chat(new FakeModel({ n_ctx: 100 }, ["12345"]), ["count"], { maxTokens: 5 });
  assert.ok(printed.notes.includes("the answer was cut after 5 tokens, see --predict (-n)"));
});

Deno.test("/save and /load keep a conversation, and files of others", async () => {
  const dir = Deno.makeTempDirSync();
  try {
    const path = `${dir}/chat.json`, other = `${dir}/other.json`;
    Deno.writeTextFileSync(other, "mine");
    const first = await chat(new FakeModel({ n_ctx: 500 }), [
      "hello",
      `/save ${path}`,
      `/save ${path}`,
      `/save ${other}`,
    ], {
      system: "S",
    });
    assert.deepEqual(first.printed.errors, [
      `Cannot write ${other}: it exists already`,
      "hint: choose another name, or /load it first",
    ]);
    assert.equal(Deno.readTextFileSync(other), "mine");
    assert.deepEqual(JSON.parse(Deno.readTextFileSync(path)), {
      schema: "bloomery.chat.v1",
      messages: [
        { role: "system", content: "S" },
        { role: "user", content: "hello" },
        { role: "assistant", content: "ok" },
      ],
    });
    const model = new FakeModel({ n_ctx: 500 });
    const { messages } = await chat(model, [`/load ${path}`, "more"]);
    assert.deepEqual(contents(model.asked[0].messages), ["S", "hello", "ok", "more"]);
    assert.deepEqual(contents(messages), ["hello", "ok", "more", "ok"]);
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});

Deno.test("readConversation() takes lists of messages, and survives any file", () => {
  assert.deepEqual(readConversation('[{"role": "user", "content": "a", "more": 1}]', "f"), [{
    role: "user",
    content: "a",
  }]);
  for (
    const text of [
      "",
      "1",
      "{}",
      '{"messages": 1}',
      '[{"role": "tool", "content": ""}]',
      '[{"role": "user"}]',
      "[null]",
    ]
  ) {
    assert.throws(() => readConversation(text, "f"), { code: "usage.conversation" }, text);
  }
  assert.throws(
    () => readConversation('[{"role": "user", "content": ""}, {"role": "system", "content": ""}]', "f"),
    /messages\[1\] is a system message/,
  );
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
    try {
      for (const m of readConversation(text, "f")) assert.equal(typeof m.content, "string");
    } catch (error) {
      assert.ok(error instanceof BloomeryError && error.code === "usage.conversation", String(error));
    }
  }));
});
