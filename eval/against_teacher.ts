/**
 * A teacher's answers in a model's tokens: the model is led over the teacher's tokens (teacher forcing), so that both are asked
 * the same at every position.
 *
 * A token of the teacher is found by its bytes. That two vocabularies share some pieces does not make them one: where the model's
 * tokenizer cuts the answers differently, the comparison is refused.
 * @module
 */
import { EvalError } from "../core/errors.ts";
import type { PromptModel } from "./prompts.ts";
import { type TeacherToken, tokenBytes } from "./teacher.ts";
import type { TeacherFile, TeacherLine } from "./teacher_file.ts";
import type { ScoreLine } from "./score.ts";

/** Share of the answers' tokens that the model's tokenizer has to agree on; generated text is not always cut as typed text is. */
const LEAST_AGREEMENT = 0.95;

/** Answers in a model's tokens, and what was seen on the way. */
export interface TaughtLines {
  readonly lines: readonly ScoreLine[];
  /** Answers without a token: nothing can be compared in them. */
  readonly n_empty: number;
  /** Candidates of the teacher that the model's vocabulary does not have; they count in the rest. */
  readonly n_unknown: number;
}

const keyOf = (bytes: Uint8Array) => bytes.toHex();

/** Ids by the bytes of their text, control tokens apart: their names are no text that the model writes. */
class TokensByBytes {
  readonly #ids = new Map<string, number>();

  constructor(readonly tokenizer: PromptModel["tokenizer"], n_vocab: number) {
    for (let id = 0; id < n_vocab; id++) {
      if (tokenizer.isControl(id) || tokenizer.isUnused(id)) continue;
      const key = keyOf(tokenizer.pieceBytes(id, true));
      // A byte token that stands beside a token of the same text is what is used where no token is.
      if (key !== "" && (!this.#ids.has(key) || !isByteName(tokenizer.tokenText(id)))) this.#ids.set(key, id);
    }
  }

  find(t: TeacherToken): number | undefined {
    const id = this.#ids.get(keyOf(tokenBytes(t)));
    if (id !== undefined) return id;
    const special = this.tokenizer.tokenId(t.text);
    return special !== null && this.tokenizer.isSpecial(special) ? special : undefined;
  }
}

const isByteName = (text: string) => /^<0x[0-9A-F]{2}>$/.test(text);

function other(what: string, names: [string, string], at: Record<string, unknown>): EvalError {
  return new EvalError("eval.vocabulary", `Cannot compare ${names[0]} with ${names[1]}: ${what}`, {
    at: { model: names[0], teacher: names[1], ...at },
    hint: "compare with a teacher of the same model: token by token nothing can be compared across tokenizers",
  });
}

/** The tokens of a question, as the model sees it. */
function promptIds(line: TeacherLine, model: PromptModel, name: string): Int32Array {
  if (line.prompt !== undefined) {
    return model.tokenizer.encode(line.prompt, { addSpecial: true, parseSpecial: true });
  }
  if (model.format === undefined) {
    throw new EvalError(
      "eval.no_template",
      `Cannot use ${name}: it has conversations, and the model has no chat template`,
      {
        at: { file: name },
        hint: "use a model with tokenizer.chat_template",
      },
    );
  }
  return model.encodeChat(model.format.renderText({
    messages: [...line.messages!],
    addGenerationPrompt: true,
    ...(line.tools ? { tools: [...line.tools] } : {}),
  }));
}

/**
 * A teacher's answers as lines of scores over the model's tokens.
 * @param names Of the model and the teacher's file, for messages.
 * @throws {EvalError} `eval.vocabulary`, `eval.no_template`, `eval.teacher_file`
 */
export function taughtLines(file: TeacherFile, model: PromptModel, names: [string, string]): TaughtLines {
  const { tokenizer } = model;
  const known = new TokensByBytes(tokenizer, tokenizer.n_vocab);
  const counts = new Map<string, number>();
  const lines: ScoreLine[] = [];
  let n_empty = 0, n_unknown = 0, n_tokens = 0, n_same = 0;
  for (const line of file.lines) {
    if (line.positions.length === 0) {
      n_empty++;
      continue;
    }
    const answer = line.positions.map((p, i) => {
      const id = known.find(p);
      if (id !== undefined) return id;
      throw other(`the model has no token ${JSON.stringify(p.text)}`, names, { prompt: line.index, position: i });
    });
    const bytes = Uint8Array.from(line.positions.flatMap((p) => [...tokenBytes(p)]));
    const typed = tokenizer.encode(new TextDecoder().decode(bytes), { parseSpecial: true });
    n_tokens += answer.length;
    for (let i = 0; i < answer.length && answer[i] === typed[i]; i++) n_same++;
    const prompt = promptIds(line, model, names[1]);
    if (prompt.length === 0) {
      throw new EvalError(
        "eval.text_too_short",
        `Cannot use prompt ${line.index + 1} of ${names[1]}: it has no token`,
        {
          at: { file: names[1], index: line.index },
        },
      );
    }
    const top = line.positions.map((p) => {
      const found = p.top.map((t) => ({ id: known.find(t), logprob: t.logprob }));
      n_unknown += found.filter((t) => t.id === undefined).length;
      return found.filter((t) => t.id !== undefined) as { id: number; logprob: number }[];
    });
    const window = counts.get(line.set) ?? 0;
    counts.set(line.set, window + 1);
    lines.push({
      source: line.set,
      window,
      ids: [...prompt, ...answer],
      skip: prompt.length - 1,
      logprob: line.positions.map((p) => p.logprob),
      top_ids: top.map((row) => row.map((t) => t.id)),
      top_logprob: top.map((row) => row.map((t) => t.logprob)),
    });
  }
  if (n_same < LEAST_AGREEMENT * n_tokens) {
    const share = (100 * n_same / n_tokens).toFixed(1);
    throw other(
      `its tokenizer cuts the teacher's answers differently, only ${share} % of the tokens are the same`,
      names,
      {
        n_tokens,
        n_same,
      },
    );
  }
  return { lines, n_empty, n_unknown };
}

/** The most tokens that a line will have, before the model's tokenizer is at hand. */
export function mostTokens(file: TeacherFile): number {
  const bytes = (line: TeacherLine) =>
    new TextEncoder().encode(line.prompt ?? JSON.stringify([line.messages, line.tools ?? []])).length;
  return Math.max(0, ...file.lines.map((line) => Math.max(2 * line.n_prompt, bytes(line)) + line.positions.length)) +
    64;
}
