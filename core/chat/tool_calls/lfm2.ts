/**
 * LFM2 and LFM2.5: calls as a Python list, `<|tool_call_start|>[name(key=value, …)]<|tool_call_end|>`, shown once the list
 * is complete.
 * @module
 */
import { alt, optional, repeat, seq, text } from "../../sampling/grammar/expr.ts";
import type { Call, ToolSet } from "./call.ts";
import type { Family } from "./family.ts";
import { checkKey, type FormMember } from "./form.ts";
import { before } from "./stream.ts";
import { fromPython, tryJson } from "./loose_json.ts";

/** An argument's name that cannot be mistaken for the text around it. */
const KEY = /^[^\s=,()[\]{}'"]+$/;

export const lfm2: Family = {
  name: "lfm2",
  reasoning: { start: "<think>", end: "</think>" },
  starts: ["<|tool_call_start|>"],
  *calls(s, _marker, tools, w) {
    const text = (yield* before(s, ["<|tool_call_end|>"]))?.text.trim();
    if (text === undefined || !text.startsWith("[") || !text.endsWith("]")) return false;
    const parts = splitOutside(text.slice(1, -1), ",");
    const calls = parts.map((part) => callOf(part.trim(), tools));
    if (!calls.every((c) => c !== undefined)) return false;
    for (const call of calls) w.add(call);
    return true;
  },
  form: () => ({
    begin: text("<|tool_call_start|>["),
    end: text("]<|tool_call_end|>"),
    between: text(", "),
    call(tool) {
      // The form writes values as JSON, because schemas describe JSON; the reader takes Python's literals too. Required
      // arguments come first, so that the place of each comma is known.
      const of = (required: boolean) => tool.members.filter((m) => m.required === required);
      const one = (m: FormMember) => {
        checkKey(tool, m.key, KEY);
        return seq(text(`${m.key}=`), m.json());
      };
      const extra = tool.extra && seq(tool.extra.key, text("="), tool.extra.json());
      const more = extra === undefined ? [] : [repeat(seq(text(", "), extra), 0, Infinity)];
      const first = of(true).flatMap((m, i) => [text(i === 0 ? "" : ", "), one(m)]);
      const rest = of(false);
      const behind = (from: number) => [...rest.slice(from).map((m) => optional(seq(text(", "), one(m)))), ...more];
      const tail = first.length > 0 ? seq(...behind(0)) : optional(alt([
        text(""),
        ...rest.map((m, i) => seq(one(m), ...behind(i + 1))),
        ...(extra === undefined ? [] : [seq(extra, ...more)]),
      ]));
      return seq(text(`${tool.name}(`), ...first, tail, text(")"));
    },
  }),
  preserved: ["<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>"],
};

function callOf(text: string, tools: ToolSet): Call | undefined {
  const m = /^([\w.-]+)\(([^]*)\)$/.exec(text);
  if (!m || !tools.has(m[1])) return undefined;
  const members: string[] = [];
  for (const part of splitOutside(m[2], ",")) {
    if (part.trim() === "") continue;
    const [key, ...rest] = splitOutside(part, "=");
    const value = fromPython(rest.join("=").trim());
    if (rest.length === 0 || !KEY.test(key.trim()) || tryJson(value) === undefined) return undefined;
    members.push(`${JSON.stringify(key.trim())}: ${value}`);
  }
  return { name: m[1], arguments: `{${members.join(", ")}}` };
}

/** Splits at a character that stands outside brackets and strings. */
function splitOutside(text: string, separator: string): string[] {
  const parts: string[] = [];
  let depth = 0, start = 0, quote = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quote !== "") {
      if (c === "\\") i++;
      else if (c === quote) quote = "";
    } else if (c === "'" || c === '"') quote = c;
    else if ("([{".includes(c)) depth++;
    else if (")]}".includes(c)) depth--;
    else if (c === separator && depth === 0) {
      parts.push(text.slice(start, i));
      start = i + 1;
    }
  }
  parts.push(text.slice(start));
  return parts;
}
