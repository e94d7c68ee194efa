/**
 * Kimi K2: a section of calls `functions.NAME:IDX`, which is the call's id too, and JSON arguments.
 * @module
 */
import { argumentsText, type Call, type Family } from "./call.ts";
import { before, jsonText, literal, space } from "./stream.ts";

const SECTION = "<|tool_calls_section_begin|>", SECTION_END = "<|tool_calls_section_end|>";
const CALL = "<|tool_call_begin|>", CALL_END = "<|tool_call_end|>", ARGUMENTS = "<|tool_call_argument_begin|>";

export const kimiK2: Family = {
  name: "kimi-k2",
  reasoning: { start: "<think>", end: "</think>" },
  callEndsReasoning: true,
  starts: [SECTION, CALL],
  *calls(s, marker, tools) {
    const calls: Call[] = [];
    let next: string | undefined = marker;
    while (true) {
      const end = s.pos;
      if (next !== CALL) {
        yield* space(s);
        next = yield* literal(s, [CALL, SECTION_END]);
      }
      if (next === undefined) s.pos = end;
      if (next !== CALL) return calls.length > 0 ? calls : undefined;
      next = undefined;
      const id = (yield* before(s, [ARGUMENTS]))?.text.trim();
      const args = argumentsText(yield* jsonText(s, "{"));
      const name = id?.replace(/^functions\./, "").replace(/:\d+$/, "");
      if (id === undefined || name === undefined || args === undefined || !tools.has(name)) return undefined;
      yield* space(s);
      yield* literal(s, [CALL_END]);
      calls.push({ name, arguments: args, id });
    }
  },
  preserved: [SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, "<think>", "</think>"],
};
