/**
 * Functionary 3.2: an answer is messages to recipients, `>>>RECIPIENT⏎TEXT`, the first `>>>` of which the prompt wrote.
 * `all` is the user, others are tools, with JSON.
 * @module
 */
import { seq, text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./call.ts";
import { jsonArguments } from "./json_call.ts";
import { before, literal, space, until } from "./stream.ts";

const TO = ">>>", ALL = "all\n";

export const functionary32: Family = {
  name: "functionary-3.2",
  starts: [],
  *whole(s, sink, { tools, writer }) {
    yield* space(s);
    yield* literal(s, [TO]);
    while (true) {
      s.mark = s.pos;
      if ((yield* literal(s, [ALL])) === undefined) {
        const name = (yield* before(s, ["\n"]))?.text.trim();
        const called = name !== undefined && tools?.has(name) === true && (yield* jsonArguments(s, writer, name, [TO]));
        // Without a recipient it is an ordinary answer.
        if (!called) sink.content(s.since(s.mark), name !== undefined && tools?.has(name) === true);
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
