/**
 * MiniMax M2: `<minimax:tool_call>`, `<invoke name="NAME">`, `<parameter name="KEY">VALUE</parameter>`.
 * M1: one JSON object a line within `<tool_calls>`.
 * @module
 */
import { type Call, callFromObject, callsFromArray, type Family } from "./call.ts";
import { jsonText, literal, space } from "./stream.ts";
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
  calls: (s, _marker, tools) => taggedCalls(s, m2, tools),
  preserved: ["<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"],
};

export const minimaxM1: Family = {
  name: "minimax-m1",
  reasoning: { start: "<think>", end: "</think>" },
  starts: ["<tool_calls>"],
  *calls(s, _marker, tools) {
    const calls: Call[] = [];
    while (true) {
      yield* space(s);
      if ((yield* literal(s, ["</tool_calls>"])) !== undefined) return calls.length > 0 ? calls : undefined;
      const text = yield* jsonText(s);
      const found = text === undefined
        ? undefined
        : text[0] === "["
        ? callsFromArray(text, tools)
        : one(callFromObject(text, tools));
      if (!found) return undefined;
      calls.push(...found);
    }
  },
  preserved: ["<tool_calls>", "</tool_calls>", "<think>", "</think>"],
};

const one = (call: Call | undefined): Call[] | undefined => call && [call];
