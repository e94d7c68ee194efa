/**
 * Llama 3.1 to 3.3: the whole answer is one bare object `{"name", "parameters"}`, at times behind `<|python_tag|>`.
 * @module
 */
import { type Call, callFromObject, type Family, type ToolSet } from "./call.ts";
import { jsonText, type Reading, type Source, space } from "./stream.ts";

/** First keys that an object may have to be a call. */
const FIRST_KEYS = ['"name"', '"type"', '"function"', '"parameters"', '"arguments"', '"id"'];

function* bareObject(s: Source, tools: ToolSet): Reading<Call[] | undefined> {
  // Ordinary JSON answers are let through as soon as their first key says what they are.
  const start = s.pos++;
  yield* space(s);
  while (!s.ended && FIRST_KEYS.some((k) => k.startsWith(s.text.slice(s.pos)))) yield;
  if (!FIRST_KEYS.some((k) => s.text.startsWith(k, s.pos))) return undefined;
  s.pos = start;
  const text = yield* jsonText(s, "{");
  const call = text === undefined ? undefined : callFromObject(text, tools);
  return call && [call];
}

export const llama3: Family = {
  name: "llama-3",
  starts: ["<|python_tag|>"],
  *calls(s, _marker, tools) {
    yield* space(s);
    return s.text[s.pos] === "{" ? yield* bareObject(s, tools) : undefined;
  },
  bareStarts: ["{"],
  bare: bareObject,
  preserved: ["<|python_tag|>"],
};
