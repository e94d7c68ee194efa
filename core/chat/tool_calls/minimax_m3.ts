/**
 * MiniMax M3: every tag is written `]<]minimax[>[<…>`; arguments nest as elements, lists as `<item>` elements.
 * @module
 */
import { type Call, type Family, fromPython, tryJson } from "./call.ts";
import { before, literal, space } from "./stream.ts";

const N = "]<]minimax[>[";
const SECTION_END = `${N}</tool_call>`, INVOKE = `${N}<invoke name="`, INVOKE_END = `${N}</invoke>`;

export const minimaxM3: Family = {
  name: "minimax-m3",
  reasoning: { start: "<mm:think>", end: "</mm:think>" },
  starts: [`${N}<tool_call>`],
  *calls(s, _marker, tools) {
    const calls: Call[] = [];
    while (true) {
      yield* space(s);
      const next = yield* literal(s, [INVOKE, SECTION_END]);
      if (next === SECTION_END) return calls.length > 0 ? calls : undefined;
      const name = next === undefined ? undefined : (yield* before(s, ['">']))?.text.trim();
      if (name === undefined || !tools.has(name)) return undefined;
      const body = (yield* before(s, [INVOKE_END]))?.text;
      const args = body === undefined ? undefined : objectText(body, (key) => tools.isString(name, key));
      if (args === undefined) return undefined;
      calls.push({ name, arguments: args });
    }
  },
  preserved: [N, "<mm:think>", "</mm:think>"],
};

/** Elements of a text: `[tag, content]`; undefined where it is not made of elements. */
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

function objectText(body: string, isString: (key: string) => boolean | undefined): string | undefined {
  const members = elements(body);
  return members && `{${members.map(([k, v]) => `${JSON.stringify(k)}: ${valueText(v, isString(k))}`).join(", ")}}`;
}

function valueText(text: string, isString: boolean | undefined): string {
  const inner = isString ? undefined : text.includes(N) ? elements(text) : undefined;
  if (inner?.every(([tag]) => tag === "item")) return `[${inner.map(([, v]) => valueText(v, undefined)).join(", ")}]`;
  if (inner) return `{${inner.map(([k, v]) => `${JSON.stringify(k)}: ${valueText(v, undefined)}`).join(", ")}}`;
  if (isString === true) return JSON.stringify(text);
  const json = fromPython(text.trim());
  return tryJson(json) === undefined ? JSON.stringify(text) : json;
}
