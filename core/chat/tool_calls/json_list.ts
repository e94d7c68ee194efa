/**
 * Calls as a JSON array between two markers: Firefunction, Nemotron Nano v2, Apriel, Command R, Apertus; and
 * Functionary 3.1, whose markers carry the name.
 * @module
 */
import {
  argumentsText,
  type Call,
  callsFromArray,
  elementTexts,
  type Family,
  memberText,
  type ToolSet,
  tryJson,
} from "./call.ts";
import { before, jsonText, literal, space } from "./stream.ts";

interface ListFormat {
  name: string;
  start: string;
  /** Text that may stand between marker and array, and behind the array. */
  fence?: string;
  end?: string;
  keys?: { name: string; args: readonly string[]; id?: string };
  /** Elements are `{NAME: {arguments}}`. */
  nameIsKey?: boolean;
  reasoning?: { start: string; end: string };
  content?: { start: string; end: string };
}

function listFamily(f: ListFormat): Family {
  return {
    name: f.name,
    ...(f.reasoning ? { reasoning: f.reasoning } : {}),
    ...(f.content ? { content: f.content } : {}),
    starts: [f.start],
    *calls(s, _marker, tools) {
      if (f.fence !== undefined) {
        yield* space(s);
        yield* literal(s, [f.fence]);
      }
      if (f.start.endsWith("[")) s.pos--;
      const text = yield* jsonText(s, "[");
      const calls = text === undefined
        ? undefined
        : f.nameIsKey
        ? keyedCalls(text, tools)
        : callsFromArray(text, tools, f.keys);
      if (!calls) return undefined;
      if (f.end !== undefined) {
        const end = s.pos;
        yield* space(s);
        if ((yield* literal(s, [f.end])) === undefined) s.pos = end;
      }
      return calls;
    },
    preserved: [f.start, f.end, f.reasoning?.start, f.reasoning?.end, f.content?.start, f.content?.end]
      .filter((m) => m !== undefined),
  };
}

function keyedCalls(text: string, tools: ToolSet): Call[] | undefined {
  const calls: Call[] = [];
  for (const item of elementTexts(text) ?? []) {
    const object = tryJson(item) as Record<string, unknown> | null;
    const name = typeof object === "object" && object !== null ? Object.keys(object)[0] : undefined;
    const args = name === undefined ? undefined : argumentsText(memberText(item, name));
    if (name === undefined || args === undefined || !tools.has(name)) return undefined;
    calls.push({ name, arguments: args });
  }
  return calls.length > 0 ? calls : undefined;
}

// The bracket belongs to the marker: the word alone is a Python module that answers may well speak of.
export const firefunction = listFamily({ name: "firefunction", start: "functools[" });

export const nemotronV2 = listFamily({
  name: "nemotron-v2",
  start: "<TOOLCALL>",
  end: "</TOOLCALL>",
  reasoning: { start: "<think>", end: "</think>" },
});

export const apriel = listFamily({ name: "apriel", start: "<tool_calls>", end: "</tool_calls>" });

export const commandR7b = listFamily({
  name: "command-r7b",
  start: "<|START_ACTION|>",
  end: "<|END_ACTION|>",
  keys: { name: "tool_name", args: ["parameters"], id: "tool_call_id" },
  reasoning: { start: "<|START_THINKING|>", end: "<|END_THINKING|>" },
  content: { start: "<|START_RESPONSE|>", end: "<|END_RESPONSE|>" },
});

export const cohereMoe = {
  ...commandR7b,
  name: "cohere2-moe",
  content: { start: "<|START_TEXT|>", end: "<|END_TEXT|>" },
};

export const commandRPlus = listFamily({
  name: "command-r-plus",
  start: "Action:",
  fence: "```json",
  end: "```",
  keys: { name: "tool_name", args: ["parameters"] },
});

export const apertus = listFamily({
  name: "apertus",
  start: "<|tools_prefix|>",
  end: "<|tools_suffix|>",
  nameIsKey: true,
});

export const functionary31: Family = {
  name: "functionary-3.1",
  starts: ["<function="],
  *calls(s, _marker, tools) {
    const name = (yield* before(s, [">"]))?.text.trim();
    const args = name !== undefined && tools.has(name) ? argumentsText(yield* jsonText(s, "{")) : undefined;
    if (name === undefined || args === undefined) return undefined;
    yield* space(s);
    yield* literal(s, ["</function>"]);
    return [{ name, arguments: args }];
  },
  preserved: [],
};

/** Granite 3.3: reasoning and response in tags, no calls of its own that a parser could tell from text. */
export const granite33: Family = {
  name: "granite-3.3",
  reasoning: { start: "<think>", end: "</think>" },
  content: { start: "<response>", end: "</response>" },
  starts: [],
  preserved: [],
};
