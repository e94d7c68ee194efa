/**
 * Functionary 3.2: an answer is a list of messages to recipients, `>>>RECIPIENT⏎TEXT`. The prompt wrote the first `>>>`.
 * `all` is the user, others are tools, with JSON.
 * @module
 */
import { seq, text } from "../../sampling/grammar/expr.ts";
import type { ToolSet } from "./call.ts";
import type { Family } from "./family.ts";
import { jsonArguments } from "./json_call.ts";
import { literal, type Reading, type Source, space, until } from "./stream.ts";

const TO = ">>>", ALL = "all\n";

export const functionary32: Family = {
  name: "functionary-3.2",
  starts: [],
  *whole(s, sink, { tools, writer }) {
    s.beginShown();
    yield* space(s);
    yield* literal(s, [TO]);
    while (true) {
      s.mark = s.pos;
      if ((yield* literal(s, [ALL])) === undefined) {
        const name = tools && (yield* recipient(s, tools));
        const called = name !== undefined && (yield* jsonArguments(s, writer, name, [TO]));
        // Without a recipient it is an ordinary answer.
        if (!called) sink.content(s.since(s.mark), name !== undefined);
        else yield* space(s);
      }
      if ((yield* until(s, [TO], (text) => sink.content(text), false)) === undefined) return;
    }
  },
  form: () => ({
    between: text(TO),
    call: (tool) => seq(text(`${tool.name}\n`), tool.args),
  }),
  preserved: [],
};

/** Reads a tool's name and the newline behind it; undefined, and nothing read, once the text can be none. */
function* recipient(s: Source, tools: ToolSet): Reading<string | undefined> {
  while (true) {
    const end = s.text.indexOf("\n", s.pos);
    const name = s.text.slice(s.pos, end < 0 ? undefined : end).trim();
    if (end >= 0 && tools.has(name)) {
      s.pos = end + 1;
      return name;
    }
    if (end >= 0 || s.ended || !tools.begins(name)) return undefined;
    yield;
  }
}
