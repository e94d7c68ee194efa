/**
 * Gemma 4: `<|tool_call>call:NAME{key:value,…}<tool_call|>`, strings between `<|"|>`, keys bare; reasoning in
 * `<|channel>thought … <channel|>`. A call is shown once it is complete.
 * @module
 */
import type { Family } from "./family.ts";
import { before, literal } from "./stream.ts";
import { tryJson } from "./loose_json.ts";

const QUOTE = '<|"|>';

export const gemma4: Family = {
  name: "gemma-4",
  reasoning: { start: "<|channel>thought", end: "<channel|>" },
  starts: ["<|tool_call>"],
  *calls(s, _marker, tools, w) {
    if ((yield* literal(s, ["call:"])) === undefined) return false;
    const name = (yield* before(s, ["{"]))?.text.trim();
    const body = (yield* before(s, ["<tool_call|>"]))?.text;
    if (name === undefined || body === undefined || !tools.has(name)) return false;
    const json = toJson("{" + body);
    if (tryJson(json) === undefined) return false;
    w.add({ name, arguments: json });
    return true;
  },
  preserved: ["<|tool_call>", "<tool_call|>", QUOTE, "<|channel>", "<channel|>"],
};

/** Quotes strings and bare keys; numbers and words stay. */
function toJson(text: string): string {
  const parts = text.split(QUOTE);
  return parts.map((part, i) =>
    i % 2 === 1
      ? JSON.stringify(part)
      : part.replace(/([{,]\s*)([^\s{}[\],:"][^{}[\],:"]*?)(\s*:)/g, (_, lead, key, colon) =>
        lead + JSON.stringify(key) + colon)
  ).join("");
}
