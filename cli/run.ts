/**
 * `bloomery run`: one streamed answer, or a chat on a terminal.
 * @module
 */
import { type Command, EXIT, MODEL_FLAGS } from "./command.ts";
import { openModelFromFlags } from "./open.ts";
import { UsageError } from "../core/errors.ts";
import type { ChatMessage } from "../core/chat/messages.ts";
import type { LanguageModel, Piece } from "../core/language_model.ts";
import type { Io } from "./io.ts";

/** Prints pieces as they come. @returns the whole text. */
async function stream(pieces: AsyncIterable<Piece>, io: Io): Promise<string> {
  let text = "";
  let n = 0;
  const start = performance.now();
  for await (const piece of pieces) {
    n++;
    text += piece.text;
    io.out(piece.text);
  }
  io.out("\n");
  io.note(`${n} tokens, ${(n / (performance.now() - start) * 1000).toFixed(1)} tok/s`);
  return text;
}

async function chat(model: LanguageModel, io: Io, options: Parameters<LanguageModel["chat"]>[1]): Promise<void> {
  const messages: ChatMessage[] = [];
  while (!io.signal.aborted) {
    const line = prompt(">");
    if (line === null) return;
    if (line.trim() === "") continue;
    messages.push({ role: "user", content: line });
    const text = await stream(model.chat(messages, options), io);
    const { generationPrompt } = model.renderChat(messages, options);
    const { content } = model.splitAnswer(text, generationPrompt);
    messages.push({ role: "assistant", content: content.trim() });
  }
}

export const run: Command = {
  name: "run",
  summary: "Print a model's answer to a prompt, or chat on a terminal",
  arguments: [{ name: "prompt", help: "what to ask; without it, a chat on a terminal, or stdin", optional: true }],
  flags: [
    ...MODEL_FLAGS,
    {
      name: "temp",
      type: "number",
      value: "T",
      min: 0,
      help: "temperature, 0 = greedy; default: what the model recommends",
    },
    { name: "top-k", type: "int", value: "K", help: "candidates kept, 0 = all" },
    { name: "top-p", type: "number", value: "P", min: 0, max: 1, help: "probability mass kept" },
    { name: "min-p", type: "number", value: "P", min: 0, max: 1, help: "probability kept, relative to the best" },
    { name: "seed", alias: ["s"], type: "int", value: "N", help: "of the sampler; default: random" },
    { name: "predict", alias: ["n", "n-predict"], type: "int", value: "N", min: 0, help: "most tokens to generate" },
    { name: "system", alias: ["sys"], type: "string", value: "TEXT", help: "system message" },
    { name: "raw", type: "bool", help: "no chat template: go on after the prompt itself" },
    { name: "no-think", type: "bool", help: "ask the template for an answer without reasoning" },
    { name: "quiet", alias: ["q"], type: "bool", help: "no progress on stderr" },
  ],
  async run({ args, flags, io }) {
    const text = args[0] ?? (Deno.stdin.isTerminal() ? undefined : await new Response(Deno.stdin.readable).text());
    if (text === undefined && flags.bool("raw")) {
      throw new UsageError("usage.prompt", "Cannot continue a prompt with --raw: found none", {
        hint: "give a prompt",
      });
    }
    using opened = await openModelFromFlags(flags, io);
    const { model } = opened;
    const sampling = {
      ...(flags.has("temp") ? { temperature: flags.num("temp")! } : {}),
      ...(flags.has("top-k") ? { top_k: flags.num("top-k")! } : {}),
      ...(flags.has("top-p") ? { top_p: flags.num("top-p")! } : {}),
      ...(flags.has("min-p") ? { min_p: flags.num("min-p")! } : {}),
      ...(flags.has("seed") ? { seed: flags.num("seed")! } : {}),
    };
    const options = {
      sampling,
      signal: io.signal,
      ...(flags.has("predict") ? { maxTokens: flags.num("predict")! } : {}),
      ...(flags.bool("no-think") ? { kwargs: { enable_thinking: false } } : {}),
    };
    if (text === undefined) await chat(model, io, options);
    else if (flags.bool("raw")) await stream(model.generate(text, options), io);
    else {
      const system = flags.str("system");
      const messages: ChatMessage[] = [
        ...(system === undefined ? [] : [{ role: "system", content: system }]),
        { role: "user", content: text },
      ];
      await stream(model.chat(messages, options), io);
    }
    return EXIT.done;
  },
};
