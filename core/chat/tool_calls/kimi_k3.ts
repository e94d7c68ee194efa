/**
 * Kimi K3: elements of `<|open|>tag key="value"<|sep|>` and `<|close|>tag<|sep|>`; an answer is think, response and
 * tools, each of which the prompt may have opened.
 * @module
 */
import type { AnswerSetup, Sink } from "../reasoning.ts";
import { ArgumentList, type Call, type ToolSet } from "./call.ts";
import { before, literal, type Reading, type Source, space, until } from "./stream.ts";

const OPEN = "<|open|>", CLOSE = "<|close|>", SEP = "<|sep|>";
const open = (tag: string) => `${OPEN}${tag}${SEP}`, close = (tag: string) => `${CLOSE}${tag}${SEP}`;

export const kimiK3Preserved = [OPEN, CLOSE, SEP, "<|end_of_msg|>"];

/** Reads a whole answer. */
export function* kimiK3(s: Source, sink: Sink, setup: AnswerSetup): Reading<void> {
  const ends = [close("response"), close("message"), "<|end_of_msg|>"];
  const tools = setup.tools ? [open("tools")] : [];
  let thinking = setup.startsInReasoning;
  if ((yield* literal(s, [open("think")])) !== undefined) {
    if (setup.keepReasoning) sink.content(open("think"));
    thinking = true;
  }
  if (thinking) {
    const show = (text: string) => setup.keepReasoning ? sink.content(text) : sink.reasoning(text);
    const marker = yield* until(s, [close("think"), open("response")], show, !setup.keepReasoning);
    if (marker === undefined) return;
    if (setup.keepReasoning && marker === close("think")) sink.content(marker);
  }
  while (true) {
    yield* literal(s, [open("response")]);
    const marker = yield* until(s, [...tools, ...ends], (text) => sink.content(text), tools.length > 0);
    if (marker === undefined) return;
    if (marker !== open("tools")) continue;
    const mark = s.mark;
    const calls = yield* toolCalls(s, setup.tools!);
    if (calls) { for (const call of setup.parallel ? calls : calls.slice(0, 1)) sink.call(call); }
    else sink.content(s.since(mark), true);
    s.forget();
  }
}

function* toolCalls(s: Source, tools: ToolSet): Reading<Call[] | undefined> {
  const calls: Call[] = [];
  while (true) {
    yield* space(s);
    const next = yield* literal(s, [`${OPEN}call `, close("tools")]);
    if (next === close("tools")) return calls.length > 0 ? calls : undefined;
    const name = next === undefined ? undefined : attribute((yield* before(s, [SEP]))?.text, "tool");
    if (name === undefined || !tools.has(name)) return undefined;
    const list = new ArgumentList(name, tools);
    while (true) {
      yield* space(s);
      const part = yield* literal(s, [`${OPEN}argument `, close("call")]);
      if (part === undefined) return undefined;
      if (part === close("call")) break;
      const head = (yield* before(s, [SEP]))?.text;
      const key = attribute(head, "key"), type = attribute(head, "type");
      const value = (yield* before(s, [close("argument")]))?.text;
      if (key === undefined || value === undefined) return undefined;
      list.add(key, value, type === undefined ? tools.isString(name, key) ?? true : type === "string");
    }
    calls.push({ name, arguments: list.text() });
  }
}

function attribute(head: string | undefined, key: string): string | undefined {
  const m = head === undefined ? null : new RegExp(`(?:^|\\s)${key}="([^"]*)"`).exec(head);
  return m?.[1].replaceAll("&quot;", '"').replaceAll("&amp;", "&");
}
