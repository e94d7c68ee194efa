/**
 * Hermes 2/3, Qwen 2.5, Qwen 3, Granite 4, Bielik, MiMo-VL and kin: `<tool_call>{"name", "arguments"}</tool_call>`
 * a call.
 * @module
 */
import { alt, seq, text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { objectCall } from "./form.ts";
import { callObject } from "./json_call.ts";
import { closing, space } from "./stream.ts";

export const hermes: Family = {
  name: "hermes",
  reasoning: { start: "<think>", end: "</think>" },
  starts: ["<tool_call>"],
  *calls(s, _marker, tools, w) {
    yield* space(s);
    // The object is read as JSON, not up to the closing tag: a string inside may contain that.
    if (!(yield* callObject(s, tools, w, ["</tool_call>"]))) return false;
    // Some models forget the closing tag; a complete object is a call without it.
    yield* closing(s, ["</tool_call>"]);
    return true;
  },
  form: () => ({
    between: alt([text("\n"), text("")]),
    call: (tool) => seq(text("<tool_call>\n"), objectCall(tool), text("\n</tool_call>")),
  }),
  preserved: ["<tool_call>", "</tool_call>", "<think>", "</think>"],
};
