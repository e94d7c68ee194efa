/**
 * Hermes 2/3, Qwen 2.5, Qwen 3, Granite 4, Bielik, MiMo-VL and kin: `<tool_call>{"name", "arguments"}</tool_call>`
 * a call.
 * @module
 */
import { callFromObject, type Family } from "./call.ts";
import { jsonText, literal, space } from "./stream.ts";

export const hermes: Family = {
  name: "hermes",
  reasoning: { start: "<think>", end: "</think>" },
  starts: ["<tool_call>"],
  *calls(s, _marker, tools) {
    // The object is read as JSON, not up to the closing tag: a string inside may contain that.
    const text = yield* jsonText(s, "{");
    if (text === undefined) return undefined;
    const call = callFromObject(text, tools);
    if (!call) return undefined;
    const end = s.pos;
    yield* space(s);
    // Models forget the closing tag at times; a complete object is a call all the same.
    if ((yield* literal(s, ["</tool_call>"])) === undefined) s.pos = end;
    return [call];
  },
  preserved: ["<tool_call>", "</tool_call>", "<think>", "</think>"],
};
