import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { createOutputParser, type OutputParserOptions, type Place } from "./reasoning.ts";
import { AnswerTracker } from "./tracker.ts";
import { Utf8Stream } from "./utf8_stream.ts";

const encoder = new TextEncoder();
const tools = [{ function: { name: "read", parameters: { properties: { p: { type: "string" } } } } }];
const CALL = "<tool_call>\n<function=read>\n<parameter=p>\n/tmp/ä\n</parameter>\n</function>\n</tool_call>";
const QWEN = "<tool_call> <function= <parameter=";

function tracker(options: Partial<OutputParserOptions> = {}, splitsReasoning = true): AnswerTracker {
  const parser = createOutputParser({
    template: QWEN,
    reasoningFormat: splitsReasoning ? "auto" : "none",
    startsInReasoning: false,
    tools,
    ...options,
  });
  return new AnswerTracker({ parser, splitsReasoning });
}

/** The places that an answer goes through, each with the text behind which it began. */
function places(text: string, options?: Partial<OutputParserOptions>): [Place, string][] {
  const t = tracker(options), seen: [Place, string][] = [[t.place, ""]];
  let said = "";
  for (const c of text) {
    said += t.push(encoder.encode(c));
    if (t.place !== seen.at(-1)![0]) seen.push([t.place, said.slice(-6)]);
  }
  t.finish();
  if (t.place !== seen.at(-1)![0]) seen.push([t.place, "end"]);
  return seen;
}

Deno.test("AnswerTracker follows reasoning, answer and call", () => {
  assert.deepEqual(places(`<think>\nHm.</think>\n\nSee.\n${CALL}\nDone`), [
    ["start", ""],
    ["reasoning", "think>"],
    ["answer", "think>"],
    ["head", "_call>"],
    ["call", "meter="],
    ["answer", "ction>"],
  ]);
  assert.deepEqual(places(`Hm. <tool_call>? ${CALL}</think>Hi`, { startsInReasoning: true }), [
    ["reasoning", ""],
    ["call", "meter="],
    ["answer", "ction>"],
  ]);
  assert.deepEqual(places(`Hm. ${CALL.slice(0, 50)}`, { startsInReasoning: true }), [
    ["reasoning", ""],
    ["call", "meter="],
    ["reasoning", "end"],
  ]);
  assert.deepEqual(places("<thank you", {}), [["start", ""], ["answer", "<tha"]]);
  assert.deepEqual(places("<tool_call>?", {}), [["start", ""], ["answer", "<to"], ["head", "_call>"], [
    "answer",
    "call>?",
  ]]);
  assert.deepEqual(places("Hi", { template: "functools[" }), [["answer", ""]]);
  const harmony = { template: "<|channel|> <|message|>" };
  assert.deepEqual(
    places("<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Ok", harmony),
    [["start", ""], ["reasoning", "sage|>"], ["start", "|end|>"], ["answer", "sage|>"]],
  );
  const k3 = { template: "<|open|> <|close|> <|end_of_msg|>" };
  const close = (tag: string) => `<|close|>${tag}<|sep|>`, open = (tag: string) => `<|open|>${tag}<|sep|>`;
  assert.deepEqual(
    places(
      `${open("think")}Hm${close("think")}${open("response")}Ok${close("response")}${open("tools")}` +
        `<|open|>call tool="read" index="1"<|sep|>${close("call")}${close("tools")}`,
      k3,
    ).map(([place]) => place),
    ["start", "reasoning", "answer", "head", "call", "answer"],
  );
});

Deno.test("AnswerTracker says where the answer begins, and where it shows", () => {
  const t = tracker({ startsInReasoning: true });
  t.push(encoder.encode("Hm.</thi"));
  assert.deepEqual([t.answerFrom, t.shownFrom], [undefined, undefined]);
  t.push(encoder.encode("nk>\n"));
  assert.deepEqual([t.answerFrom, t.shownFrom, t.textSince(t.answerFrom!)], [11, undefined, "\n"]);
  t.push(encoder.encode("\n Hi"));
  assert.deepEqual([t.answerFrom, t.shownFrom], [11, 14]);
  const kept = tracker({ startsInReasoning: true }, false);
  assert.equal(kept.shownFrom, 0);
  kept.push(encoder.encode("Hm.</think>"));
  assert.deepEqual([kept.place, kept.answerFrom, kept.shownFrom], ["answer", 11, 0]);
  const call = tracker({ startsInReasoning: true });
  call.push(encoder.encode(`Hm. ${CALL} x`));
  assert.deepEqual([call.answerFrom, call.shownFrom], [4, 4]);
});

