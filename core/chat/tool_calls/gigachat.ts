/**
 * GigaChat 3 (`<|message_sep|>⏎⏎function call<|role_sep|>⏎`) and 3.1 (`<|function_call|>`): one JSON object.
 * @module
 */
import type { Family } from "./call.ts";
import { callObject } from "./json_call.ts";
import { space } from "./stream.ts";

export const gigachat: Family = {
  name: "gigachat-3",
  starts: ["<|message_sep|>\n\nfunction call<|role_sep|>\n", "<|function_call|>"],
  *calls(s, _marker, tools, w) {
    yield* space(s);
    return yield* callObject(s, tools, w, []);
  },
  preserved: ["<|message_sep|>", "<|role_sep|>", "<|function_call|>"],
};
