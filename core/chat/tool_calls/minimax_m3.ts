/**
 * MiniMax M3: every tag is written `]<]minimax[>[<…>`; arguments nest as elements, lists as `<item>` elements.
 * @module
 */
import { seq, text } from "../../sampling/grammar/expr.ts";
import type { ArgumentType } from "./argument_type.ts";
import { Members } from "./arguments.ts";
import type { Family } from "./family.ts";
import { cannotWrite, checkKey, type FormMember, memberList } from "./form.ts";
import { before, literal, part, type Reading, type Source, space } from "./stream.ts";

const N = "]<]minimax[>[";
const KEY = /^[^<>/]+$/;
const SECTION_END = `${N}</tool_call>`, INVOKE = `${N}<invoke name="`, INVOKE_END = `${N}</invoke>`;

export const minimaxM3: Family = {
  name: "minimax-m3",
  reasoning: { start: "<mm:think>", end: "</mm:think>" },
  starts: [`${N}<tool_call>`],
  *calls(s, _marker, tools, w) {
    for (let n = 0;; n++) {
      if ((yield* part(s, [INVOKE, SECTION_END], n > 0)) !== INVOKE) return n > 0;
      const name = (yield* before(s, ['">']))?.text.trim();
      if (name === undefined || !tools.has(name)) return false;
      if (!(yield* members(s, new Members(w, name, tools)))) {
        if (!(yield* w.broken([INVOKE_END], [INVOKE_END, `${N}<`]))) return false;
        if ((yield* literal(s, [INVOKE_END])) !== undefined) s.mark = s.pos;
      }
    }
  },
  // Nested values are written as JSON, which the reader takes within an element too.
  form: () => ({
    begin: text(`${N}<tool_call>\n`),
    end: text(`\n${SECTION_END}`),
    between: text("\n"),
    call(tool) {
      // An element's end repeats the argument's name; a grammar cannot repeat a name that it does not know.
      if (tool.extra) cannotWrite(tool, "it may take arguments that its schema does not name: list them in properties");
      const one = ({ key, value }: FormMember) => {
        checkKey(tool, key, KEY);
        const close = `${N}</${key}>`;
        return seq(text(`${N}<${key}>`), value(close), text(`${close}\n`));
      };
      return seq(text(`${INVOKE}${tool.name}">\n`), memberList(tool, one), text(INVOKE_END));
    },
  }),
  preserved: [N, "<mm:think>", "</mm:think>"],
};

/** Reads the elements of a call's arguments and the call's end; false when the text is something else. */
function* members(s: Source, list: Members): Reading<boolean> {
  while (true) {
    yield* space(s);
    const next = yield* literal(s, [INVOKE_END, `${N}<`]);
    if (next === INVOKE_END) {
      list.end();
      return true;
    }
    const key = next === undefined ? undefined : (yield* before(s, [">"]))?.text;
    if (key === undefined || !KEY.test(key)) return false;
    const open = `${N}<${key}>`, close = `${N}</${key}>`;
    const type = list.tools.type(list.name, key);
    if (type.isString) {
      if (!(yield* list.value(s, key, close))) return false;
      continue;
    }
    // The closing tag of the same depth.
    let body = "";
    for (let depth = 1; depth > 0;) {
      const part = yield* before(s, [open, close]);
      if (part === undefined) return false;
      depth += part.marker === open ? 1 : -1;
      body += depth > 0 ? part.text + part.marker : part.text;
    }
    list.add(key, valueText(body, type));
  }
}

/** Elements of a text, `[tag, content]`; undefined when it is not made of elements. */
function elements(text: string): [string, string][] | undefined {
  const found: [string, string][] = [];
  let rest = text.trim();
  while (rest !== "") {
    const m = /^<([^<>/]+)>/.exec(rest.startsWith(N) ? rest.slice(N.length) : "");
    if (!m) return undefined;
    const open = N + m[0], close = `${N}</${m[1]}>`;
    // The closing tag of the same depth.
    let depth = 1, at = open.length;
    while (depth > 0) {
      const end = rest.indexOf(close, at), again = rest.indexOf(open, at);
      if (end < 0) return undefined;
      if (again >= 0 && again < end) {
        depth++;
        at = again + open.length;
      } else {
        depth--;
        at = end + close.length;
      }
    }
    found.push([m[1], rest.slice(open.length, at - close.length)]);
    rest = rest.slice(at).trim();
  }
  return found;
}

function valueText(text: string, type: ArgumentType): string {
  const inner = text.includes(N) ? elements(text) : undefined;
  if (inner?.every(([tag]) => tag === "item")) return `[${inner.map(([, v]) => valueText(v, type.item)).join(", ")}]`;
  if (inner) {
    return `{${inner.map(([k, v]) => `${JSON.stringify(k)}: ${valueText(v, type.property(k))}`).join(", ")}}`;
  }
  return type.isString ? JSON.stringify(text) : type.json(text);
}
