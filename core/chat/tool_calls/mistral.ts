/**
 * Mistral: `[TOOL_CALLS]` and a JSON array (Nemo), or NAME`[CALL_ID]`ID`[ARGS]`{…} a call (Small 3.2), or
 * NAME`[ARGS]`{…} (Ministral 3, Magistral, Large 3, which reason within `[THINK]`).
 * @module
 */
import { classOf, repeat, seq, text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { callArray, callObject, jsonArguments } from "./json_call.ts";
import { before, space } from "./stream.ts";

const CALLS = "[TOOL_CALLS]", ID = "[CALL_ID]", ARGS = "[ARGS]";

const alphanumeric = classOf([[0x30, 0x39], [0x41, 0x5a], [0x61, 0x7a]]);

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
  form(template) {
    // The newer ways first: their templates speak of the older ones at times.
    if (template.includes(ARGS)) {
      const id = template.includes(ID) ? [text(ID), repeat(alphanumeric, 9, 9)] : [];
      return {
        between: text(""),
        call: (tool) => seq(text(CALLS + tool.name), ...id, text(ARGS), tool.args),
      };
    }
    const end = seq(text(', "id": "'), repeat(alphanumeric, 9, 9), text('"}'));
    return {
      begin: text(`${CALLS}[`),
      end: text("]"),
      between: text(", "),
      call: (tool) => seq(text(`{"name": ${JSON.stringify(tool.name)}, "arguments": `), tool.args, end),
    };
  },
  preserved: [CALLS, ID, ARGS, "[THINK]", "[/THINK]"],
  idLength: 9, // the templates refuse any other
};
