/**
 * Calls whose name and arguments each stand in markup: the common reader of Qwen XML, Seed-OSS, MiniMax and DSML.
 * @module
 */
import { type Expr, seq, text } from "../../sampling/grammar/expr.ts";
import { Members } from "./arguments.ts";
import type { ToolSet } from "./call.ts";
import { elements, type FormMember, type FormTool } from "./form.ts";
import { before, literal, part, type Reading, type Source, space, toolName } from "./stream.ts";
import type { CallWriter } from "./writer.ts";

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

/** One call as these formats write it. */
export function taggedForm(
  tool: FormTool,
  f: TaggedFormat,
  attribute: (m: Pick<FormMember, "isString">) => string = () => "",
): Expr {
  const [open, nameEnd, close] = f.call, [argument, keyEnd, valueEnd] = f.argument, n = f.padded ? "\n" : "";
  return seq(
    text(`${open}${tool.name}${nameEnd}\n`),
    elements(tool, (m) => `${argument}${m.key}${attribute(m)}${keyEnd}${n}`, `${n}${valueEnd}\n`, valueEnd),
    text(close),
  );
}

/** Reads calls up to the section's end; false where the markup breaks off or a tool is not known. */
export function* taggedCalls(s: Source, f: TaggedFormat, tools: ToolSet, w: CallWriter): Reading<boolean> {
  const parts = [f.call[0], f.sectionEnd];
  for (let n = 0;; n++) {
    if ((yield* part(s, parts, n > 0)) !== f.call[0]) return n > 0;
    if (!(yield* taggedCall(s, f, tools, w))) return false;
  }
}

/** Reads one call behind its opening text; false unless an argument or the call's end follows the name. */
export function* taggedCall(s: Source, f: TaggedFormat, tools: ToolSet, w: CallWriter): Reading<boolean> {
  const head = yield* toolName(s, [f.call[1]], tools);
  if (head === undefined) return false;
  const parts = [f.argument[0], f.call[2]];
  yield* space(s);
  let next = yield* literal(s, parts);
  if (next === undefined) return false;
  const members = new Members(w, head.name, tools);
  for (;; next = yield* literal(s, parts)) {
    if (next === f.call[2]) {
      members.end();
      return true;
    }
    const tag = next === undefined ? undefined : (yield* before(s, [f.argument[1]]))?.text;
    if (tag === undefined) break;
    const quote = f.literal ? tag.indexOf('"') : -1;
    const key = (quote < 0 ? tag : tag.slice(0, quote)).trim();
    const literally = f.literal?.(tag.slice(quote + 1));
    if (!(yield* members.value(s, key, f.argument[2], { literally, padded: f.padded ?? false }))) break;
    yield* space(s);
  }
  if (!(yield* w.broken([f.call[2]], parts))) return false;
  if ((yield* literal(s, [f.call[2]])) !== undefined) s.mark = s.pos;
  return true;
}
