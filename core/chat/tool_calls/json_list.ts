/**
 * Calls as a JSON array between two markers: Firefunction, Nemotron Nano v2, Apriel, Command R, Apertus; and
 * Functionary 3.1, whose markers carry the name.
 * @module
 */
import { classOf, repeat, seq, text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { callArray, type CallKeys, callObject, jsonArguments, keyedCall } from "./json_call.ts";
import { before, closing, literal, space } from "./stream.ts";

const anyIndex = repeat(classOf([[0x30, 0x39]]), 1, 4);

interface ListFormat {
  name: string;
  start: string;
  /** Text that may stand between marker and array, and behind the array. */
  fence?: string;
  end?: string;
  keys?: CallKeys;
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
    // A start before a fence is a word that ordinary answers contain too.
    ...(f.fence ? { triggers: [`${f.start}\n${f.fence}`] } : {}),
    *calls(s, _marker, tools, w) {
      if (f.fence !== undefined) {
        yield* space(s);
        yield* literal(s, [f.fence]);
      }
      if (f.start.endsWith("[")) s.pos--;
      const ends = f.end === undefined ? [] : [f.end];
      const one = () => f.nameIsKey ? keyedCall(s, tools, w, ends) : callObject(s, tools, w, ends, f.keys);
      if (!(yield* callArray(s, w, ends, one))) return false;
      if (f.end !== undefined) yield* closing(s, [f.end]);
      return true;
    },
    form: () => ({
      begin: text(f.start + (f.fence === undefined ? "" : `\n${f.fence}\n`) + (f.start.endsWith("[") ? "" : "[")),
      end: text(`]${f.fence === undefined ? "" : "\n"}${f.end ?? ""}`),
      between: text(", "),
      call: (tool) => {
        const name = JSON.stringify(tool.name);
        if (f.nameIsKey) return seq(text(`{${name}: `), tool.args, text("}"));
        const { name: key = "name", args: [argsKey] = ["arguments"], id } = f.keys ?? {};
        const head = id === undefined ? text("{") : seq(text(`{"${id}": "`), anyIndex, text('", '));
        return seq(head, text(`"${key}": ${name}, "${argsKey}": `), tool.args, text("}"));
      },
    }),
    preserved: [f.start, f.end, f.reasoning?.start, f.reasoning?.end, f.content?.start, f.content?.end]
      .filter((m) => m !== undefined),
  };
}

// The bracket belongs to the marker: the word alone is a Python module that answers may mention.
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
  *calls(s, _marker, tools, w) {
    const name = (yield* before(s, [">"]))?.text.trim();
    if (name === undefined || !tools.has(name)) return false;
    if (!(yield* jsonArguments(s, w, name, ["</function>"]))) return false;
    yield* closing(s, ["</function>"]);
    return true;
  },
  form: () => ({
    between: text(""),
    call: (tool) => seq(text(`<function=${tool.name}>`), tool.args, text("</function>")),
  }),
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
