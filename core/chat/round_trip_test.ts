/** What templates write of a past answer, their parsers read back: the two sides of one format. */
import assert from "node:assert/strict";
import { needingShared, repoDir, sharedDir } from "../../tests/shared.ts";
import type { ChatMessage } from "./messages.ts";
import { createOutputParser } from "./reasoning.ts";
import { ChatTemplate } from "./template.ts";

const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Weather",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, n: { type: "integer" }, o: { type: "object" } },
      },
    },
  },
  {
    type: "function",
    function: { name: "add", description: "Add", parameters: { type: "object", properties: { a: {}, b: {} } } },
  },
];
const OPENING = "Let me see.";
const calls = [
  { name: "get_weather", arguments: { city: "Zürich <b>", n: 3, o: { x: [1, true] } } },
  { name: "add", arguments: { a: 1, b: 2.5 } },
];

function assertRoundTrip(name: string, source: string): void {
  const template = new ChatTemplate(source, { bosToken: "<s>", eosToken: "</s>", name });
  const messages: ChatMessage[] = [
    { role: "user", content: "Hi" },
    {
      role: "assistant",
      content: OPENING,
      tool_calls: calls.map((f, i) => ({ id: `abc12345${i}`, type: "function", function: f })),
    },
  ];
  const text = template.render({ messages, tools });
  const answer = text.slice(text.lastIndexOf(OPENING));
  const parser = createOutputParser({ template: source, reasoningFormat: "auto", tools, startsInReasoning: false });
  const deltas = [...[...answer].flatMap((c) => parser.push(c)), ...parser.finish()];
  assert.ok(deltas.map((d) => d.content ?? "").join("").startsWith(OPENING), name);
  const found: { name: string | undefined; arguments: string }[] = [];
  for (const { tool_call: c } of deltas) {
    if (c?.name) found.push({ name: c.name, arguments: "" });
    if (c) found[c.index].arguments += c.arguments;
  }
  assert.deepEqual(found.map((c) => ({ ...c, arguments: JSON.parse(c.arguments) })), calls, name);
}

Deno.test("createOutputParser() reads back what chosen templates write", () => {
  const golden = JSON.parse(Deno.readTextFileSync(repoDir + "tests/goldens/chat/templates.json")).templates;
  for (
    const name of [
      "Qwen-Qwen3-0.6B",
      "Qwen3-Coder",
      "deepseek-ai-DeepSeek-V3.1",
      "GLM-4.6",
      "ByteDance-Seed-OSS",
      "meetkai-functionary-medium-v3.1",
    ]
  ) assertRoundTrip(name, golden[name].template);
});

Deno.test({
  ...needingShared("createOutputParser() reads back what the templates of the shared set write"),
  fn() {
    for (
      const name of [
        "Apertus-8B-Instruct",
        "Apriel-1.6-15b-Thinker-fixed",
        "Bielik-11B-v3.0-Instruct",
        "GLM-4.7-Flash",
        "GLM-5.2",
        "Kimi-K2-Instruct",
        "Kimi-K2-Thinking",
        "MiMo-VL",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen3.5-4B",
        "Reka-Edge",
        "StepFun3.5-Flash",
        "deepseek-ai-DeepSeek-V3.2",
        "deepseek-ai-DeepSeek-V4",
        "mistralai-Ministral-3-14B-Reasoning-2512",
        "moonshotai-Kimi-K2",
        "stepfun-ai-Step-3.5-Flash",
        "unsloth-Apriel-1.5",
        "unsloth-mistral-Devstral-Small-2507",
      ]
    ) assertRoundTrip(name, Deno.readTextFileSync(`${sharedDir}templates/${name}.jinja`));
  },
});
