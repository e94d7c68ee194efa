/**
 * What a grammar costs: the vocabulary's trie once, compiling a schema, the mask of its first token, and a step (mask
 * applied to logits, token accepted) along an answer: for a fresh grammar, and for one that was used before.
 *
 *   deno run -A scripts/bench_grammar.ts [--vocab DIR] [--names qwen3,gptoss] [--rounds 5]
 *
 * A vocabulary is NAME.gguf of DIR, by default of the folder `shared` beside the repository. Times are ms of processor
 * time, collector and compiler threads included, so that a busy machine does not decide.
 * Each round compiles the schema anew; the compiler is warmed up with other schemas first, as a server is after its
 * first request. Of the rounds, `fresh` columns give the median over all steps, the 99th percentile and the largest of
 * the rounds' median; `again` the same for a second answer of the same grammar.
 * @module
 */
import process from "node:process";
import { parseArgs } from "node:util";
import { openGguf } from "../core/gguf/read.ts";
import {
  compileGbnf,
  compileJsonSchema,
  type Grammar,
  GrammarMatcher,
  VocabTrie,
} from "../core/sampling/grammar/mod.ts";
import { type Tokenizer, tokenizerFromGguf } from "../core/tokenizer/mod.ts";

const { values: options } = parseArgs({
  args: Deno.args,
  options: {
    vocab: { type: "string", default: new URL("../../shared/vocab", import.meta.url).pathname },
    names: { type: "string", default: "qwen3,gptoss" },
    rounds: { type: "string", default: "5" },
  },
});

interface Case {
  name: string;
  compile: () => Grammar;
  answer: string;
}

const order = {
  id: 48213,
  customer: { name: "Zoë Müller", email: "zoe.mueller@example.org", city: "Zürich" },
  items: [
    { title: "Mechanical keyboard, brown switches", price: 129.9, count: 1, tags: ["hardware", "desk"] },
    { title: 'USB-C cable "2 m"', price: 9.5, count: 3, tags: [] },
  ],
  paid: true,
  note: "Please leave the parcel with the neighbours on the second floor; 감사합니다.",
};
const text = { type: "string" };
const orderSchema = {
  type: "object",
  properties: {
    id: { type: "integer" },
    customer: {
      type: "object",
      properties: { name: text, email: text, city: text },
      required: ["name", "email"],
    },
    items: {
      type: "array",
      items: {
        type: "object",
        properties: {
          title: text,
          price: { type: "number" },
          count: { type: "integer", minimum: 1, maximum: 99 },
          tags: { type: "array", items: text },
        },
        required: ["title", "price", "count"],
      },
    },
    paid: { type: "boolean" },
    note: text,
  },
  required: ["id", "customer", "items", "paid"],
};
const json = (value: unknown) => JSON.stringify(value);
const bounded = { title: "A short title", body: "The quick brown fox jumps over the lazy dog. ".repeat(8).trim() };

const cases: Case[] = [
  { name: "order, typical object", compile: () => compileJsonSchema(orderSchema), answer: json(order) },
  { name: "any JSON object", compile: () => compileJsonSchema({ type: "object" }), answer: json(order) },
  {
    name: "maxLength 80 and 2000",
    compile: () =>
      compileJsonSchema({
        type: "object",
        properties: { title: { ...text, maxLength: 80 }, body: { ...text, maxLength: 2000 } },
        required: ["title", "body"],
      }),
    answer: json(bounded),
  },
  {
    name: "patterns, formats, enums",
    compile: () =>
      compileJsonSchema({
        type: "object",
        properties: {
          sku: { ...text, pattern: "^[A-Z]{3}-[0-9]{4,8}$" },
          when: { ...text, format: "date-time" },
          state: { enum: ["open", "in progress", "closed"] },
          word: { ...text, pattern: "^[a-z]+( [a-z]+)*$" },
        },
        required: ["sku", "when", "state", "word"],
      }),
    answer: json({
      sku: "ABC-123456",
      when: "2026-01-15T12:30:00Z",
      state: "in progress",
      word: "some plain words here",
    }),
  },
  {
    name: "additionalProperties",
    compile: () =>
      compileJsonSchema({
        type: "object",
        properties: { name: text },
        required: ["name"],
        additionalProperties: { type: "number" },
      }),
    answer: json({ name: "Zoë", height: 1.74, weight: 61, "name of cat": 3 }),
  },
  {
    name: "GBNF, lines of text",
    compile: () => compileGbnf('root ::= ("- " [^\\n]+ "\\n")+'),
    answer: "- a first line of a list\n- another one, somewhat longer than the first\n",
  },
];

const ms = (run: () => void): number => {
  const before = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
};

const at = (values: number[], quantile: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * quantile))];

/** One answer: the time of each step. */
function steps(grammar: Grammar, vocab: VocabTrie, tokenizer: Tokenizer, ids: Int32Array): number[] {
  const matcher = new GrammarMatcher(grammar, vocab);
  const logits = new Float32Array(tokenizer.n_vocab);
  return Array.from(ids, (id) => {
    logits.fill(1);
    return ms(() => {
      matcher.apply(logits, tokenizer.eogIds);
      if (logits[id] !== 1 || !matcher.accept(tokenizer.pieceBytes(id))) throw new Error(`token ${id} is not allowed`);
    });
  });
}

function measure(c: Case, vocab: VocabTrie, tokenizer: Tokenizer, rounds: number): string[] {
  const ids = tokenizer.encode(c.answer);
  const compile: number[] = [], first: number[] = [], again: number[][] = [], fresh: number[][] = [];
  for (let r = 0; r < rounds; r++) {
    let grammar: Grammar;
    compile.push(ms(() => grammar = c.compile()));
    const [begin, ...rest] = steps(grammar!, vocab, tokenizer, ids);
    first.push(begin);
    fresh.push(rest);
    again.push(steps(grammar!, vocab, tokenizer, ids));
  }
  const row = (all: number[][]) => [
    at(all.flat(), 0.5),
    at(all.flat(), 0.99),
    at(all.map((times) => Math.max(...times)), 0.5),
  ];
  return [
    ...[at(compile, 0.5), at(first, 0.5), ...row(fresh), ...row(again)].map((v) => v.toFixed(2)),
    String(ids.length),
  ];
}

const rounds = Number(options.rounds);
for (const name of options.names.split(",")) {
  const path = `${options.vocab}/${name}.gguf`;
  try {
    Deno.statSync(path);
  } catch {
    console.error(`${path}: not there, left out`);
    continue;
  }
  using file = openGguf(path);
  const tokenizer = tokenizerFromGguf(file.metadata);
  const build: number[] = [];
  let vocab: VocabTrie;
  for (let r = 0; r < rounds; r++) {
    build.push(ms(() => vocab = new VocabTrie(tokenizer.n_vocab, (id) => tokenizer.pieceBytes(id, false))));
  }
  console.log(
    `${name}: ${tokenizer.n_vocab} tokens; trie ${build[0].toFixed(0)} ms first, ${
      at(build, 0.5).toFixed(0)
    } ms after\n`,
  );
  // Warm-up on what shares no grammar with the cases.
  for (let r = 0; r < 4; r++) for (const c of cases) measure(c, vocab!, tokenizer, 2);
  console.log("| answer | compile | first mask | fresh median | p99 | max | again median | p99 | max | steps |");
  console.log("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
  for (const c of cases) console.log(`| ${[c.name, ...measure(c, vocab!, tokenizer, rounds)].join(" | ")} |`);
  console.log();
}