Deno.test("AnswerTracker keeps the text of a call from its marker on until the call is certain, bytes of half a character too", () => {
  for (const lead of ["Hm. ", "a </think>b ", "<tool_call>? "]) {
    const t = tracker({ startsInReasoning: true });
    const bytes = encoder.encode(lead + CALL);
    const begun = lead.length + CALL.indexOf("<parameter=") + "<parameter=".length;
    for (let i = 0; i < begun; i++) t.push(bytes.slice(i, i + 1));
    assert.deepEqual([t.place, t.callFrom], ["call", lead.length], lead);
    assert.equal(t.textSince(t.callFrom!), CALL.slice(0, begun - lead.length));
  }
  const t = tracker();
  const text = encoder.encode(CALL), half = CALL.indexOf("ä") + 1;
  t.push(text.slice(0, half));
  assert.deepEqual(t.bytesSince(0), text.slice(0, half));
  assert.ok(t.splitsCharacter && !tracker().splitsCharacter);
  assert.equal(t.finish(), "", "half a character of an argument is left out");
  const content = tracker();
  content.push(encoder.encode("ä").slice(0, 1));
  assert.equal(content.finish(), "\ufffd");
});

Deno.test("AnswerTracker is where the same text in one piece is, whatever the tokens", () => {
  const scrap = fc.constantFrom(
    ...`<think>|</think>|${CALL}|<tool_call>|<function=read>|\n|ä😀|x `.split("|"),
    "\ud800",
  );
  fc.assert(
    fc.property(
      fc.array(scrap, { maxLength: 8 }),
      fc.boolean(),
      fc.boolean(),
      (scraps, startsInReasoning, streaming) => {
        const bytes = encoder.encode(scraps.join(""));
        const one = tracker({ startsInReasoning, streaming }), whole = one.push(bytes);
        const t = tracker({ startsInReasoning, streaming });
        let text = "";
        for (const b of bytes) {
          text += t.push(Uint8Array.of(b));
          if (t.callFrom !== undefined && t.place === "head") {
            assert.equal(
              t.textSince(t.callFrom),
              text.slice(t.callFrom),
            );
          }
        }
        assert.equal(text, whole);
        assert.deepEqual(
          [t.place, t.answerFrom, t.shownFrom, t.callFrom, t.readTo],
          [one.place, one.answerFrom, one.shownFrom, one.callFrom, one.readTo],
        );
      },
    ),
    { numRuns: 500 },
  );
});

