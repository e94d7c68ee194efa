/**
 * `bloomery eval teach`: the answers of a model behind an API, with log-probabilities, for `bloomery eval --against`.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { Question } from "../eval/teacher.ts";
import type { TeacherLine } from "../eval/teacher_file.ts";
import { type Command, EXIT, type Flags } from "./command.ts";
import { COMMON } from "./flags.ts";
import { requirePlace } from "./overwrite.ts";
import { ownFile } from "./score.ts";
import { readText } from "./text_file.ts";

/** Bytes of text that a token has, roughly: for estimates before anything was asked. */
const BYTES_PER_TOKEN = 4;

/** Tokens that were sent and answered. */
interface Spent {
  n_prompt: number;
  n_answer: number;
}

/** What tokens cost; undefined where no prices are given. */
function costOf(spent: Spent, flags: Flags): number | undefined {
  const input = flags.num("price-in"), output = flags.num("price-out");
  if (input === undefined && output === undefined) return undefined;
  return (spent.n_prompt * (input ?? 0) + spent.n_answer * (output ?? 0)) / 1e6;
}

function spentText(spent: Spent, flags: Flags): string {
  const cost = costOf(spent, flags);
  return `${spent.n_prompt} + ${spent.n_answer} tokens${
    cost === undefined ? "" : `, ${cost.toFixed(4)} in the prices' money`
  }`;
}

/** The key of `--api-key-env`. */
function apiKey(flags: Flags): string | undefined {
  const name = flags.str("api-key-env");
  if (name === undefined) return undefined;
  const key = Deno.env.get(name);
  if (key) return key;
  throw new UsageError("usage.value", `Cannot use --api-key-env ${name}: there is no such variable, or it is empty`, {
    at: { flag: "--api-key-env", got: name },
    hint: `export ${name}=... first`,
  });
}

function checkUrl(url: string): void {
  if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) return;
  throw new UsageError("usage.value", `Cannot use --url ${url}: expected an http or https address`, {
    at: { flag: "--url", got: url },
    hint: "give what stands before /chat/completions, such as https://api.example.com/v1",
  });
}

export const teach: Command = {
  name: "eval-teach",
  summary: "Ask a model behind an API for answers with log-probabilities, to compare models with",
  arguments: [],
  flags: [
    {
      name: "url",
      type: "string",
      value: "URL",
      required: true,
      help: "the API: what stands before /chat/completions",
    },
    {
      name: "teacher",
      alias: ["model", "m"],
      type: "string",
      value: "NAME",
      required: true,
      help: "the API's name of the model",
    },
    { name: "api-key-env", type: "string", value: "VAR", help: "environment variable that holds the API's key" },
    {
      name: "api",
      type: "string",
      value: "KIND",
      choices: ["chat", "completions"],
      default: "chat",
      help: "which of OpenAI's two the API follows",
    },
    {
      name: "prompts",
      alias: ["f"],
      type: "strings",
      value: "JSONL",
      required: true,
      help: 'file of prompts, one a line: {"messages"}, {"prompt"} or {"text"}; "set" names the set it is counted in',
    },
    {
      name: "output",
      alias: ["o"],
      type: "string",
      value: "JSONL",
      help: "file to write; an unfinished one is continued",
    },
    { name: "top", type: "int", value: "K", default: 20, min: 1, max: 100, help: "candidates a position to ask for" },
    {
      name: "max-tokens",
      alias: ["n", "n-predict"],
      type: "int",
      value: "N",
      default: 256,
      min: 1,
      max: 1 << 20,
      help: "most tokens of an answer",
    },
    {
      name: "at-once",
      alias: ["parallel", "np"],
      type: "int",
      value: "N",
      default: 4,
      min: 1,
      max: 256,
      help: "questions that are asked at once",
    },
    { name: "price-in", type: "number", value: "PRICE", min: 0, help: "price of a million tokens of prompts" },
    { name: "price-out", type: "number", value: "PRICE", min: 0, help: "price of a million tokens of answers" },
    { name: "dry-run", type: "bool", help: "print what it would ask and cost, and ask nothing" },
    {
      ...COMMON.overwrite,
      alias: ["restart"],
      help: "start again and replace the file; without it a run continues its own unfinished file",
    },
    COMMON.config,
    COMMON.json,
    COMMON.quiet,
  ],
  epilog: "Example:\n  bloomery eval teach --url https://api.example.com/v1 --teacher NAME --api-key-env KEY " +
    "-f prompts.jsonl -o teacher.jsonl\n  bloomery eval -m quantized.gguf --against teacher.jsonl\n\n" +
    "Answers are greedy (temperature 0). Run the same command again to continue a run that was stopped: what was answered is\n" +
    "not asked again. The cost is worked out from the tokens that the API reports; requests that failed may cost more.",

  async run({ flags, io }) {
    const { parsePrompts } = await import("../eval/prompts.ts");
    const { askTeacher, questionBytes, questionsOf } = await import("../eval/teacher.ts");
    const file = await import("../eval/teacher_file.ts");
    const url = flags.str("url")!, api = flags.str("api") as "chat" | "completions";
    checkUrl(url);
    const prompts = flags.strs("prompts").flatMap((path) =>
      parsePrompts(readText(path, "prompts"), path, path.split("/").at(-1)!)
    );
    const questions = questionsOf(prompts, api);
    const top_k = flags.num("top")!, max_tokens = flags.num("max-tokens")!;
    const header = {
      schema: file.TEACHER_SCHEMA,
      url,
      model: flags.str("teacher")!,
      api,
      top_k,
      max_tokens,
      n_prompts: questions.length,
      prompts_sha256: await file.questionsHash(questions),
    } as const;

    const path = flags.str("output");
    if (path === undefined && !flags.bool("dry-run")) {
      throw new UsageError("usage.missing_flag", "Cannot ask without a file to write: found no --output", {
        hint: "give -o TEACHER.jsonl, or --dry-run",
      });
    }
    if (path !== undefined) requirePlace(path);
    const existing = path === undefined || flags.bool("overwrite") ? undefined : await ownFile(path);
    const has = existing !== undefined && existing.includes("\n");
    const known = has ? file.parseTeacherFile(existing, path!) : undefined;
    if (known !== undefined) file.checkSameTeacher(known, header, path!);
    const answered = new Set((known?.lines ?? []).map((line) => line.index));
    const open = questions.filter((q) => !answered.has(q.index));

    const estimated = {
      n_prompt: Math.ceil(open.reduce((n, q) => n + questionBytes(q), 0) / BYTES_PER_TOKEN),
      n_answer: open.length * max_tokens,
    };
    const plan = `${open.length} of ${questions.length} prompts to ask, ` +
      `about ${estimated.n_prompt} tokens of prompts and at most ${estimated.n_answer} of answers`;
    const cost = costOf(estimated, flags);
    const most = cost === undefined ? "no prices given" : `about ${cost.toFixed(4)} at most in the prices' money`;
    if (flags.bool("dry-run")) {
      if (flags.bool("json")) {
        io.json({ ...header, dry_run: true, n_open: open.length, ...estimated, cost: cost ?? null });
      } else io.out(`${plan}: ${most}\n`);
      return EXIT.done;
    }
    io.note(`${plan}: ${most}`);
    const key = apiKey(flags);
    if (key !== undefined && url.startsWith("http:")) {
      io.warn("the API's key is sent without encryption: --url is http");
    }

    const partial = `${path}.partial`;
    await Deno.writeTextFile(
      partial,
      has ? existing.slice(0, existing.lastIndexOf("\n") + 1) : JSON.stringify(header) + "\n",
    );
    await Deno.rename(partial, path!);
    using out = await Deno.open(path!, { append: true });
    const spent: Spent = { n_prompt: 0, n_answer: 0 };
    const add = (line: Pick<TeacherLine, "n_prompt" | "n_answer">) => {
      spent.n_prompt += line.n_prompt;
      spent.n_answer += line.n_answer;
    };
    known?.lines.forEach(add);
    io.ifInterrupted("stopped; run the same command to continue");
    using _hold = io.hold();
    const bar = io.bar("teach", questions.length, "it");
    let n_retries = 0, done = answered.size, told = performance.now();
    const failed = new AbortController();
    const options = {
      ...header,
      apiKey: key,
      signal: AbortSignal.any([io.signal, failed.signal]),
      onRetry: (text: string) => {
        n_retries++;
        io.note(text);
      },
    };
    const queue = open.values();
    const ask = async (q: Question) => {
      const answer = await askTeacher(q, options);
      // Written whole and at once: two answers never mix, and a killed run leaves at most the last one cut.
      const bytes = new TextEncoder().encode(file.teacherLine(q, answer));
      for (let at = 0; at < bytes.length;) at += out.writeSync(bytes.subarray(at));
      add(answer);
      bar.update(++done, answered.size);
      if (performance.now() - told < 5000) return;
      told = performance.now();
      io.note(`${done} of ${questions.length} answered, ${spentText(spent, flags)}`);
    };
    const worker = async () => {
      for (const q of queue) await ask(q);
    };
    const workers = Array.from({ length: flags.num("at-once")! }, () =>
      worker().catch((error) => {
        failed.abort();
        throw error;
      }));
    const ends = await Promise.allSettled(workers);
    bar.stop();
    // The first failure stopped the others, whose aborts say nothing.
    const errors = ends.flatMap((end) => end.status === "rejected" ? [end.reason] : []);
    if (io.signal.aborted) return EXIT.done; // the caller says how to go on, and ends as interrupted
    if (errors.length > 0) throw errors.find((e) => !(e instanceof DOMException)) ?? errors[0];
    if (flags.bool("json")) {
      io.json({ ...header, output: path, n_answers: done, n_retries, ...spent, cost: costOf(spent, flags) ?? null });
    } else io.out(`${path}: ${done} answers, ${spentText(spent, flags)}\n`);
    return EXIT.done;
  },
};
