/**
 * Mistral: `[TOOL_CALLS]` and a JSON array (Nemo), or NAME`[CALL_ID]`ID`[ARGS]`{…} a call (Small 3.2), or
 * NAME`[ARGS]`{…} (Ministral 3, Magistral, Large 3, which reason within `[THINK]`).
 * @module
 */
import { argumentsText, callsFromArray, type Family } from "./call.ts";
import { before, jsonText, space } from "./stream.ts";

export const mistral: Family = {
  name: "mistral",
  reasoning: { start: "[THINK]", end: "[/THINK]" },
  starts: ["[TOOL_CALLS]"],
  *calls(s, _marker, tools) {
    yield* space(s);
    if (s.text[s.pos] === "[") {
      const text = yield* jsonText(s, "[");
      return text === undefined ? undefined : callsFromArray(text, tools);
    }
    const head = yield* before(s, ["[CALL_ID]", "[ARGS]"]);
    const id = head?.marker === "[CALL_ID]" ? (yield* before(s, ["[ARGS]"]))?.text.trim() : "";
    const name = head?.text.trim();
    if (name === undefined || id === undefined || !tools.has(name)) return undefined;
    const args = argumentsText(yield* jsonText(s, "{"));
    return args === undefined ? undefined : [{ name, arguments: args, ...(id ? { id } : {}) }];
  },
  preserved: ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"],
};
