/**
 * GigaChat 3 (`<|message_sep|>⏎⏎function call<|role_sep|>⏎`) and 3.1 (`<|function_call|>`): one JSON object.
 * @module
 */
import { callFromObject, type Family } from "./call.ts";
import { jsonText } from "./stream.ts";

export const gigachat: Family = {
  name: "gigachat-3",
  starts: ["<|message_sep|>\n\nfunction call<|role_sep|>\n", "<|function_call|>"],
  *calls(s, _marker, tools) {
    const text = yield* jsonText(s, "{");
    const call = text === undefined ? undefined : callFromObject(text, tools);
    return call && [call];
  },
  preserved: ["<|message_sep|>", "<|role_sep|>", "<|function_call|>"],
};
