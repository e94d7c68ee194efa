/** What went wrong for people with templates elsewhere, by the ids of the collected cases. */
import assert from "node:assert/strict";
import { renderReport } from "../../eval/compare.ts";
import { TextError } from "../../core/errors.ts";
import { chatFormat } from "../../serve/chat_format.ts";
import { chatTokens } from "../../serve/conversation.ts";
import { BOS, fakeTokenizer, IM_START } from "./fake.ts";
import { withServer } from "./harness.ts";
import { repoDir } from "../shared.ts";

const say = (role: string, content = "x") => ({ role, content });

/** Strict about roles, as released templates are. */
const STRICT = `{%- for m in messages %}
{%- if m.role == "system" and not loop.first %}{{ raise_exception("System message must be at the beginning") }}{% endif %}
{%- if m.role not in ["system", "user", "assistant"] %}{{ raise_exception("Only user and assistant roles are supported!") }}{% endif %}
{%- if not loop.first and m.role == "user" and loop.previtem.role == "user" %}
{{- raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}{% endif %}
{{- "<|im_start|>" + m.role + "\\n" + m.content + "<|im_end|>\\n" }}{% endfor %}{{ "<|im_start|>assistant\\n" }}`;

Deno.test("D5: what a template refuses is a 400 in the template's own words, whatever the route", async () => {
  await withServer({ template: STRICT }, async ({ post, events, server }) => {
    for (
      const [messages, words] of [
        [[say("user"), say("user")], "Conversation roles must alternate user/assistant/user/assistant/..."],
        [[say("user"), say("tool")], "Only user and assistant roles are supported!"],
        [[say("user"), say("system"), say("user")], "System message must be at the beginning"],
      ] as const
    ) {
      for (const stream of [false, true]) {
        const { status, body } = await post("/v1/chat/completions", { messages, stream });
        assert.deepEqual([status, body.error.type, body.error.message], [400, "invalid_request_error", words]);
      }
      const template = await post("/apply-template", { messages });
      assert.deepEqual([template.status, template.body.error.message], [400, words]);
    }
    const anthropic = await post("/v1/messages", { max_tokens: 5, messages: [say("user"), say("user")] });
    assert.deepEqual([anthropic.status, anthropic.body.error.type], [400, "invalid_request_error"]);
    assert.equal(anthropic.body.error.message, "Conversation roles must alternate user/assistant/user/assistant/...");
    // Nothing is left of the refusals: ordinary chats go on.
    const answer = await events("/v1/chat/completions", {
      messages: [say("system"), say("user", "[[[Hi.]]]")],
      stream: true,
    });
    assert.equal(answer.flatMap((e) => e.choices?.[0]?.delta.content ?? []).join(""), "Hi.");
    assert.equal((await (await fetch(`${server.url}/health`)).json()).status, "ok");
  });
});

Deno.test("D5: a template that refuses every probe breaks no start; its refusals are the chats' own", async () => {
  for (const source of ['{{ raise_exception("never") }}', "{{ messages[7].content.nothing }}"]) {
    await withServer({ template: source }, async ({ post }) => {
      assert.equal((await post("/completion", { prompt: "[[[Hi.]]]" })).body.content, "Hi.");
      const { status, body } = await post("/v1/chat/completions", { messages: [say("user")] });
      assert.deepEqual([status, body.error.type], [400, "invalid_request_error"]);
      assert.ok(!/\n {4}at /.test(body.error.message), "no stack");
      if (source.includes("never")) assert.equal(body.error.message, "never");
    });
  }
});

Deno.test("D6: filters and white space that engines lacked render; an unknown filter fails at load by name and line", async () => {
  const source = `{%- set rest = messages | rejectattr("role", "equalto", "system") | list %}
{%- if rest | length == 9 %}none{%-
 else
 -%}{{ rest | map(attribute="role") | join(",") }}{% endif %}`;
  await withServer({ template: source }, async ({ post }) => {
    const { body } = await post("/apply-template", {
      messages: [say("system"), say("user"), say("assistant"), say("user")],
    });
    assert.equal(body.prompt, "user,assistant,user");
  });
  assert.throws(
    () =>
      chatFormat(
        "{# one #}\ntwo\n{{ messages | sparkle }}",
        { bosToken: "", eosToken: "", name: "a.jinja" },
        fakeTokenizer(),
      ),
    (e) =>
      e instanceof TextError && e.code === "text.template_syntax" && e.at.line === 3 &&
      e.message === "Cannot parse a.jinja, line 3: No filter named 'sparkle'",
  );
  const file = await Deno.makeTempFile({ suffix: ".jinja" });
  try {
    await Deno.writeTextFile(file, "{{ messages | sparkle }}");
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, "template", "--template", file, "/dev/null"],
      env: { NO_COLOR: "1" },
    }).output();
    const text = new TextDecoder().decode(stderr);
    assert.deepEqual([code, stdout.length], [1, 0]);
    assert.ok(
      text.includes("line 1: No filter named 'sparkle'") && text.includes(file) && !/\n {4}at /.test(text),
      text,
    );
  } finally {
    await Deno.remove(file);
  }
});

Deno.test("D7: a chat starts with exactly one bos, raw token arrays stay as they are, eval says which it used", async () => {
  const tokenizer = fakeTokenizer();
  const bos = (ids: ArrayLike<number>) => Array.from(ids).filter((id) => id === BOS).length;
  const chat =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";
  for (const template of [`{{ bos_token }}${chat}`, chat, `<s>${chat}`]) {
    await withServer({ template, n_slots: 1 }, async ({ post, engine }) => {
      await post("/v1/chat/completions", { messages: [say("user")], max_tokens: 1 });
      const [{ tokens }] = engine.sequences;
      assert.deepEqual([tokens[0], tokens[1], bos(tokens)], [BOS, IM_START, 1], template);
    });
  }
  assert.equal(bos(chatTokens(tokenizer, "<s>hi")), 1);
  assert.equal(bos(chatTokens(tokenizer, "hi")), 1);
  for (const prompt of [[BOS, BOS, 65], [65, 66], [65, BOS]]) {
    await withServer({ n_slots: 1 }, async ({ post, engine }) => {
      const { body } = await post("/completion", { prompt, n_predict: 1 });
      assert.equal(body.tokens_evaluated, prompt.length);
      assert.deepEqual([...engine.sequences][0].tokens.slice(0, prompt.length), prompt);
    });
  }
  const report = (with_bos: boolean) =>
    renderReport({
      schema: "bloomery.eval/1",
      model: "m",
      base: "o",
      kl_support: "the whole vocabulary",
      n_window: 3,
      skip: 0,
      bos: with_bos,
      rows: [],
      windows: [],
    });
  assert.match(report(true), /each is bos/);
  assert.match(report(false), /with no bos/);
});
