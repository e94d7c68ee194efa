/**
 * A chat on a terminal: messages, commands that begin with a slash, and what happens when the context is full.
 * @module
 */
import type { Grammar } from "../core/sampling/grammar/mod.ts";
import type { ChatMessage } from "../core/chat/messages.ts";
import type { Drafter } from "../core/draft/drafter.ts";
import { BloomeryError, UsageError } from "../core/errors.ts";
import { parseJson } from "../core/json.ts";
import type { ChatOptions, Piece, StopReason } from "../core/language_model.ts";
import { osError } from "../core/os_error.ts";
import type { SamplingParams } from "../core/sampling/mod.ts";
import { cutText, printAnswer } from "./answer.ts";
import { flagValue } from "./flag_value.ts";
import { PREDICT, SAMPLING } from "./flags.ts";
import type { Io } from "./io.ts";
import { nearest } from "./nearest.ts";
import type { Terminal } from "./terminal.ts";

/** What a chat needs of a model; `LanguageModel` has it. */
export interface ChatModel {
  readonly engine: { readonly n_ctx: number };
  chat(messages: ChatMessage[], options: ChatOptions): AsyncGenerator<Piece, StopReason>;
  renderChat(messages: ChatMessage[], options: ChatOptions): { prompt: string; generationPrompt: string };
  encodeChat(prompt: string): { readonly length: number };
  splitAnswer(text: string, generationPrompt: string): { content: string; reasoning: string };
}

export interface ChatSettings {
  system?: string | undefined;
  sampling: Partial<SamplingParams>;
  maxTokens?: number | undefined;
  kwargs: Record<string, unknown>;
  /** The form that answers must have. */
  grammar?: Grammar | undefined;
  /** Guesses tokens. */
  drafter?: Drafter | undefined;
}

const HELP = `/help              this list
/exit              end the chat; Ctrl-D does the same
/clear             forget the conversation; the system message stays
/system [TEXT]     set the system message; "/system -" removes it, "/system" shows it
/set [NAME VALUE]  change a setting such as temp, top-k or predict; "/set" shows them
/save FILE         write the conversation as JSON
/load FILE         continue a conversation from a file
Ctrl-C ends an answer. A message that begins with a slash: write two.
`;

const COMMANDS = ["help", "exit", "quit", "clear", "system", "set", "save", "load"];

const CHAT_SCHEMA = "bloomery.chat.v1";

/** Bytes of a conversation that is loaded. */
const MAX_FILE = 64 << 20;

/** Part of the context that an answer should find free. */
const ROOM = 1 / 4;

/**
 * The messages of a conversation file: what `/save` writes, or a bare list of messages.
 * @throws {UsageError} `usage.conversation`
 */
export function readConversation(text: string, path: string): ChatMessage[] {
  const bad = (why: string) =>
    new UsageError("usage.conversation", `Cannot load ${path}: ${why}`, {
      at: { file: path },
      hint: 'a conversation is {"messages": [{"role": "user", "content": "Hello"}]}',
    });
  let json: unknown;
  try {
    json = parseJson(text);
  } catch (cause) {
    throw bad(`it is not JSON, ${(cause as Error).message}`);
  }
  const messages = Array.isArray(json) ? json : (json as { messages?: unknown } | null)?.messages;
  if (!Array.isArray(messages)) throw bad("it has no list of messages");
  return messages.map((m, i): ChatMessage => {
    const { role, content } = (m ?? {}) as { role?: unknown; content?: unknown };
    if (role !== "system" && role !== "user" && role !== "assistant") {
      throw bad(`messages[${i}].role is ${JSON.stringify(role)}, expected "system", "user" or "assistant"`);
    }
    if (typeof content !== "string") throw bad(`messages[${i}].content is no text`);
    if (role === "system" && i > 0) throw bad(`messages[${i}] is a system message, expected it first`);
    return { role, content };
  });
}

/** A number without the digits that 32 bits leave of it. */
function shownNumber(n: number): number {
  return Number.isSafeInteger(n) ? n : Number(n.toPrecision(6));
}

