/**
 * Sets of multiple-choice tasks in the three forms that `llama-perplexity` reads:
 *
 * - `hellaswag`: six lines a task: context, number of the right ending from 0, four endings;
 * - `winogrande`: CSV rows `index,sentence,choice 1,choice 2,answer`, with `_` in the sentence and the answer 1 or 2;
 * - `multiple-choice`: binary, for ARC, MMLU, TruthfulQA: u32 number of tasks, u32 position of each, then the tasks: the
 *   question, answers of which one is right, and answers of which several may be. A text is a u32 length and its bytes, a list
 *   of answers a u32 count, the texts and an i32 label each, 1 where right; positions count from the file's start.
 *
 * They come from outside, so everything is checked, and what is wrong is named by file and task.
 * @module
 */
import { EvalError } from "../core/errors.ts";

export type ChoiceKind = "hellaswag" | "winogrande" | "multiple-choice";
export const CHOICE_KINDS: readonly ChoiceKind[] = ["hellaswag", "winogrande", "multiple-choice"];

/** A task: options of which some are right. */
export interface ChoiceTask {
  /** What comes before each option. */
  readonly before: string;
  readonly options: readonly string[];
  /** What comes after each option; only winogrande has it. */
  readonly after: string;
  /** One for each option. */
  readonly right: readonly boolean[];
}

/** More options than any task has; the peer takes no more either. */
const MAX_OPTIONS = 100;

function wrong(file: string, task: string, what: string): EvalError {
  return new EvalError("eval.tasks", `Cannot read ${file}, ${task}: ${what}`, {
    at: { file, task },
    hint: "give a set in the form that llama-perplexity reads for the same flag",
  });
}

const lines = (text: string) => text.replace(/\n$/, "").split("\n");

function readHellaswag(text: string, file: string): ChoiceTask[] {
  const rows = lines(text);
  if (rows.at(-1) === "") rows.pop();
  if (rows.length === 0 || rows.length % 6 !== 0) {
    throw wrong(file, "the whole", `it has ${rows.length} lines, expected 6 for each task`);
  }
  return Array.from({ length: rows.length / 6 }, (_, i) => {
    const [before, label, ...endings] = rows.slice(6 * i, 6 * i + 6);
    const at = `line ${6 * i + 2}`;
    if (!/^\s*[0-3]\s*$/.test(label)) {
      throw wrong(file, at, `found ${JSON.stringify(label.slice(0, 80))}, expected the right ending, 0 to 3`);
    }
    if (before === "" || endings.includes("")) {
      throw wrong(file, `the task of ${at}`, "a context or an ending is empty");
    }
    const right = Number(label);
    return { before, options: endings.map((e) => ` ${e}`), after: "", right: endings.map((_, j) => j === right) };
  });
}

/** The first four commas of a row that are not within quotes. */
function commas(row: string): number[] {
  const at: number[] = [];
  let quoted = false;
  for (let i = 0; i < row.length && at.length < 4; i++) {
    if (row[i] === '"') quoted = !quoted;
    else if (row[i] === "," && !quoted) at.push(i);
  }
  return at;
}

function readWinogrande(text: string, file: string): ChoiceTask[] {
  return lines(text).filter((row) => row !== "").map((row, i) => {
    const refuse = (what: string) => wrong(file, `row ${i + 1}`, what);
    const [a, b, c, d] = commas(row);
    if (d === undefined) throw refuse("it has fewer than five fields");
    const field = row.slice(a + 1, b);
    const sentence = field.startsWith('"') && field.endsWith('"') && field.length > 1 ? field.slice(1, -1) : field;
    const gap = sentence.indexOf("_");
    if (gap < 0) throw refuse("its sentence has no _");
    const answer = /^\s*([12])\s*$/.exec(row.slice(d + 1))?.[1];
    if (answer === undefined) {
      throw refuse(`found the answer ${JSON.stringify(row.slice(d + 1).slice(0, 80))}, expected 1 or 2`);
    }
    const options = [row.slice(b + 1, c), row.slice(c + 1, d)];
    if (options.includes("")) throw refuse("a choice is empty");
    return {
      before: sentence.slice(0, gap),
      options,
      after: sentence.slice(gap + 1),
      right: [answer === "1", answer === "2"],
    };
  });
}

/** Reads little-endian numbers and texts, and says where a file ends too early. */
class Reader {
  readonly #view: DataView;
  task = "the head";

  constructor(readonly bytes: Uint8Array, readonly file: string, public at = 0) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  refuse(what: string): EvalError {
    return wrong(this.file, this.task, what);
  }

  need(n: number): void {
    if (n > this.bytes.length - this.at) throw this.refuse(`it ends after ${this.bytes.length} bytes`);
  }

  u32(): number {
    this.need(4);
    this.at += 4;
    return this.#view.getUint32(this.at - 4, true);
  }

  text(): string {
    const n = this.u32();
    this.need(n);
    this.at += n;
    return new TextDecoder().decode(this.bytes.subarray(this.at - n, this.at));
  }

  answers(): { texts: string[]; right: boolean[] } {
    const n = this.u32();
    if (n > MAX_OPTIONS) throw this.refuse(`found ${n} answers, expected at most ${MAX_OPTIONS}`);
    const texts = Array.from({ length: n }, () => this.text());
    return { texts, right: Array.from({ length: n }, () => this.u32() === 1) };
  }
}

function readMultipleChoice(bytes: Uint8Array, file: string): ChoiceTask[] {
  const head = new Reader(bytes, file);
  const n = head.u32();
  if (n === 0) throw head.refuse("it has no tasks");
  head.need(4 * n);
  const positions = Array.from({ length: n }, () => head.u32());
  return positions.map((position, i) => {
    const reader = new Reader(bytes, file, position);
    reader.task = `task ${i + 1}`;
    if (position > bytes.length) throw reader.refuse(`it is to begin at byte ${position} of ${bytes.length}`);
    const before = reader.text(), { texts, right } = reader.answers();
    reader.answers(); // those of which several may be right are not scored, by the peer neither
    if (before === "") throw reader.refuse("its question is empty");
    if (texts.length === 0 || texts.includes("")) throw reader.refuse("it has no answers, or an empty one");
    return { before, options: texts.map((t) => ` ${t}`), after: "", right };
  });
}

/** @throws {EvalError} `eval.tasks` naming file and task */
export function parseChoices(bytes: Uint8Array, kind: ChoiceKind, file: string): ChoiceTask[] {
  if (kind === "multiple-choice") return readMultipleChoice(bytes, file);
  const text = new TextDecoder().decode(bytes);
  const tasks = kind === "hellaswag" ? readHellaswag(text, file) : readWinogrande(text, file);
  if (tasks.length === 0) throw wrong(file, "the whole", "it has no tasks");
  return tasks;
}
