/**
 * GigaChat 3 (`<|message_sep|>⏎⏎function call<|role_sep|>⏎`) and 3.1 (`<|function_call|>`): one JSON object.
 * @module
 */
import { text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { objectCall } from "./form.ts";
import { callObject } from "./json_call.ts";
import { space } from "./stream.ts";

const SECTION = "<|message_sep|>\n\nfunction call<|role_sep|>\n";

export const gigachat: Family = {
  name: "gigachat-3",
  starts: [SECTION, "<|function_call|>"],
  *calls(s, _marker, tools, w) {
    yield* space(s);
    return yield* callObject(s, tools, w, []);
  },
  form: (template) => ({
    begin: text(template.includes("<|function_call|>") ? "<|function_call|>" : SECTION),
    call: (tool) => objectCall(tool),
  }),
  preserved: ["<|message_sep|>", "<|role_sep|>", "<|function_call|>"],
};
