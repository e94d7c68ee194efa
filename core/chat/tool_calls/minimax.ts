/**
 * MiniMax M2: `<minimax:tool_call>`, `<invoke name="NAME">`, `<parameter name="KEY">VALUE</parameter>`.
 * M1: one JSON object a line within `<tool_calls>`.
 * @module
 */
import { text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { objectCall } from "./form.ts";
import { callArray, callObject } from "./json_call.ts";
import { cutOff, literal, space } from "./stream.ts";
import { taggedCalls, taggedForm, type TaggedFormat } from "./tagged.ts";

const m2: TaggedFormat = {
  sectionEnd: "</minimax:tool_call>",
  call: ['<invoke name="', '">', "</invoke>"],
  argument: ['<parameter name="', '">', "</parameter>"],
};

export const minimaxM2: Family = {
  name: "minimax-m2",
  reasoning: { start: "<think>", end: "</think>" },
  starts: ["<minimax:tool_call>"],
  calls: (s, _marker, tools, w) => taggedCalls(s, m2, tools, w),
  form: () => ({
    begin: text("<minimax:tool_call>\n"),
    end: text("\n</minimax:tool_call>"),
    between: text("\n"),
    call: (tool) => taggedForm(tool, m2),
  }),
  preserved: ["<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"],
};

const SECTION = "<tool_calls>", SECTION_END = "</tool_calls>";

export const minimaxM1: Family = {
  name: "minimax-m1",
  reasoning: { start: "<think>", end: "</think>" },
  starts: [SECTION],
  *calls(s, _marker, tools, w) {
    const one = () => callObject(s, tools, w, [SECTION_END]);
    for (let n = 0;; n++) {
      yield* space(s);
      if ((yield* literal(s, [SECTION_END])) !== undefined) return n > 0;
      const array = s.text[s.pos] === "[";
      if (n > 0 && !array && s.text[s.pos] !== "{") {
        // The section's end was forgotten, or cut: complete calls count.
        if (cutOff(s, [SECTION_END])) s.pos = s.text.length;
        return true;
      }
      if (!(array ? yield* callArray(s, w, [SECTION_END], one) : yield* one())) return false;
    }
  },
  form: () => ({
    begin: text(`${SECTION}\n`),
    end: text(`\n${SECTION_END}`),
    between: text("\n"),
    call: (tool) => objectCall(tool),
  }),
  preserved: [SECTION, SECTION_END, "<think>", "</think>"],
};
