/**
 * `bloomery tokenize`: the token ids of a text, and the text of token ids.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { EncodeOptions, Tokenizer } from "../core/tokenizer/mod.ts";
import { type Command, EXIT, type Invocation } from "./command.ts";
import { COMMON, MODEL_SOURCE_FLAGS } from "./flags.ts";
import type { Io } from "./io.ts";
import { answerLines } from "./lines.ts";
import { modelPath, openSource } from "./model_file.ts";

export const tokenize: Command = {
  name: "tokenize",
  summary: "Show how a model cuts a text into tokens",
  arguments: [{ name: "text", help: "the text; standard input without it", optional: true }],
  flags: [
    ...MODEL_SOURCE_FLAGS,
    { name: "no-bos", type: "bool", help: "add no bos or eos where the model would" },
    { name: "parse-special", type: "bool", help: "take the text of control tokens for the tokens themselves" },
    { name: "ids", type: "bool", help: "print the ids alone, in one line" },
    { name: "jsonl", type: "bool", help: "one object a line on stdin, one answer a line on stdout" },
    COMMON.config,
    COMMON.json,
    COMMON.quiet,
  ],
  epilog: "With --jsonl a line is one of\n" +
    '  {"text": "...", "add_special"?: true, "parse_special"?: false}   ->  {"ids": [...], "detok": "hex bytes"}\n' +
    '  {"ids": [...]}                                                   ->  {"text": "..."}\n' +
    'and a line that cannot be answered gives {"error"}. What a line leaves out is as the flags say.\n\n' +
    "Examples:\n  bloomery tokenize -m model.gguf 'Hello, world'\n" +
    "  bloomery tokenize -m model.gguf --ids --no-bos < text.txt",

  async run({ args, flags, io }: Invocation) {
    if (flags.bool("jsonl") && args.length > 0) {
      throw new UsageError("usage.arguments", "Cannot tokenize an argument with --jsonl: it answers standard input", {
        hint: "leave the text out, or --jsonl",
      });
    }
    const tokenizer = await openTokenizer(await modelPath(flags, io), io);
    for (const warning of tokenizer.warnings) io.warn(warning);
    const options = { addSpecial: !flags.bool("no-bos"), parseSpecial: flags.bool("parse-special") };
    if (flags.bool("jsonl")) return await answerLines(io, (line) => answerLine(tokenizer, options, line));
    const text = args[0] ?? await new Response(Deno.stdin.readable).text();
    const ids = [...tokenizer.encode(text, options)];
    if (flags.bool("json")) {
      const pieces = ids.map((id) => tokenizer.decode([id], { special: true }));
      io.json({ schema: "bloomery.tokenize.v1", n_tok: ids.length, ids, pieces });
    } else if (flags.bool("ids")) io.out(`[${ids.join(", ")}]\n`);
    else io.out(ids.map((id) => `${String(id).padStart(8)}  ${shown(tokenizer.pieceBytes(id, true))}\n`).join(""));
    return EXIT.done;
  },
};

/** The vocabulary of a model, from its header alone. */
export async function openTokenizer(path: string, io: Io): Promise<Tokenizer> {
  const { tokenizerFromGguf } = await import("../core/tokenizer/mod.ts");
  using file = await openSource(path, io);
  return tokenizerFromGguf(file.metadata);
}

function answerLine(tokenizer: Tokenizer, defaults: Required<EncodeOptions>, line: string): unknown {
  let given: { text?: unknown; ids?: unknown; add_special?: unknown; parse_special?: unknown } | null;
  try {
    given = JSON.parse(line);
  } catch (cause) {
    throw new UsageError("usage.tokenize_line", `Cannot read the line: ${(cause as Error).message}`, { cause });
  }
  if (typeof given?.text === "string") {
    const ids = tokenizer.encode(given.text, {
      addSpecial: typeof given.add_special === "boolean" ? given.add_special : defaults.addSpecial,
      parseSpecial: typeof given.parse_special === "boolean" ? given.parse_special : defaults.parseSpecial,
    });
    return { ids: [...ids], detok: hex(tokenizer.decodeBytes(ids, { special: true })) };
  }
  if (Array.isArray(given?.ids)) return { text: tokenizer.decode(given.ids, { special: true }) };
  throw new UsageError("usage.tokenize_line", "Cannot answer the line: it has neither a text nor a list of ids", {
    hint: 'give {"text": "..."} or {"ids": [1, 2]}',
  });
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A piece in quotes; bytes that are no text, as part of a character is none, in hex. */
function shown(bytes: Uint8Array): string {
  try {
    return JSON.stringify(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return `<${hex(bytes)}>`;
  }
}
