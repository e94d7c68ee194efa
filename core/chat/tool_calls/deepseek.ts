/**
 * DeepSeek R1 and V3 (`function`, separator, NAME, a fenced JSON block) and V3.1 (NAME, separator, JSON).
 * @module
 */
import { argumentsText, type Call, type Family } from "./call.ts";
import { before, jsonText, literal, space } from "./stream.ts";

const SECTION = "<｜tool▁calls▁begin｜>", SECTION_END = "<｜tool▁calls▁end｜>";
const CALL = "<｜tool▁call▁begin｜>", CALL_END = "<｜tool▁call▁end｜>", SEPARATOR = "<｜tool▁sep｜>";

export const deepseek: Family = {
  name: "deepseek",
  reasoning: { start: "<think>", end: "</think>" },
  starts: [SECTION],
  *calls(s, _marker, tools) {
    const calls: Call[] = [];
    while (true) {
      const end = s.pos;
      yield* space(s);
      const next = yield* literal(s, [CALL, SECTION_END]);
      if (next === SECTION_END) return calls.length > 0 ? calls : undefined;
      if (next === undefined) {
        s.pos = end;
        return calls.length > 0 ? calls : undefined;
      }
      let name = (yield* before(s, [SEPARATOR]))?.text.trim();
      yield* space(s);
      if (name === "function" && s.text[s.pos] !== "{") {
        name = (yield* before(s, ["\n"]))?.text.trim();
        yield* space(s);
        yield* literal(s, ["```json"]);
      }
      const args = argumentsText(yield* jsonText(s, "{"));
      if (name === undefined || args === undefined || !tools.has(name)) return undefined;
      yield* space(s);
      yield* literal(s, ["```"]);
      yield* space(s);
      yield* literal(s, [CALL_END]);
      calls.push({ name, arguments: args });
    }
  },
  preserved: [SECTION, SECTION_END, CALL, CALL_END, SEPARATOR, "<think>", "</think>"],
};
