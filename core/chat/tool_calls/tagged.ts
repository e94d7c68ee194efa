/**
 * Calls whose name and arguments each stand in markup: the common reader of Qwen XML, Seed-OSS, MiniMax and DSML.
 * @module
 */
import { ArgumentList, type Call, type ToolSet } from "./call.ts";
import { before, literal, type Reading, type Source, space } from "./stream.ts";

export interface TaggedFormat {
  /** Closes the section that the start marker opened. */
  sectionEnd: string;
  /** Around a call: text before the name, after it, and behind the arguments. */
  call: [open: string, nameEnd: string, close: string];
  /** Around an argument: text before the key, after it, and behind the value. */
  argument: [open: string, keyEnd: string, close: string];
  /** Values stand between newlines that are not theirs. */
  padded?: boolean;
  /** Whether the key's tag says that the value is a string, from the text between key and tag end. */
  literal?: (attributes: string) => boolean | undefined;
}

/** Reads calls up to the section's end; undefined where the markup breaks off or a tool is not known. */
export function* taggedCalls(s: Source, f: TaggedFormat, tools: ToolSet): Reading<Call[] | undefined> {
  const calls: Call[] = [];
  while (true) {
    const end = s.pos;
    yield* space(s);
    const next = yield* literal(s, [f.call[0], f.sectionEnd]);
    if (next === undefined) {
      if (calls.length === 0) return undefined;
      s.pos = end; // the section's end was forgotten; complete calls count
      return calls;
    }
    if (next === f.sectionEnd) return calls.length > 0 ? calls : undefined;
    const call = yield* taggedCall(s, f, tools);
    if (!call) return undefined;
    calls.push(call);
  }
}

/** Reads one call behind its opening text. */
export function* taggedCall(s: Source, f: TaggedFormat, tools: ToolSet): Reading<Call | undefined> {
  const name = (yield* before(s, [f.call[1]]))?.text.trim();
  if (name === undefined || !tools.has(name)) return undefined;
  const list = new ArgumentList(name, tools);
  while (true) {
    yield* space(s);
    const next = yield* literal(s, [f.argument[0], f.call[2]]);
    if (next === undefined) return undefined;
    if (next === f.call[2]) return { name, arguments: list.text() };
    const tag = (yield* before(s, [f.argument[1]]))?.text;
    const value = (yield* before(s, [f.argument[2]]))?.text;
    if (tag === undefined || value === undefined) return undefined;
    const quote = f.literal ? tag.indexOf('"') : -1;
    const key = (quote < 0 ? tag : tag.slice(0, quote)).trim();
    const text = f.padded ? value.replace(/^\n/, "").replace(/\n$/, "") : value;
    const literally = f.literal?.(tag.slice(quote + 1)) ?? tools.isString(name, key);
    list.add(key, text, literally);
  }
}
