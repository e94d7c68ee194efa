/**
 * `bloomery embed`: vectors of texts, or a reranker's scores of texts for a question.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { Pooling } from "../serve/embedder.ts";
import { type Command, EXIT, type Flags } from "./command.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import type { Io } from "./io.ts";
import { LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { modelPath, openSource } from "./model_file.ts";
import { openModelFromFlags } from "./open.ts";
import { EMBEDDING_FLAGS } from "./server_flags.ts";
import { readText } from "./text_file.ts";

/** Texts that go through the model together. */
const TOGETHER = 8;

/** The texts: of `--prompt`, the lines of a file, or those of standard input. */
async function textsOf(flags: Flags): Promise<string[]> {
  const file = flags.str("file"), given = flags.strs("prompt");
  if (file === undefined && given.length > 0) return given;
  const all = file === undefined ? await new Response(Deno.stdin.readable).text() : readText(file, "file");
  const lines = all.split("\n").map((line) => line.replace(/\r$/, "")).filter((line) => line !== "");
  if (given.length + lines.length > 0) return [...given, ...lines];
  throw new UsageError("usage.prompt", `Cannot embed nothing: ${file ?? "standard input"} has no line with a text`, {
    hint: "give -p TEXT, several times for several, or -f FILE with a text a line",
  });
}

/** The ids of texts, or of a question with each, from the model's headers: they say how long a context has to be. */
async function idsOf(path: string, texts: readonly string[], query: string | undefined, io: Io): Promise<Int32Array[]> {
  const [{ tokenizerFromGguf }, { pairIds }] = await Promise.all([
    import("../core/tokenizer/mod.ts"),
    import("../serve/rerank.ts"),
  ]);
  using source = await openSource(path, io);
  const tokenizer = tokenizerFromGguf(source.metadata);
  const template = source.metadata.str("tokenizer.chat_template.rerank", undefined);
  return texts.map((text) =>
    query === undefined
      ? tokenizer.encode(text, { addSpecial: true, parseSpecial: true })
      : pairIds(tokenizer, query, text, template)
  );
}

const own = (name: string) => EMBEDDING_FLAGS.find((f) => f.name === name)!;

export const embed: Command = {
  name: "embed",
  summary: "Print the vectors of texts, or their scores for a question",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    { name: "prompt", alias: ["p"], type: "strings", value: "TEXT", help: "a text; may be given several times" },
    { name: "file", alias: ["f"], type: "string", value: "FILE", help: "a file with a text a line" },
    {
      name: "query",
      type: "string",
      value: "TEXT",
      help: "a question: print a reranker's score of each text",
    },
    { ...own("pooling"), help: "how the vectors of a text's tokens become one; default: as the file says" },
    {
      ...own("embd-normalize"),
      alias: ["normalize"],
      help: "norm of a vector that becomes 1; -1 none, 0 largest value 32760",
    },
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
  ],
  epilog:
    "A line is a vector, numbers separated by spaces; where nothing is pooled, a line a token, and an empty line behind each\n" +
    "text. With --query a line is a score. With --json it is an object. Without -p and -f the texts are the lines of stdin.\n\n" +
    "Examples:\n  bloomery embed -m bge-small.gguf -p 'a text' -p 'another'\n" +
    "  bloomery embed -m reranker.gguf --query 'What is a panda?' -f texts.txt",

  async run({ flags, io }) {
    const { choosePooling, Embedder, normalized, poolingOf } = await import("../serve/embedder.ts");
    const texts = await textsOf(flags), query = flags.str("query"), path = await modelPath(flags, io);
    const wanted = flags.str("pooling") as Pooling | undefined;
    if (query !== undefined && wanted !== undefined && wanted !== "rank") {
      throw new UsageError("usage.value", `Cannot use --pooling ${wanted} with --query: expected rank`, {
        at: { flag: "--pooling", got: wanted },
      });
    }
    const inputs = await idsOf(path, texts, query, io);
    const longest = Math.max(...inputs.map((ids) => ids.length));
    using opened = await openModelFromFlags(flags, io, {
      path,
      ...(flags.given("ctx-size") ? {} : { n_ctx: longest }),
      contexts: TOGETHER,
      n_seq: TOGETHER,
    });
    const { engine, file } = opened.model;
    const filePooling = poolingOf(file.metadata.int(`${engine.spec.arch}.pooling_type`, undefined));
    const pooling = choosePooling(
      { path, pooling: filePooling, engine },
      query === undefined ? wanted ?? "file" : "rank",
    );
    const embedder = new Embedder(engine, { pooling, n_seq: TOGETHER });
    const norm = pooling === "none" || pooling === "rank" ? -1 : flags.num("embd-normalize")!;
    const bar = io.bar("embed", texts.length, "it");
    for (let at = 0; at < texts.length && !io.signal.aborted; at += TOGETHER) {
      const some = inputs.slice(at, at + TOGETHER), rows = await embedder.embed(some);
      rows.forEach((of, i) => {
        const vectors = of.map((v) => Array.from(normalized(v, norm)));
        const index = at + i, n_tok = some[i].length;
        if (flags.bool("json")) {
          const result = query === undefined ? { embedding: vectors } : { score: vectors[0][0] };
          io.json({ schema: "bloomery.embed.v1", index, n_tok, ...result });
        } else if (query !== undefined) io.out(`${vectors[0][0]}\n`);
        else io.out(vectors.map((v) => `${v.join(" ")}\n`).join("") + (pooling === "none" ? "\n" : ""));
      });
      bar.update(at + rows.length);
    }
    bar.stop();
    return EXIT.done;
  },
};
