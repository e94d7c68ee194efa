import assert from "node:assert/strict";
import { repoDir } from "../../tests/shared.ts";
import { TextError } from "../errors.ts";
import { parseJson } from "../json.ts";
import { ChatFormat, opensReasoning } from "./format.ts";
import type { ChatMessage } from "./messages.ts";

const golden = JSON.parse(Deno.readTextFileSync(repoDir + "tests/goldens/chat/templates.json")).templates;
const options = { bosToken: "<s>", eosToken: "</s>", now: () => new Date(2026, 0, 15, 12, 30) };
const format = (name: string) => new ChatFormat(golden[name].template, options);
const of = (source: string) => new ChatFormat(source, options);
const user: ChatMessage = { role: "user", content: "Hi" };
const LOOP =
  "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}";

Deno.test("ChatFormat tells the generation prompt and whether it opens reasoning", () => {
  const qwen = format("Qwen-Qwen3-0.6B");
  const on = qwen.render({ messages: [user], addGenerationPrompt: true });
  assert.equal(on.generationPrompt, "<|im_start|>assistant\n");
  assert.ok(!opensReasoning(qwen.source, on.generationPrompt));
  const off = qwen.render({ messages: [user], addGenerationPrompt: true, kwargs: { enable_thinking: false } });
  assert.equal(off.generationPrompt, "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  assert.ok(!opensReasoning(qwen.source, off.generationPrompt));
  assert.ok(opensReasoning(qwen.source, "<|im_start|>assistant\n<think>\n"));
});

Deno.test("ChatFormat goes on with the last message", () => {
  const messages: ChatMessage[] = [user, { role: "assistant", content: "Once upon" }];
  const { prompt } = format("Qwen-Qwen3-0.6B").render({ messages, addGenerationPrompt: false, continueFinal: true });
  assert.ok(prompt.endsWith("Once upon"), prompt);
});

Deno.test("ChatFormat merges the system message where a template has no such role", () => {
  const refusing = of(
    `{% for m in messages %}{% if m.role == "system" %}{{ raise_exception("no system") }}{% endif %}[{{ m.content }}]{% endfor %}`,
  );
  const messages: ChatMessage[] = [{ role: "system", content: "Be kind." }, user];
  assert.equal(refusing.render({ messages, addGenerationPrompt: false }).prompt, "[Be kind.\nHi]");
  assert.equal(of(LOOP).render({ messages, addGenerationPrompt: false }).prompt, "[system:Be kind.][user:Hi]");
});

Deno.test("ChatFormat gives parts to templates that take nothing else", () => {
  const parts = of(
    `{% for m in messages %}{% for p in m.content %}{% if p.type is defined and p.type == "text" %}<{{ p.text }}>{% endif %}{% endfor %}{% endfor %}`,
  );
  // A string has no parts, so the probe with a string shows nothing (or fails) and the one with parts does.
  assert.equal(of(LOOP).render({ messages: [user], addGenerationPrompt: false }).prompt, "[user:Hi]");
  assert.equal(parts.render({ messages: [user], addGenerationPrompt: false }).prompt, "<Hi>");
});

Deno.test("ChatFormat gives arguments as object or text, as the template prints them", () => {
  const call: ChatMessage = {
    role: "assistant",
    content: "",
    tool_calls: [{ id: "123456789", function: { name: "f", arguments: { a: 1 } } }],
  };
  const messages = [user, call];
  const one = (body: string) =>
    of(
      `{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}${body}{% endfor %}{% endif %}{% endfor %}`,
    )
      .render({ messages, addGenerationPrompt: false }).prompt;
  assert.equal(one("{{ c.function.arguments | tojson }}"), '{"a": 1}');
  assert.equal(one("{{ c.function.name + c.function.arguments }}"), 'f{"a":1}');
  assert.equal(one("{{ c.function.arguments }}"), '{"a":1}');
  call.tool_calls![0].function.arguments = parseJson('{"b": 1.0, "7": 12345678901234567890}');
  assert.equal(one("{{ c.function.name + c.function.arguments }}"), 'f{"b":1.0,"7":12345678901234567890}');
  const kwargs = parseJson('{"k": 2.0}') as Record<string, unknown>;
  assert.equal(of("{{ k }}").renderText({ messages, addGenerationPrompt: false, kwargs }), "2.0");
});

Deno.test("ChatFormat fits reasoning to gpt-oss and lifts its guard", () => {
  const harmony = format("openai-gpt-oss-120b");
  const messages: ChatMessage[] = [
    user,
    {
      role: "assistant",
      content: "dropped",
      reasoning_content: "Think.",
      tool_calls: [{ id: "1", function: { name: "f", arguments: { a: 1 } } }],
    },
    { role: "tool", tool_call_id: "1", content: "ok" },
    { role: "assistant", content: "<|channel|>final<|message|>quoted" },
    user,
  ];
  const { prompt, generationPrompt } = harmony.render({ messages: messages.slice(0, 3), addGenerationPrompt: true });
  assert.equal(generationPrompt, "<|start|>assistant");
  assert.ok(prompt.includes("<|channel|>analysis<|message|>Think.<|end|>"), prompt);
  assert.ok(!prompt.includes("dropped"));
  assert.ok(harmony.render({ messages, addGenerationPrompt: true }).prompt.includes("quoted"));
});

Deno.test("ChatFormat passes a template's refusal on in its own words", () => {
  const mistral = format("mistralai-Mistral-Nemo-Instruct-2407");
  assert.throws(
    () => mistral.render({ messages: [user, user], addGenerationPrompt: true }),
    (e) => e instanceof TextError && e.code === "text.template_refused" && e.message.includes("must alternate"),
  );
});

Deno.test("ChatFormat makes parsers that fit its prompts", () => {
  const qwen = format("Qwen-Qwen3-0.6B");
  const parser = qwen.createParser({ reasoningFormat: "auto", generationPrompt: "<|im_start|>assistant\n<think>\n" });
  assert.deepEqual(parser.push("Hmm</think>Ok"), [{ reasoning_content: "Hmm" }, { content: "Ok" }]);
  assert.ok(qwen.preservedMarkers.includes("<tool_call>"));
});

Deno.test("ChatFormat leaves parts to a template that takes both forms, and joins them for one of text", () => {
  const both = of(
    `{% for m in messages %}{% if m.content is string %}({{ m.content }}){% else %}{% for p in m.content %}<{{ p.text }}>` +
      `{% endfor %}{% endif %}{% endfor %}`,
  );
  const messages: ChatMessage[] = [{
    role: "user",
    content: [{ type: "text", text: "a" }, { type: "text", text: "b" }],
  }];
  assert.equal(both.renderText({ messages, addGenerationPrompt: false }), "<a><b>");
  assert.equal(both.renderText({ messages: [user], addGenerationPrompt: false }), "(Hi)");
  assert.equal(of(LOOP).renderText({ messages, addGenerationPrompt: false }), "[user:a\nb]");
  const json = of("{% for m in messages %}{{ m.content|tojson }}{% endfor %}"); // shows a list, and would show its JSON
  assert.equal(json.renderText({ messages, addGenerationPrompt: false }), '"a\\nb"');
});

Deno.test("ChatFormat keeps earlier reasoning unless asked not to, as llama.cpp does", () => {
  const t = of("{{ preserve_thinking }} {{ clear_thinking }} {{ truncate_history_thinking }} {{ drop_thinking }}");
  const render = (kwargs?: Record<string, unknown>) =>
    t.renderText({ messages: [user], addGenerationPrompt: false, ...(kwargs ? { kwargs } : {}) });
  assert.equal(render(), "True False False False");
  assert.equal(render({ preserve_reasoning: false }), "False True True True");
  assert.equal(render({ clear_thinking: true }), "True True False False");
});

Deno.test("ChatFormat asks for thinking unless the family's answers have no place for it", () => {
  const show = (source: string) => of(source).renderText({ messages: [user], addGenerationPrompt: false });
  assert.equal(show("{{ enable_thinking }}"), "True");
  assert.equal(show("{{ enable_thinking }}{# <|tools_prefix|> of Apertus #}"), "False");
});

Deno.test("ChatFormat gives tools as `functions`, and the date, to a template of that style", () => {
  const tools = [{ type: "function", function: { name: "f", description: "d", parameters: {} } }];
  const t = of("{{ functions }}|{{ datetime }}");
  const f = JSON.stringify([tools[0].function], null, 4);
  assert.equal(t.renderText({ messages: [user], tools, addGenerationPrompt: false }), `${f}|Jan 15 2026`);
  assert.equal(t.renderText({ messages: [user], addGenerationPrompt: false }), "|Jan 15 2026");
});

Deno.test("ChatFormat puts results of calls into the calling message for older templates of Gemma 4", () => {
  const t = of(
    `{% for m in messages %}[{{ m['role'] }}:{% for r in m['tool_responses'] %}{{ r.name }}={{ r.response }};{% endfor %}` +
      `{{ m.content }}]{% endfor %}{# message['tool_responses'] #}`,
  );
  const call = (id: string, name: string) => ({ id, function: { name, arguments: {} } });
  const messages: ChatMessage[] = [
    user,
    { role: "assistant", content: "", tool_calls: [call("1", "f"), call("2", "g")] },
    { role: "tool", tool_call_id: "2", content: '{"b": 1.0, "7": [true]}' },
    { role: "tool", tool_call_id: "1", content: "20 C" },
    { role: "assistant", content: "Done" },
    user,
    { role: "assistant", content: "", tool_calls: [call("3", "h")] },
  ];
  assert.equal(
    t.renderText({ messages, addGenerationPrompt: false }),
    "[user:Hi][assistant:g={'b': 1.0, '7': [True]};f=20 C;Done][user:Hi][assistant:]",
  );
});
