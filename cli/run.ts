/**
 * `bloomery run`: one streamed answer, or a chat on a terminal.
 * @module
 */
import { type Command, EXIT, type Flags } from "./command.ts";
import { DRAFT_FLAGS, openDrafterFromFlags } from "./draft_flags.ts";
import { COMMON, FORM_FLAGS, MODEL_FLAGS, PREDICT, REASONING_FLAGS, SAMPLING_FLAGS } from "./flags.ts";
import { LLAMA_CLI_FLAGS, LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { LLAMA_SPEC_FLAGS } from "./llama_spec_flags.ts";
import { openModelFromFlags } from "./open.ts";
import { residencyNote } from "./residency.ts";
import { UsageError } from "../core/errors.ts";
import type { ChatMessage } from "../core/chat/messages.ts";
import type { SamplingParams } from "../core/sampling/mod.ts";
import { cutText, printAnswer } from "./answer.ts";
import { Chat } from "./chat.ts";
import type { Io } from "./io.ts";
import { grammarOf, maxTokensOf, reasoningKwargs, samplingOf } from "./sampling.ts";
import { openTerminal } from "./terminal.ts";
import { readText } from "./text_file.ts";

/** After this long `run` says that it waits for standard input. */
const PATIENCE_MS = 1500;

/** All of standard input; undefined on a terminal. */
async function pipedText(io: Io): Promise<string | undefined> {
  if (Deno.stdin.isTerminal()) return undefined;
  const timer = setTimeout(
    () => io.note("waiting for the end of standard input; use < /dev/null to give none"),
    PATIENCE_MS,
  );
  try {
    return await new Response(Deno.stdin.readable).text();
  } finally {
    clearTimeout(timer);
  }
}

/** The prompt of the argument, of `--prompt` or of `--prompt-file`. */
function givenPrompt(args: readonly string[], flags: Flags): string | undefined {
  const file = flags.str("prompt-file");
  const given = [args[0], flags.str("prompt"), file === undefined ? undefined : readText(file, "prompt-file")]
    .filter((text) => text !== undefined);
  if (given.length < 2) return given[0];
  throw new UsageError("usage.prompt", `Cannot answer ${given.length} prompts: expected one`, {
    hint: "give one of the argument, --prompt and --prompt-file",
  });
}

/** What is asked: a piped text is what a question is about. */
export function joinPrompt(piped: string | undefined, question: string | undefined): string | undefined {
  const text = piped?.trim() === "" ? undefined : piped;
  if (text === undefined || question === undefined) return question ?? text;
  return `${text.trimEnd()}\n\n${question}`;
}

function systemOf(flags: Flags): string | undefined {
  const file = flags.str("system-file");
  return flags.str("system") ?? (file === undefined ? undefined : readText(file, "system-file"));
}

export const run: Command = {
  name: "run",
  summary: "Print a model's answer to a prompt, or chat on a terminal",
  arguments: [{ name: "prompt", help: "what to ask; without it, a chat on a terminal, or stdin", optional: true }],
  flags: [
    ...MODEL_FLAGS,
    ...DRAFT_FLAGS,
    { name: "prompt", alias: ["p"], type: "string", value: "TEXT", help: "the prompt, in place of the argument" },
    {
      name: "prompt-file",
      alias: ["f", "file"],
      type: "string",
      value: "FILE",
      help: "text file with the prompt",
    },
    { name: "system", alias: ["sys", "system-prompt"], type: "string", value: "TEXT", help: "system message" },
    {
      name: "system-file",
      alias: ["sysf", "system-prompt-file"],
      type: "string",
      value: "FILE",
      help: "text file with the system message",
    },
    {
      name: "raw",
      alias: ["no-cnv", "no-conversation"],
      type: "bool",
      help: "no chat template: continue the prompt itself",
    },
    PREDICT,
    ...REASONING_FLAGS,
    { name: "no-think", type: "bool", help: "the same as --reasoning off" },
    ...SAMPLING_FLAGS,
    ...FORM_FLAGS,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
    ...LLAMA_SPEC_FLAGS,
    ...LLAMA_CLI_FLAGS,
  ],
  epilog: "Text on standard input is what the prompt is about: cat notes.txt | bloomery run -m MODEL Summarize\n" +
    "Without a prompt and on a terminal there is a chat; /help lists its commands.\n\n" +
    "Examples:\n  bloomery run -m qwen3-8b-Q4_K_M.gguf 'Why is the sky blue?'\n" +
    "  bloomery run -hf ggml-org/Qwen3-0.6B-GGUF",

  async run({ args, flags, io }) {
    const question = givenPrompt(args, flags);
    const system = systemOf(flags);
    const text = joinPrompt(await pipedText(io), question);
    if (text === undefined && (flags.bool("raw") || !Deno.stdin.isTerminal())) {
      throw new UsageError("usage.prompt", "Cannot answer: there is no prompt", {
        hint: "give one as the argument, or on standard input",
      });
    }
    const maxTokens = maxTokensOf(flags);
    const limit = maxTokens === undefined ? {} : { maxTokens };
    const grammar = await grammarOf(flags, io);
    const kwargs = { ...reasoningKwargs(flags), ...(flags.bool("no-think") ? { enable_thinking: false } : {}) };
    const messages: ChatMessage[] = [
      ...(system === undefined ? [] : [{ role: "system", content: system }]),
      ...(text === undefined ? [] : [{ role: "user", content: text }]),
    ];
    let sampling: Partial<SamplingParams> = {};
    let prompt: Int32Array | undefined;
    using opened = await openModelFromFlags(flags, io, {
      n_out: 1,
      beforeWeights(model) {
        sampling = samplingOf(flags, model.tokenizer, { changing: text === undefined });
        if (text === undefined) return;
        prompt = flags.bool("raw")
          ? model.tokenizer.encode(text, { addSpecial: true, parseSpecial: true })
          : model.encodeChat(model.renderChat(messages, { kwargs }).prompt);
        model.roomAfter(prompt.length, limit);
      },
    });
    const { model } = opened;
    using drafter = await openDrafterFromFlags(opened, flags, io, { n_seq: 1 });
    if (prompt === undefined) {
      const defaults = { ...model.samplingDefaults(), ...sampling };
      const settings = { grammar, system, sampling: defaults, maxTokens, kwargs, drafter };
      await new Chat(model, io, settings).run(openTerminal());
      return EXIT.done;
    }
    using _ = io.hold();
    const options = { sampling, signal: io.signal, drafter, ...limit, ...(grammar === undefined ? {} : { grammar }) };
    const answer = await printAnswer(model.generate(prompt, options), io);
    const cut = cutText(answer, model.engine.n_ctx);
    if (cut !== undefined) io.warn(cut);
    const experts = residencyNote(model.engine, flags.bool("verbose"));
    if (experts !== undefined) io.note(experts);
    return EXIT.done;
  },
};