/** Templates by the least of their text, with what their answers are made of. */
const families: [template: string, scraps: string][] = [
  ["<tool_call>", '<think>¦</think>¦<tool_call>¦{"name": "read", "arguments": {"p": "ä"}}¦</tool_call>¦\n'],
  [
    "<tool_call> <arg_key>",
    "<think>¦</think>¦<tool_call>read¦<arg_key>p</arg_key>¦<arg_value>x</arg_value>¦</tool_call>",
  ],
  ["[TOOL_CALLS] [ARGS]", '[THINK]¦[/THINK]¦[TOOL_CALLS]¦read[ARGS]¦{"p": "x"}'],
  [
    "<|tool_calls_section_begin|> <|tool_call_begin|>",
    "<think>¦</think>¦<|tool_calls_section_begin|>¦<|tool_call_begin|>functions.read:0¦<|tool_call_argument_begin|>¦{}¦" +
    "<|tool_call_end|>¦<|tool_calls_section_end|>",
  ],
  [
    "dsml_token ｜DSML｜ tool_calls",
    '</think>¦<｜DSML｜tool_calls>¦<｜DSML｜invoke name="read">¦<｜DSML｜parameter name="p" string="true">x¦' +
    "</｜DSML｜parameter>¦</｜DSML｜invoke>¦</｜DSML｜tool_calls>",
  ],
  [
    "<|channel|> <|message|>",
    "<|channel|>analysis<|message|>¦<|channel|>final<|message|>¦<|end|>¦<|start|>assistant¦ to=functions.read¦{}¦<|call|>",
  ],
  [
    "<|open|> <|close|> <|end_of_msg|>",
    '<|open|>think<|sep|>¦<|close|>think<|sep|>¦<|open|>tools<|sep|>¦<|open|>call tool="read" index="1"<|sep|>¦' +
    '<|open|>argument key="p" type="string"<|sep|>x¦<|close|>argument<|sep|>¦<|close|>call<|sep|>¦<|close|>tools<|sep|>',
  ],
  [">>>all >>>${recipient}", ">>>¦all\n¦read\n¦{}"],
  ['<|start_header_id|> "parameters"', '{"name": "read", ¦"parameters": {}}¦<|python_tag|>¦{"a": 1}'],
];

Deno.test("AnswerTracker is at the same place in every family's answers, whatever the tokens", () => {
  for (const [template, parts] of families) {
    const scrap = fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom(...parts.split("¦")) },
      fc.constantFrom("x", " ", "\n", "<"),
    );
    fc.assert(
      fc.property(
        fc.array(scrap, { maxLength: 9 }),
        fc.boolean(),
        fc.boolean(),
        (scraps, startsInReasoning, streaming) => {
          const bytes = encoder.encode(scraps.join(""));
          const one = tracker({ template, startsInReasoning, streaming }),
            t = tracker({ template, startsInReasoning, streaming });
          one.push(bytes);
          let answerFrom: number | undefined;
          for (const b of bytes) {
            t.push(Uint8Array.of(b));
            assert.ok(answerFrom === undefined || t.answerFrom === answerFrom, "what is certain stays");
            answerFrom = t.answerFrom;
            if (t.place === "answer" || t.place === "head" || t.place === "call") assert.ok(answerFrom !== undefined);
            assert.ok((t.shownFrom ?? Infinity) >= (answerFrom ?? 0));
          }
          const at = (x: AnswerTracker) => [x.place, x.answerFrom, x.shownFrom];
          assert.deepEqual(at(t), at(one), template);
          t.finish();
          one.finish();
          assert.deepEqual(at(t), at(one), template);
        },
      ),
      { numRuns: 150 },
    );
  }
});

Deno.test("Utf8Stream decodes what a decoder of all bytes does, and holds no more than a character", () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 12 }),
    fc.string({ unit: "binary", maxLength: 6 }).map((s) => encoder.encode(s)),
    fc.array(fc.constantFrom(0xe0, 0xf0, 0xf4, 0xf5, 0xc0, 0xc2, 0x80, 0xbf, 0x9f, 0xa0, 0x61, 0xff, 0xef, 0xbb), {
      maxLength: 9,
    })
      .map((b) => Uint8Array.from(b)),
  );
  fc.assert(
    fc.property(bytes, fc.array(fc.nat(12)), (all, cuts) => {
      const at = [0, ...cuts.map((c) => c % (all.length + 1)).toSorted((a, b) => a - b), all.length];
      const stream = new Utf8Stream();
      let text = "";
      for (const [i, end] of at.slice(1).entries()) {
        text += stream.push(all.slice(at[i], end));
        assert.ok(stream.pending.length <= 3);
      }
      assert.equal(text + stream.end(), new TextDecoder("utf-8", { ignoreBOM: true }).decode(all));
    }),
    { numRuns: 2000 },
  );
  const stream = new Utf8Stream();
  assert.equal(stream.push(encoder.encode("aé").slice(0, 2)), "a");
  assert.deepEqual([...stream.pending], [0xc3]);
  assert.equal(stream.push(Uint8Array.of(0xa9)), "é");
  assert.equal(stream.pending.length, 0);
});
