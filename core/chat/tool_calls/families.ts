/**
 * Which family a chat template belongs to, from markers in its text; the order of the questions matters.
 * @module
 */
import { deepseek } from "./deepseek.ts";
import { dsml } from "./dsml.ts";
import type { Family } from "./family.ts";
import { functionary32 } from "./functionary.ts";
import { gemma4 } from "./gemma.ts";
import { gigachat } from "./gigachat.ts";
import { glm } from "./glm.ts";
import { harmony } from "./harmony.ts";
import { hermes } from "./hermes.ts";
import {
  apertus,
  apriel,
  cohereMoe,
  commandR7b,
  commandRPlus,
  firefunction,
  functionary31,
  granite33,
  nemotronV2,
} from "./json_list.ts";
import { kimiK2 } from "./kimi.ts";
import { kimiK3 } from "./kimi_k3.ts";
import { lfm2 } from "./lfm2.ts";
import { llama3 } from "./llama3.ts";
import { minimaxM1, minimaxM2 } from "./minimax.ts";
import { minimaxM3 } from "./minimax_m3.ts";
import { mistral } from "./mistral.ts";
import { qwenXml, seedOss } from "./qwen_xml.ts";

const families: [family: Family, ...markers: string[]][] = [
  [mistral, "[SYSTEM_PROMPT]", "[TOOL_CALLS]"],
  [harmony, "<|channel|>", "<|message|>"],
  [functionary32, ">>>all", ">>>${recipient}"],
  [kimiK2, "<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
  [kimiK3, "<|open|>", "<|close|>", "<|end_of_msg|>"],
  [cohereMoe, "<|START_TEXT|>", "<|START_ACTION|>"],
  [lfm2, "<|tool_list_start|>"],
  [lfm2, "List of tools: ["],
  [gigachat, "<|role_sep|>", "<|message_sep|>"],
  [minimaxM3, "]<]minimax[>[", "<tool_call>", "<invoke name="],
  [dsml("function_calls"), "dsml_token", "DSML", "function_calls"],
  [dsml("tool_calls"), "dsml_token", "DSML", "tool_calls"],
  [gemma4, "<|tool_call>call:"],
  [seedOss, "<seed:tool_call>"],
  [seedOss, "seed:tool_call"],
  [qwenXml, "<tool_call>", "<function=", "<parameter="],
  [minimaxM2, "minimax:tool_call", "<invoke name="],
  [glm, "<tool_call>", "<arg_key>"],
  [deepseek, "<｜tool▁calls▁begin｜>"],
  [mistral, "[TOOL_CALLS]"],
  [commandR7b, "<|START_ACTION|>"],
  [apertus, "<|tools_prefix|>"],
  [nemotronV2, "<TOOLCALL>"],
  [firefunction, "functools["],
  [functionary31, "<function="],
  [apriel, "<tool_calls>["],
  [hermes, "<tool_call>"],
  [minimaxM1, "<tool_calls>", "<think>"],
  [apriel, "<tool_calls>"],
  [commandRPlus, "Action:", "```json"],
  [llama3, "<|start_header_id|>", '"parameters"'],
  [llama3, "<|python_tag|>"],
  [granite33, "<response>", "<think>"],
];

/** The family of a template without known markers: reasoning in `<think>` tags, no calls. */
const plain: Family = {
  name: "plain",
  reasoning: { start: "<think>", end: "</think>" },
  starts: [],
  preserved: ["<think>", "</think>"],
};

/** Whether a template mentions its family's reasoning tags: models that share a markup of calls differ in that. */
export function speaksOfReasoning(template: string): boolean {
  const tags = familyOf(template).reasoning;
  return tags !== undefined && [tags.start, tags.end].some((tag) => template.includes(tag));
}

/** The family that a chat template belongs to: how its models write reasoning and calls. */
export function familyOf(template: string): Family {
  return families.find(([, ...markers]) => markers.every((m) => template.includes(m)))?.[0] ?? plain;
}
