/**
 * Kimi K2: a section of calls `functions.NAME:IDX`, which is the call's id too, and JSON arguments.
 * @module
 */
import { classOf, repeat, seq, text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { jsonArguments } from "./json_call.ts";
import { closing, part, toolName } from "./stream.ts";

const SECTION = "<|tool_calls_section_begin|>", SECTION_END = "<|tool_calls_section_end|>";
const CALL = "<|tool_call_begin|>", CALL_END = "<|tool_call_end|>", ARGUMENTS = "<|tool_call_argument_begin|>";

const anyIndex = repeat(classOf([[0x30, 0x39]]), 1, 4);

/** The tool's name in a call's id, or in the beginning of one. */
const nameOf = (id: string): string =>
  "functions.".startsWith(id) ? "" : id.replace(/^functions\./, "").replace(/:\d*$/, "");

export const kimiK2: Family = {
  name: "kimi-k2",
  reasoning: { start: "<think>", end: "</think>" },
  callEndsReasoning: true,
  starts: [SECTION, CALL],
  *calls(s, marker, tools, w) {
    let next: string | undefined = marker;
    for (let n = 0;; n++) {
      if (next !== CALL) next = yield* part(s, [CALL, SECTION_END], n > 0);
      if (next !== CALL) return n > 0;
      next = undefined;
      const head = yield* toolName(s, [ARGUMENTS], tools, nameOf);
      if (head === undefined) return false;
      if (!(yield* jsonArguments(s, w, head.name, [CALL_END, SECTION_END], head.text))) return false;
      yield* closing(s, [CALL_END]);
    }
  },
  form: () => ({
    begin: text(SECTION),
    end: text(SECTION_END),
    between: text(""),
    call: (tool) => seq(text(`${CALL}functions.${tool.name}:`), anyIndex, text(ARGUMENTS), tool.args, text(CALL_END)),
  }),
  preserved: [SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, "<think>", "</think>"],
};
