/**
 * gpt-oss (harmony): an answer is a series of messages, each with a header (recipient, channel, type) and a body.
 * `analysis` is reasoning; `commentary` to `functions.NAME` is a call; `commentary` to nobody and `final` are content.
 * @module
 */
import { alt, optional, repeat, seq, text, without } from "../../sampling/grammar/expr.ts";
import type { AnswerSetup, Family, Sink } from "./family.ts";
import type { CallForm } from "./form.ts";
import { jsonArguments } from "./json_call.ts";
import { before, literal, type Reading, type Source, space, until } from "./stream.ts";

const MESSAGE = "<|message|>", CHANNEL = "<|channel|>", START = "<|start|>";
const ENDS = ["<|end|>", "<|call|>", "<|return|>"];

/** A call behind any number of thoughts; its header as the model writes it. */
const form: CallForm = {
  begin: repeat(
    seq(text(`${CHANNEL}analysis${MESSAGE}`), without("<|"), text(`<|end|>${START}assistant`)),
    0,
    Infinity,
  ),
  call: (tool) =>
    seq(
      alt([
        text(`${CHANNEL}commentary to=functions.${tool.name} <|constrain|>json${MESSAGE}`),
        text(` to=functions.${tool.name}${CHANNEL}commentary json${MESSAGE}`),
      ]),
      tool.args,
      optional(text("<|call|>")),
    ),
};

export const harmony: Family = {
  name: "harmony",
  starts: [],
  whole: answer,
  form: () => form,
  preserved: [CHANNEL, "<|constrain|>", MESSAGE, START, "<|end|>"],
};

/** Reads a whole answer, whose prompt ended in `<|start|>assistant`. */
function* answer(s: Source, sink: Sink, setup: AnswerSetup): Reading<void> {
  while (true) {
    const from = s.pos;
    yield* space(s);
    if (s.pos >= s.text.length) return sink.content(s.since(from));
    const opener = yield* literal(s, [CHANNEL, START, "to="]);
    s.pos = from;
    if (opener === undefined) {
      s.beginShown();
      // No header at all: a model that forgot the format still has something to say.
      const marker = yield* until(s, [CHANNEL, START, ...ENDS], (text) => sink.content(text), false);
      if (marker === undefined) return;
      if (marker === CHANNEL || marker === START) s.pos -= marker.length;
      continue;
    }
    const header = (yield* before(s, [MESSAGE]))?.text;
    if (header === undefined) return sink.content(s.since(from), true);
    const channel = /<\|channel\|>\s*(\w+)/.exec(header)?.[1];
    const recipient = /\bto=([^\s<]+)/.exec(header)?.[1];
    const tool = recipient?.startsWith("functions.") ? recipient.slice("functions.".length) : undefined;
    if (channel === "analysis" && tool === undefined) s.place = "reasoning";
    else s.beginShown();
    if (tool !== undefined || (recipient !== undefined && recipient !== "assistant" && recipient !== "user")) {
      const called = tool !== undefined && setup.tools?.has(tool) === true &&
        (yield* jsonArguments(s, setup.writer, tool, ENDS));
      // What stands between the arguments and the message's end is no part of them.
      if (called) s.forget();
      const rest = s.pos;
      const end = yield* before(s, ENDS);
      const odd = end?.text ?? s.since(rest);
      if (!called) sink.content(s.since(from), true);
      else if (odd.trim() !== "") sink.content(odd, true);
    } else if (channel === "analysis" && setup.keepReasoning) {
      sink.content(header + MESSAGE);
      const marker = yield* until(s, ENDS, (text) => sink.content(text), false);
      if (marker !== undefined) sink.content(marker);
    } else if (channel === "analysis") {
      yield* until(s, ENDS, (text) => sink.reasoning(text), false);
    } else {
      yield* until(s, ENDS, (text) => sink.content(text), false);
    }
    if (!s.ended) s.place = "start"; // the next message says what it is
    s.forget();
  }
}
