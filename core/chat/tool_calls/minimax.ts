/**
 * MiniMax M2: `<minimax:tool_call>`, `<invoke name="NAME">`, `<parameter name="KEY">VALUE</parameter>`.
 * M1: one JSON object a line within `<tool_calls>`.
 * @module
 */
import type { Family } from "./call.ts";
import { callArray, callObject } from "./json_call.ts";
import { literal, space } from "./stream.ts";
import { taggedCalls, type TaggedFormat } from "./tagged.ts";

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
      if (!(array ? yield* callArray(s, w, [SECTION_END], one) : yield* one())) return false;
    }
  },
  preserved: [SECTION, SECTION_END, "<think>", "</think>"],
};
