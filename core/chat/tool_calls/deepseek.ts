/**
 * DeepSeek R1 and V3 (`function`, separator, NAME, a fenced JSON block) and V3.1 (NAME, separator, JSON).
 * @module
 */
import { alt, seq, text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { jsonArguments } from "./json_call.ts";
import { before, closing, literal, part, space } from "./stream.ts";

const SECTION = "<｜tool▁calls▁begin｜>", SECTION_END = "<｜tool▁calls▁end｜>";
const CALL = "<｜tool▁call▁begin｜>", CALL_END = "<｜tool▁call▁end｜>", SEPARATOR = "<｜tool▁sep｜>";

export const deepseek: Family = {
  name: "deepseek",
  reasoning: { start: "<think>", end: "</think>" },
  starts: [SECTION],
  *calls(s, _marker, tools, w) {
    for (let n = 0;; n++) {
      if ((yield* part(s, [CALL, SECTION_END], n > 0)) !== CALL) return n > 0;
      let name = (yield* before(s, [SEPARATOR]))?.text.trim();
      yield* space(s);
      if (name === "function" && s.text[s.pos] !== "{") {
        name = (yield* before(s, ["\n"]))?.text.trim();
        yield* space(s);
        yield* literal(s, ["```json"]);
      }
      if (name === undefined || !tools.has(name)) return false;
      if (!(yield* jsonArguments(s, w, name, ["```", CALL_END, SECTION_END]))) return false;
      yield* closing(s, ["```"]);
      yield* closing(s, [CALL_END]);
    }
  },
  form(template) {
    const fenced = template.includes("```json");
    return {
      begin: text(SECTION),
      end: text(SECTION_END),
      between: alt([text("\n"), text("")]),
      call: (tool) => {
        const [head, tail] = fenced
          ? [`function${SEPARATOR}${tool.name}\n\`\`\`json\n`, "\n```"]
          : [`${tool.name}${SEPARATOR}`, ""];
        return seq(text(CALL + head), tool.args, text(tail + CALL_END));
      },
    };
  },
  preserved: [SECTION, SECTION_END, CALL, CALL_END, SEPARATOR, "<think>", "</think>"],
};