export class Chat {
  readonly #model: ChatModel;
  readonly #io: Io;
  readonly #settings: ChatSettings;
  #messages: ChatMessage[] = [];
  /** Files that this chat wrote or read: saving over them is meant. */
  readonly #own = new Set<string>();

  constructor(model: ChatModel, io: Io, settings: ChatSettings) {
    this.#model = model;
    this.#io = io;
    this.#settings = settings;
  }

  /** Turns without the system message. */
  get messages(): readonly ChatMessage[] {
    return this.#messages;
  }

  /** Reads and answers lines until the input or the user ends it. */
  async run(terminal: Terminal): Promise<void> {
    this.#io.note("/help lists the commands, /exit or Ctrl-D ends the chat");
    while (!this.#io.signal.aborted) {
      const typed = await terminal.readLine("> ");
      if (typed === undefined) return;
      if (typed === "interrupted") {
        this.#io.note("/exit or Ctrl-D ends the chat");
        continue;
      }
      const line = typed.line.trim();
      if (line === "") continue;
      try {
        if (/^\/(?!\/)/.test(line)) {
          if (this.#command(line) === "exit") return;
        } else await this.#answer(line.replace(/^\/\//, "/"));
      } catch (error) {
        // One failed line does not end the chat.
        const known = error instanceof BloomeryError ? error : osError(error);
        if (known === undefined) throw error;
        this.#io.error(known.message);
        if (known.hint) this.#io.error(`hint: ${known.hint}`);
      }
    }
  }

  #options(): ChatOptions {
    const { sampling, kwargs, maxTokens, grammar } = this.#settings;
    return { sampling, kwargs, ...(maxTokens === undefined ? {} : { maxTokens }), ...(grammar ? { grammar } : {}) };
  }

