/**
 * Llama 3.1 to 3.3: the whole answer is one bare object `{"name", "parameters"}`, at times behind `<|python_tag|>`.
 * @module
 */
import type { ToolSet } from "./call.ts";
import type { Family } from "./family.ts";
import { objectCall } from "./form.ts";
import { callObject } from "./json_call.ts";
import { type Reading, type Source, space } from "./stream.ts";
import type { CallWriter } from "./writer.ts";

/** First keys that an object may have to be a call. */
const FIRST_KEYS = ['"name"', '"type"', '"function"', '"parameters"', '"arguments"', '"id"'];

function* bareObject(s: Source, tools: ToolSet, w: CallWriter): Reading<boolean> {
  // Ordinary JSON answers are let through as soon as their first key says what they are.
  const start = s.pos++;
  yield* space(s);
  while (!s.ended && FIRST_KEYS.some((k) => k.startsWith(s.text.slice(s.pos)))) yield;
  if (!FIRST_KEYS.some((k) => s.text.startsWith(k, s.pos))) return false;
  s.pos = start;
  return yield* callObject(s, tools, w, []);
}

export const llama3: Family = {
  name: "llama-3",
  starts: ["<|python_tag|>"],
  *calls(s, _marker, tools, w) {
    yield* space(s);
    return s.text[s.pos] === "{" ? yield* bareObject(s, tools, w) : false;
  },
  bareStarts: ["{"],
  bare: bareObject,
  form: () => ({ call: (tool) => objectCall(tool, { name: "name", args: "parameters" }) }),
  preserved: ["<|python_tag|>"],
};
