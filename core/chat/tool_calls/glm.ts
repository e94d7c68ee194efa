/**
 * GLM 4.5 to 5: `<tool_call>NAME`, then `<arg_key>K</arg_key><arg_value>V</arg_value>` pairs; 4.5 and 4.6 put newlines
 * between the parts.
 * @module
 */
import { seq, text } from "../../sampling/grammar/expr.ts";
import { Members } from "./arguments.ts";
import type { Family } from "./family.ts";
import { elements } from "./form.ts";
import { before, literal, space, toolName } from "./stream.ts";

const KEY = "<arg_key>", KEY_END = "</arg_key>", VALUE = "<arg_value>", VALUE_END = "</arg_value>";
const CALL = "<tool_call>", CALL_END = "</tool_call>";

export const glm: Family = {
  name: "glm",
  reasoning: { start: "<think>", end: "</think>" },
  starts: [CALL],
  *calls(s, _marker, tools, w) {
    const head = yield* toolName(s, [KEY, CALL_END], tools);
    if (head === undefined) return false;
    s.pos -= head.marker.length;
    const members = new Members(w, head.name, tools);
    while (true) {
      yield* space(s);
      const next = yield* literal(s, [KEY, CALL_END]);
      if (next === CALL_END) {
        members.end();
        return true;
      }
      const key = next === undefined ? undefined : (yield* before(s, [KEY_END]))?.text.trim();
      yield* space(s);
      if (key === undefined || (yield* literal(s, [VALUE])) === undefined) break;
      if (!(yield* members.value(s, key, VALUE_END))) break;
    }
    if (!(yield* w.broken([CALL_END], [KEY, CALL_END, VALUE]))) return false;
    if ((yield* literal(s, [CALL_END])) !== undefined) s.mark = s.pos;
    return true;
  },
  form(template) {
    // GLM 4.5 and 4.6 put every part on a line of its own.
    const n = template.includes("</arg_key>\n") ? "\n" : "";
    return {
      between: text(n),
      call: (tool) =>
        seq(
          text(`${CALL}${tool.name}${n}`),
          elements(tool, ({ key }) => `${KEY}${key}${KEY_END}${n}${VALUE}`, `${VALUE_END}${n}`, VALUE_END),
          text(CALL_END),
        ),
    };
  },
  preserved: [CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END, "<think>", "</think>"],
};
