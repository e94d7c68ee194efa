/**
 * `bloomery template`: a conversation rendered by a chat template.
 * @module
 */
import type { ChatMessage, ChatTemplate } from "../core/chat/template.ts";
import { UsageError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import { type Command, EXIT, type Flags, type Invocation } from "./command.ts";
import { COMMON } from "./flags.ts";
import type { Io } from "./io.ts";
import { answerLines } from "./lines.ts";
import { openSource } from "./model_file.ts";
import { readText } from "./text_file.ts";

export const template: Command = {
  name: "template",
  summary: "Render a conversation with a chat template",
  arguments: [{ name: "file", help: "JSON file with the conversation; stdin without it", optional: true }],
  flags: [
    { name: "template", type: "string", value: "FILE", help: "Jinja file" },
    { ...COMMON.model, help: "GGUF file whose own template is used" },
    { name: "bos", type: "string", value: "TEXT", help: "text of bos_token; default: the model's, or nothing" },
    { name: "eos", type: "string", value: "TEXT", help: "text of eos_token; default: the model's, or nothing" },
    { name: "now", type: "string", value: "ISO", help: "the clock that the template sees: 2026-01-15T12:30:00" },
    { name: "jsonl", type: "bool", help: "one conversation a line on stdin, one answer a line on stdout" },
    COMMON.config,
    COMMON.json,
  ],
  epilog: "A conversation is a list of messages, or an object:\n" +
    '  {"messages": [...], "tools"?: [...], "add_generation_prompt"?: false, "kwargs"?: {...}}\n' +
    'With --jsonl every line gives {"prompt"} or {"error"}.\n\n' +
    "Examples:\n  bloomery template -m model.gguf conversation.json\n" +
    "  bloomery template --template chat.jinja --bos '<s>' --jsonl < conversations.jsonl",

  async run({ args, flags, io }: Invocation) {
    if (flags.bool("jsonl") && args.length > 0) {
      throw new UsageError("usage.arguments", "Cannot read a file with --jsonl: it answers standard input", {
        hint: "redirect the file: bloomery template --jsonl ... < FILE",
      });
    }
    const chat = await openTemplate(flags, io);
    if (flags.bool("jsonl")) return await answerLines(io, (line) => ({ prompt: render(chat, line) }));
    const text = args[0] === undefined ? await new Response(Deno.stdin.readable).text() : readText(args[0]);
    const prompt = render(chat, text);
    if (flags.bool("json")) io.json({ schema: "bloomery.template.v1", prompt });
    else io.out(prompt.endsWith("\n") ? prompt : prompt + "\n");
    return EXIT.done;
  },
};

async function openTemplate(flags: Flags, io: Io): Promise<ChatTemplate> {
  const file = flags.str("template"), model = flags.str("model");
  if (file === undefined && model === undefined) {
    throw new UsageError("usage.missing_flag", "Cannot render without a template: found neither --template nor -m", {
      hint: "give a Jinja file with --template or a model with -m",
    });
  }
  const { ChatTemplate } = await import("../core/chat/template.ts");
  const own = model === undefined ? undefined : await fromModel(model, io);
  const source = file === undefined ? own?.source : readText(file, "template");
  if (source === undefined) {
    throw new UsageError("usage.no_template", `Cannot render with ${model}: it has no tokenizer.chat_template`, {
      at: { file: model! },
      hint: "give one with --template FILE",
    });
  }
  const now = clock(flags.str("now"));
  return new ChatTemplate(source, {
    bosToken: flags.str("bos") ?? own?.bos ?? "",
    eosToken: flags.str("eos") ?? own?.eos ?? "",
    ...(now ? { now: () => now } : {}),
    name: file ?? `the chat template of ${model}`,
  });
}

/** The template of a GGUF file and the texts of its tokens; the vocabulary itself is not built for that. */
async function fromModel(
  path: string,
  io: Io,
): Promise<{ source: string | undefined; bos: string; eos: string }> {
  using file = await openSource(path, io);
  const m = file.metadata;
  const tokens = m.strs("tokenizer.ggml.tokens", undefined);
  const text = (key: string) => {
    const id = m.int(key, -1);
    return tokens && id >= 0 && id < tokens.length ? tokens.at(id)! : "";
  };
  return {
    source: m.str("tokenizer.chat_template", undefined),
    bos: text("tokenizer.ggml.bos_token_id"),
    eos: text("tokenizer.ggml.eos_token_id"),
  };
}

function clock(text: string | undefined): Date | undefined {
  if (text === undefined) return undefined;
  const t = new Date(text);
  if (Number.isNaN(t.getTime())) {
    throw new UsageError("usage.arguments", `--now: found "${text}", expected a date like 2026-01-15T12:30:00`);
  }
  return t;
}

/** Renders the conversation that a JSON text describes. */
function render(chat: ChatTemplate, text: string): string {
  let input: unknown;
  try {
    input = parseJson(text);
  } catch (cause) {
    throw new UsageError("usage.conversation", `Cannot read the conversation: ${(cause as Error).message}`, { cause });
  }
  const given = (Array.isArray(input) ? { messages: input } : input) as {
    messages?: unknown;
    tools?: unknown;
    add_generation_prompt?: unknown;
    kwargs?: unknown;
  } | null;
  const isMessage = (m: unknown) => typeof m === "object" && m !== null && typeof (m as ChatMessage).role === "string";
  if (!Array.isArray(given?.messages) || !given.messages.every(isMessage)) {
    throw new UsageError("usage.conversation", "Cannot render: messages is not a list of objects with a role", {
      hint: 'give {"messages": [{"role": "user", "content": "Hello"}]}',
    });
  }
  return chat.render({
    messages: given.messages,
    ...(Array.isArray(given.tools) ? { tools: given.tools } : {}),
    addGenerationPrompt: given.add_generation_prompt === true,
    ...(typeof given.kwargs === "object" && given.kwargs !== null
      ? { kwargs: given.kwargs as Record<string, unknown> }
      : {}),
  });
}