  #withSystem(messages: readonly ChatMessage[]): ChatMessage[] {
    const { system } = this.#settings;
    return [...(system === undefined ? [] : [{ role: "system", content: system }]), ...messages];
  }

  #tokens(messages: readonly ChatMessage[]): number {
    return this.#model.encodeChat(this.#model.renderChat(this.#withSystem(messages), this.#options()).prompt).length;
  }

  /**
   * The messages that the context has room for: the oldest turns leave first.
   * @throws {UsageError} `usage.prompt` when the last message alone is too long
   */
  #fitting(messages: readonly ChatMessage[]): ChatMessage[] {
    const { n_ctx } = this.#model.engine;
    const room = Math.max(1, Math.min(Math.floor(n_ctx * ROOM), this.#settings.maxTokens ?? Infinity));
    let kept = [...messages];
    let n = this.#tokens(kept);
    if (n + room <= n_ctx) return kept;
    const alone = this.#tokens(kept.slice(-1));
    if (alone >= n_ctx) {
      throw new UsageError("usage.prompt", `The message has ${alone} tokens, the context holds ${n_ctx}`, {
        at: { n_tokens: alone, n_ctx },
        hint: "shorten it, or start with a larger --ctx-size",
      });
    }
    while (n + room > n_ctx && kept.length > 1) {
      // A turn is a user's message and the answers to it.
      const next = kept.findIndex((m, i) => i > 0 && m.role === "user");
      kept = kept.slice(next < 0 ? -1 : next);
      n = this.#tokens(kept);
    }
    const gone = messages.length - kept.length;
    if (gone > 0) this.#io.note(`the context is full: the oldest ${gone} messages were dropped`);
    return kept;
  }

  async #answer(text: string): Promise<void> {
    const messages = this.#fitting([...this.#messages, { role: "user", content: text }]);
    const stop = new AbortController();
    // A signal that ends the program ends the answer too.
    const signal = AbortSignal.any([stop.signal, this.#io.signal]);
    using _ = this.#io.hold(() => stop.abort());
    const prompt = this.#withSystem(messages);
    const answer = await printAnswer(
      this.#model.chat(prompt, { ...this.#options(), drafter: this.#settings.drafter, signal }),
      this.#io,
    );
    const cut = cutText(answer, this.#model.engine.n_ctx);
    if (cut !== undefined) this.#io.note(cut);
    const { generationPrompt } = this.#model.renderChat(prompt, this.#options());
    const { content } = this.#model.splitAnswer(answer.text, generationPrompt);
    this.#messages = [...messages, { role: "assistant", content: content.trim() }];
  }

  #command(line: string): "exit" | void {
    const [, name, rest] = /^\/(\S*)\s*([^]*)$/.exec(line)!;
    switch (name) {
      case "help":
      case "?":
        return this.#io.out(HELP);
      case "exit":
      case "quit":
      case "bye":
        return "exit";
      case "clear":
        this.#messages = [];
        return this.#io.note("the conversation is cleared");
      case "system":
        return this.#system(rest);
      case "set":
        return this.#set(rest);
      case "save":
        return this.#save(rest);
      case "load":
        return this.#load(rest);
    }
    const meant = nearest(name, COMMANDS);
    throw new UsageError("usage.chat_command", `There is no command /${name}`, {
      hint: meant === undefined
        ? "/help lists them; a message that begins with a slash needs two"
        : `did you mean /${meant}?`,
    });
  }

  #system(text: string): void {
    if (text === "") return this.#io.out(`${this.#settings.system ?? "there is no system message"}\n`);
    this.#settings.system = text === "-" ? undefined : text;
    this.#io.note(text === "-" ? "the system message is removed" : "the system message is set");
  }

  #set(text: string): void {
    const [name, ...rest] = text.split(/\s+/).filter((part) => part !== "");
    const { sampling } = this.#settings;
    if (name === undefined) {
      const lines = SAMPLING.filter(({ param }) => sampling[param] !== undefined)
        .map(({ flag, param }) => `${flag.name} ${shownNumber(sampling[param]!)}`);
      lines.push(`${PREDICT.name} ${this.#settings.maxTokens ?? -1}`);
      return this.#io.out(lines.join("\n") + "\n");
    }
    const known = [...SAMPLING, { param: undefined, flag: PREDICT }];
    const plain = name.replace(/^-+/, "").replaceAll("_", "-");
    const entry = known.find(({ flag }) => flag.name === plain || flag.alias?.includes(plain));
    if (entry === undefined) {
      const meant = nearest(plain, known.map(({ flag }) => flag.name));
      throw new UsageError("usage.chat_command", `There is no setting ${name}`, {
        hint: meant === undefined
          ? `the settings are ${known.map(({ flag }) => flag.name).join(", ")}`
          : `did you mean ${meant}?`,
      });
    }
    const { flag, param } = entry;
    if (rest.length === 0) {
      throw new UsageError("usage.chat_command", `/set ${flag.name} needs a value`, { hint: flag.help });
    }
    const value = flagValue(flag, [rest.join(" ")], flag.name) as number;
    if (param === undefined) this.#settings.maxTokens = value < 0 ? undefined : value;
    else this.#settings.sampling = { ...sampling, [param]: value };
    this.#io.note(`${flag.name} is ${value}`);
  }

  #save(path: string): void {
    if (path === "") throw new UsageError("usage.chat_command", "/save needs a file", { hint: "/save chat.json" });
    const text = JSON.stringify({ schema: CHAT_SCHEMA, messages: this.#withSystem(this.#messages) }, null, 2) + "\n";
    try {
      Deno.writeTextFileSync(path, text, { createNew: !this.#own.has(path) });
    } catch (error) {
      if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
      throw new UsageError("usage.output_exists", `Cannot write ${path}: it exists already`, {
        at: { file: path },
        hint: "choose another name, or /load it first",
      });
    }
    this.#own.add(path);
    this.#io.note(`wrote ${path}: ${this.#messages.length} messages`);
  }

  #load(path: string): void {
    if (path === "") throw new UsageError("usage.chat_command", "/load needs a file", { hint: "/load chat.json" });
    const { isFile, size } = Deno.statSync(path);
    if (!isFile || size > MAX_FILE) {
      throw new UsageError("usage.conversation", `Cannot load ${path}: it is no file of at most ${MAX_FILE} bytes`, {
        at: { file: path },
      });
    }
    const messages = readConversation(Deno.readTextFileSync(path), path);
    if (messages[0]?.role === "system") this.#settings.system = messages.shift()!.content as string;
    this.#messages = messages;
    this.#own.add(path);
    this.#io.note(`loaded ${path}: ${messages.length} messages`);
  }
}
