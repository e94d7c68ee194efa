/**
 * Kimi K3: elements of `<|open|>tag key="value"<|sep|>` and `<|close|>tag<|sep|>`; an answer is think, response and
 * tools, and the prompt may have opened any of them.
 * @module
 */
import { classOf, optional, repeat, seq, text } from "../../sampling/grammar/expr.ts";
import { Members } from "./arguments.ts";
import type { ToolSet } from "./call.ts";
import type { AnswerSetup, Family, Sink } from "./family.ts";
import { type CallForm, elements } from "./form.ts";
import { before, closing, literal, part, type Reading, type Source, space, until } from "./stream.ts";
import type { CallWriter } from "./writer.ts";

const OPEN = "<|open|>", CLOSE = "<|close|>", SEP = "<|sep|>";
const open = (tag: string) => `${OPEN}${tag}${SEP}`, close = (tag: string) => `${CLOSE}${tag}${SEP}`;

const form: CallForm = {
  begin: seq(optional(seq(optional(text(open("response"))), text(close("response")))), text(open("tools"))),
  end: text(close("tools")),
  between: text(""),
  call: (tool) =>
    seq(
      text(`${OPEN}call tool="${tool.name}" index="`),
      repeat(classOf([[0x30, 0x39]]), 1, 4),
      text(`"${SEP}`),
      elements(
        tool,
        // Any type but string says that the value is JSON.
        (m) =>
          `${OPEN}argument key="${m.key.replaceAll("&", "&amp;")}" type="${m.isString ? "string" : "object"}"${SEP}`,
        close("argument"),
        close("argument"),
      ),
      text(close("call")),
    ),
};

export const kimiK3: Family = {
  name: "kimi-k3",
  reasoning: { start: open("think"), end: close("think") },
  starts: [],
  triggers: [open("tools")],
  whole: answer,
  form: () => form,
  preserved: [OPEN, CLOSE, SEP, "<|end_of_msg|>"],
};

/** Reads a whole answer. */
function* answer(s: Source, sink: Sink, setup: AnswerSetup): Reading<void> {
  const ends = [close("response"), close("message"), "<|end_of_msg|>"];
  const tools = setup.tools ? [open("tools")] : [];
  let thinking = setup.startsInReasoning;
  if ((yield* literal(s, [open("think")])) !== undefined) {
    if (setup.keepReasoning) sink.content(open("think"));
    thinking = true;
  }
  if (thinking) {
    s.place = "reasoning";
    const show = (text: string) => setup.keepReasoning ? sink.content(text) : sink.reasoning(text);
    const marker = yield* until(s, [close("think"), open("response")], show, !setup.keepReasoning);
    if (marker === undefined) return;
    if (setup.keepReasoning && marker === close("think")) sink.content(marker);
  }
  s.beginAnswer();
  while (true) {
    yield* closing(s, [open("response")]);
    s.beginShown();
    const marker = yield* until(s, [...tools, ...ends], (text) => sink.content(text), tools.length > 0);
    if (marker === undefined) return;
    if (marker !== open("tools")) continue;
    s.place = "head";
    if (!(yield* toolCalls(s, setup.tools!, setup.writer))) sink.content(s.since(s.mark), true);
    s.forget();
  }
}

function* toolCalls(s: Source, tools: ToolSet, w: CallWriter): Reading<boolean> {
  for (let n = 0;; n++) {
    if ((yield* part(s, [`${OPEN}call `, close("tools")], n > 0)) !== `${OPEN}call `) return n > 0;
    const name = attribute((yield* before(s, [SEP]))?.text, "tool");
    if (name === undefined || !tools.has(name)) return false;
    if (!(yield* members(s, new Members(w, name, tools)))) {
      if (!(yield* w.broken([close("call")], [`${OPEN}argument `, close("call")]))) return false;
      if ((yield* literal(s, [close("call")])) !== undefined) s.mark = s.pos;
    }
  }
}

/** Reads a call's arguments and its end; false when the text is something else. */
function* members(s: Source, list: Members): Reading<boolean> {
  while (true) {
    yield* space(s);
    const part = yield* literal(s, [`${OPEN}argument `, close("call")]);
    if (part === close("call")) {
      list.end();
      return true;
    }
    const head = part === undefined ? undefined : (yield* before(s, [SEP]))?.text;
    const key = attribute(head, "key"), type = attribute(head, "type");
    if (key === undefined) return false;
    const literally = type === undefined ? list.tools.type(list.name, key).isAny || undefined : type === "string";
    if (!(yield* list.value(s, key, close("argument"), { literally }))) return false;
  }
}

function attribute(head: string | undefined, key: string): string | undefined {
  const m = head === undefined ? null : new RegExp(`(?:^|\\s)${key}="([^"]*)"`).exec(head);
  return m?.[1].replaceAll("&quot;", '"').replaceAll("&amp;", "&");
}
