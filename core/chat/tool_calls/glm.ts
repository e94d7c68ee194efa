/**
 * GLM 4.5 to 5: `<tool_call>NAME`, then `<arg_key>K</arg_key><arg_value>V</arg_value>` pairs; 4.5 and 4.6 put newlines
 * between the parts.
 * @module
 */
import { ArgumentList, type Family } from "./call.ts";
import { before, literal, space } from "./stream.ts";

export const glm: Family = {
  name: "glm",
  reasoning: { start: "<think>", end: "</think>" },
  starts: ["<tool_call>"],
  *calls(s, _marker, tools) {
    const head = yield* before(s, ["<arg_key>", "</tool_call>"]);
    const name = head?.text.trim();
    if (head === undefined || name === undefined || !tools.has(name)) return undefined;
    const list = new ArgumentList(name, tools);
    let marker = head.marker;
    while (marker === "<arg_key>") {
      const key = (yield* before(s, ["</arg_key>"]))?.text.trim();
      yield* space(s);
      if (key === undefined || (yield* literal(s, ["<arg_value>"])) === undefined) return undefined;
      const value = (yield* before(s, ["</arg_value>"]))?.text;
      if (value === undefined) return undefined;
      list.add(key, value);
      yield* space(s);
      const next = yield* literal(s, ["<arg_key>", "</tool_call>"]);
      if (next === undefined) return undefined;
      marker = next;
    }
    return [{ name, arguments: list.text() }];
  },
  preserved: [
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<think>",
    "</think>",
  ],
};
