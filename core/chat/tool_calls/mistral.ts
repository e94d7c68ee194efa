/**
 * Mistral: `[TOOL_CALLS]` and a JSON array (Nemo), or NAME`[CALL_ID]`ID`[ARGS]`{…} a call (Small 3.2), or
 * NAME`[ARGS]`{…} (Ministral 3, Magistral, Large 3, which reason within `[THINK]`).
 * @module
 */
import type { Family } from "./call.ts";
import { callArray, callObject, jsonArguments } from "./json_call.ts";
import { before, space } from "./stream.ts";

const CALLS = "[TOOL_CALLS]", ID = "[CALL_ID]", ARGS = "[ARGS]";

export const mistral: Family = {
  name: "mistral",
  reasoning: { start: "[THINK]", end: "[/THINK]" },
  starts: [CALLS],
  *calls(s, _marker, tools, w) {
    yield* space(s);
    if (s.text[s.pos] === "[") return yield* callArray(s, w, [CALLS], () => callObject(s, tools, w, [CALLS]));
    const head = yield* before(s, [ID, ARGS]);
    const id = head?.marker === ID ? (yield* before(s, [ARGS]))?.text.trim() : "";
    const name = head?.text.trim();
    if (name === undefined || id === undefined || !tools.has(name)) return false;
    return yield* jsonArguments(s, w, name, [CALLS], id || undefined);
  },
  preserved: [CALLS, ID, ARGS, "[THINK]", "[/THINK]"],
  idLength: 9, // the templates refuse any other
};
