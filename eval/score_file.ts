/**
 * Reads score files. They come from outside like any other file, so every field is checked, and what is wrong is named by file,
 * line and field.
 * @module
 */
import { type Fields, type FieldsOf, parseLines } from "./fields.ts";
import { SCORE_SCHEMA, type ScoreFile, type ScoreHeader, type ScoreLine } from "./score.ts";
import { scoredPositions } from "./windows.ts";

const KIND: FieldsOf = { code: "eval.score_file", hint: "give a file that bloomery score wrote" };

/** Probabilities are written with six decimals of their logarithms; so much may their sum be above 1. */
const SUM_SLACK = 1e-3;

function readHeader(f: Fields): ScoreHeader {
  const schema = f.str("schema");
  if (schema !== SCORE_SCHEMA) throw f.wrong("schema", schema, JSON.stringify(SCORE_SCHEMA));
  const n_vocab = f.int("n_vocab", 1);
  const n_window = f.int("n_window", 2);
  return {
    schema,
    model: f.str("model"),
    n_vocab,
    n_window,
    skip: f.int("skip", 0, n_window - 2),
    bos: f.bool("bos"),
    top_k: f.int("top_k", 1, n_vocab),
    sources: f.list("sources").map((v, i) => {
      const { name, n_windows } = (v ?? {}) as { name?: unknown; n_windows?: unknown };
      if (typeof name !== "string") throw f.wrong(`sources[${i}].name`, name, "a text");
      if (!Number.isInteger(n_windows) || (n_windows as number) < 0) {
        throw f.wrong(`sources[${i}].n_windows`, n_windows, "a whole number from 0");
      }
      return { name, n_windows: n_windows as number };
    }),
  };
}

/** Candidates of one position, best first; a file that has them in another order is sorted again. */
function readCandidates(f: Fields, i: number, ids: unknown, logprobs: unknown, header: ScoreHeader) {
  const { top_k, n_vocab } = header;
  const id = f.ids(`top_ids[${i}]`, top_k, n_vocab, ids);
  const logprob = f.logprobs(`top_logprob[${i}]`, top_k, logprobs);
  const seen = new Set<number>();
  const repeated = id.find((x) => seen.size === seen.add(x).size);
  if (repeated !== undefined) throw f.wrong(`top_ids[${i}]`, repeated, "each token once");
  const sum = logprob.reduce((s, x) => s + Math.exp(x), 0);
  if (sum > 1 + SUM_SLACK) throw f.wrong(`top_logprob[${i}]`, `probabilities that sum to ${sum}`, "at most 1");
  const order = [...id.keys()].sort((a, b) => logprob[b] - logprob[a]);
  return { ids: order.map((k) => id[k]), logprobs: order.map((k) => logprob[k]) };
}

function readLine(f: Fields, header: ScoreHeader): ScoreLine {
  const { n_window, n_vocab, sources } = header;
  const source = f.str("source");
  const known = sources.find((s) => s.name === source);
  if (!known) throw f.wrong("source", source, "a source of the first line");
  const window = f.int("window", 0, known.n_windows - 1);
  const ids = f.window("ids", n_window, n_vocab);
  // Files of a version that had only windows of one length say it in the header alone.
  const skip = f.int("skip", 0, ids.length - 2, header.skip);
  const n = scoredPositions(ids.length, skip);
  if (n < 1) throw f.wrong("ids", `${ids.length} items`, `more than the ${skip + 1} that are not scored`);
  const logprob = f.logprobs("logprob", n);
  const topIds = f.list("top_ids", n), topLogprobs = f.list("top_logprob", n);
  const candidates = topIds.map((row, i) => readCandidates(f, i, row, topLogprobs[i], header));
  return {
    source,
    window,
    ids,
    skip,
    logprob,
    top_ids: candidates.map((c) => c.ids),
    top_logprob: candidates.map((c) => c.logprobs),
  };
}

/**
 * Parses a score file; an incomplete last line, as a killed run leaves it, is dropped.
 * @throws {EvalError} `eval.score_file` naming line and field
 */
export function parseScoreFile(text: string, name: string): ScoreFile {
  const [first, ...rest] = parseLines(text, name, SCORE_SCHEMA, KIND);
  const header = readHeader(first);
  const seen = new Map<string, number>();
  const lines = rest.map((f) => {
    const line = readLine(f, header);
    const key = JSON.stringify([line.source, line.window]);
    const before = seen.get(key);
    if (before !== undefined) throw f.wrong("window", line.window, `each window once; line ${before} has it too`);
    seen.set(key, f.line);
    return line;
  });
  return { header, lines };
}
