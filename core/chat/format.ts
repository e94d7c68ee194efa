/**
 * A model's chat format: it fits messages to the template, renders the prompt and makes the parser of answers.
 *
 * Small probes, rendered once and only when needed, show what a template accepts. A probe that the template refuses is an
 * answer, not a failure.
 * @module
 */
import { TextError } from "../errors.ts";
import { mergeJson, writeJson } from "../json.ts";
import { createOutputParser, type OutputParser, type ReasoningFormat } from "./reasoning.ts";
import { strftime } from "./jinja/methods.ts";
import { ChatTemplate, type ChatTemplateOptions } from "./template.ts";
import type { ChatMessage, ContentPart } from "./messages.ts";
import { withToolResponses } from "./tool_responses.ts";
import { familyOf } from "./tool_calls/families.ts";

/** A conversation to write as a prompt. */
export interface ChatRenderInput {
  /** Oldest first. */
  messages: readonly ChatMessage[];
  /** OpenAI tools; none where left out. */
  tools?: readonly unknown[];
  /** Ends the prompt with what opens the assistant's answer. */
  addGenerationPrompt: boolean;
  /** Continues the last message, which is the assistant's, instead of opening a new one. */
  continueFinal?: boolean;
  /** Further template variables. */
  kwargs?: Record<string, unknown>;
}

/** A conversation as text. */
export interface ChatPrompt {
  /** All of it, the generation prompt included. */
  prompt: string;
  /** The prompt's end that opens the answer, `<think>` and the like included. */
  generationPrompt: string;
}

/** What a parser of one answer has to know of its request. */
export interface ParserInput {
  /** What becomes of reasoning. */
  reasoningFormat: ReasoningFormat;
  /** OpenAI tools of the request. */
  tools?: readonly unknown[];
  /** Whether an answer may hold several calls; yes where left out. */
  parallelToolCalls?: boolean;
  /** As `render` gave it. */
  generationPrompt: string;
  /** Whether the answer is sent as it comes. */
  stream?: boolean;
}

/** Text of the probes: no template contains it, and JSON and HTML write it unchanged. */
const MARK = "probe7f3a9c51probe";
/** Marks the end of an assistant message that is continued. */
const OPEN_END = "\u{f8ff}open end\u{f8ff}";

interface Capabilities {
  /** Content is taken as text. */
  text: boolean;
  /** Content is taken as a list of parts. */
  parts: boolean;
  system: boolean;
  /** Arguments of calls are taken as an object; as JSON text otherwise. */
  objectArguments: boolean;
}

/** A chat template with everything around it: rendering a conversation, and taking answers apart. */
export class ChatFormat {
  /** The template's text, as the model carries it. */
  readonly source: string;
  readonly #template: ChatTemplate;
  readonly #now: () => Date;
  #found: Capabilities | undefined;

  /**
   * Reads a template.
   * @param source Jinja text.
   * @throws {TextError} `text.template_syntax`
   */
  constructor(source: string, options: ChatTemplateOptions) {
    this.source = source;
    this.#template = new ChatTemplate(patched(source), options);
    this.#now = options.now ?? (() => new Date());
  }

  /** Markers that the parser needs to see as text although the vocabulary has them as control tokens. */
  get preservedMarkers(): readonly string[] {
    return familyOf(this.source).preserved;
  }

  /** The prompt alone, without asking where the answer begins. Errors as `render`. */
  renderText(input: Omit<ChatRenderInput, "continueFinal">): string {
    const tools = input.tools?.length ? input.tools.map(plainTool) : undefined;
    return this.#template.render({
      messages: this.#fit(input.messages),
      ...(tools ? { tools } : {}),
      addGenerationPrompt: input.addGenerationPrompt,
      kwargs: this.#kwargs(input.kwargs ?? {}, tools ?? []),
    });
  }

  /**
   * Renders a conversation.
   * @throws {TextError} `text.template_refused` with the template's own words, `text.template_failed`.
   */
  render(input: ChatRenderInput): ChatPrompt {
    const render = (messages: readonly ChatMessage[], addGenerationPrompt: boolean) =>
      this.renderText({
        messages,
        ...(input.tools ? { tools: input.tools } : {}),
        addGenerationPrompt,
        ...(input.kwargs ? { kwargs: input.kwargs } : {}),
      });
    if (input.continueFinal) {
      // The template closes every message; the text behind the last content is cut off.
      const messages = [...input.messages];
      const last = messages[messages.length - 1];
      const content = textContent(last);
      messages[messages.length - 1] = content === "" && last.reasoning_content
        ? { ...last, reasoning_content: `${last.reasoning_content}${OPEN_END}` }
        : { ...last, content: `${content}${OPEN_END}` };
      const closed = render(messages, false);
      const end = closed.lastIndexOf(OPEN_END);
      if (end < 0) {
        throw new TextError(
          "text.cannot_continue",
          "Cannot continue the last message: the chat template does not show its text at the end of the prompt",
          { hint: "add a message of the user behind it" },
        );
      }
      return { prompt: closed.slice(0, end), generationPrompt: "" };
    }
    if (!input.addGenerationPrompt) return { prompt: render(input.messages, false), generationPrompt: "" };
    const prompt = render(input.messages, true), closed = render(input.messages, false);
    let same = 0;
    while (same < closed.length && closed[same] === prompt[same]) same++;
    return { prompt, generationPrompt: prompt.slice(same) };
  }

  /** The parser for one answer. */
  createParser(input: ParserInput): OutputParser {
    return createOutputParser({
      template: this.source,
      reasoningFormat: input.reasoningFormat,
      ...(input.tools ? { tools: input.tools } : {}),
      parallelToolCalls: input.parallelToolCalls ?? true,
      startsInReasoning: opensReasoning(this.source, input.generationPrompt),
      streaming: input.stream ?? true,
    });
  }

  /** Names that several templates use for one wish, and the variables that llama.cpp always sets. */
  #kwargs(given: Record<string, unknown>, tools: readonly unknown[]): Record<string, unknown> {
    const now = this.#now();
    const kwargs: Record<string, unknown> = {
      enable_thinking: familyOf(this.source).reasoning !== undefined,
      date_string: strftime(now, "%d %b %Y"),
      datetime: strftime(now, "%b %d %Y"),
    };
    // Firefunction reads the tools under this name, as JSON text. Templates that read `tools` may mistake it.
    if (!/\btools\b/.test(this.source)) {
      const plain = tools.map((tool) => (tool as { function?: unknown }).function ?? tool);
      kwargs.functions = plain.length > 0 ? JSON.stringify(plain, null, 4) : "";
    }
    // Reasoning of earlier turns stays in the prompt, as in llama.cpp, so that the cache of those turns can be reused.
    const keep = typeof given.preserve_reasoning === "boolean" ? given.preserve_reasoning : true;
    Object.assign(kwargs, {
      preserve_thinking: keep,
      clear_thinking: !keep,
      truncate_history_thinking: !keep,
      drop_thinking: !keep,
    });
    if (typeof given.reasoning_effort === "string") kwargs.reasoning_strength = given.reasoning_effort;
    return mergeJson(kwargs, given);
  }

  #can(): Capabilities {
    if (this.#found) return this.#found;
    const user: ChatMessage = { role: "user", content: "x" };
    const shows = (messages: ChatMessage[], tools?: unknown[]) => this.#probe(messages, tools)?.includes(MARK) ?? false;
    const text = shows([{ role: "user", content: MARK }]);
    const listed = this.#probe([{ role: "user", content: [{ type: "text", text: MARK }] }]);
    // A template of text prints the list itself, as Python or as JSON.
    const parts = (listed?.includes(MARK) ?? false) && !/text['"]: *['"]probe/.test(listed!);
    const fitted = (m: ChatMessage): ChatMessage => parts && !text ? asParts(m) : m;
    // Without a system role a template refuses the message, or leaves it out.
    const system = shows([fitted({ role: "system", content: MARK }), fitted(user)]) ||
      this.#probe([fitted(user)]) === undefined;
    const call = (args: unknown): ChatMessage[] => [
      fitted(user),
      {
        role: "assistant",
        content: "",
        tool_calls: [{ id: "123456789", type: "function", function: { name: "probe", arguments: args } }],
      },
      { role: "tool", content: "x", tool_call_id: "123456789", name: "probe" },
    ];
    const tools = [{ type: "function", function: { name: "probe", description: "", parameters: {} } }];
    const asObject = this.#probe(call({ key: MARK }), tools);
    const asText = this.#probe(call(JSON.stringify({ key: MARK })), tools);
    const objectArguments = asObject !== undefined && asObject.includes(MARK) && !asObject.includes("'key'") ||
      !(asText?.includes(MARK) ?? false);
    return this.#found = { text, parts, system, objectArguments };
  }

  #probe(messages: ChatMessage[], tools?: unknown[]): string | undefined {
    try {
      return this.#template.render({ messages, ...(tools ? { tools } : {}), addGenerationPrompt: true });
    } catch {
      return undefined;
    }
  }

  /** Messages as this template takes them. */
  #fit(given: readonly ChatMessage[]): ChatMessage[] {
    let messages: ChatMessage[] = given.map((m) => ({ ...m }));
    if (messages[0]?.role === "system" && !this.#can().system) messages = mergeSystem(messages);
    if (this.source.includes("You have access to the following functions in JSONSchema format")) {
      for (const m of messages) trimTexts(m);
    }
    for (const m of messages) {
      if (m.role !== "assistant") continue;
      if (this.source.includes("<|channel|>") && m.reasoning_content) {
        m.thinking = m.reasoning_content;
        if (m.tool_calls?.length) delete m.content; // gpt-oss takes one of the two beside a call
      }
      if (m.reasoning_content && this.source.includes("block['type'] == 'thinking'")) {
        const rest: ContentPart[] = Array.isArray(m.content)
          ? m.content
          : m.content
          ? [{ type: "text", text: m.content }]
          : [];
        m.content = [{ type: "thinking", thinking: m.reasoning_content }, ...rest];
      }
      if (m.tool_calls?.length) {
        const asText = !this.#can().objectArguments;
        m.tool_calls = m.tool_calls.map((c) => ({
          ...c,
          type: c.type ?? "function",
          function: {
            ...c.function,
            arguments: asText && typeof c.function.arguments !== "string"
              ? writeJson(c.function.arguments)
              : c.function.arguments,
          },
        }));
      }
    }
    if (readsToolResponses(this.source)) messages = withToolResponses(messages);
    const { text, parts } = this.#can();
    if (!parts) {
      return messages.map((m) => Array.isArray(m.content) && !hasThinking(m) ? { ...m, content: textContent(m) } : m);
    }
    return text ? messages : messages.map(asParts);
  }
}

/** Whether the text leaves a reasoning block of the template's family open. */
export function opensReasoning(template: string, generationPrompt: string): boolean {
  const tags = familyOf(template).reasoning;
  return tags !== undefined && generationPrompt.lastIndexOf(tags.start) > generationPrompt.lastIndexOf(tags.end);
}

/** Switches off guards that refuse what agents legitimately send back, as llama.cpp does. */
function patched(source: string): string {
  return source
    .replace(
      /if "<\|channel\|>analysis<\|message\|>" in message\.(content|thinking) or "<\|channel\|>final<\|message\|>" in message\.\1/g,
      "if false",
    )
    .replace(
      /if \(message\['content'\] is none or [^%]*?and \(message\['tool_calls'\] is not defined or [^%]*?(?=\s*-?%\}\s*\{\{-?\s*raise_exception\('Assistant message must have)/,
      "if false",
    );
}

function plainTool(tool: unknown): unknown {
  const f = (tool as { function?: Record<string, unknown> })?.function;
  if (!f) return tool;
  const { name, description, parameters } = f;
  return { type: "function", function: { name, description: description ?? "", parameters: parameters ?? {} } };
}

/** Older templates of Gemma 4 read results within the calling message and ignore messages of role tool. */
function readsToolResponses(source: string): boolean {
  return source.includes("message['tool_responses']") && !/\['role'\] [!=]= 'tool'/.test(source);
}

function hasThinking(m: ChatMessage): boolean {
  return Array.isArray(m.content) && m.content.some((part) => part.type === "thinking");
}

export function textContent(m: ChatMessage): string {
  return Array.isArray(m.content) ? m.content.map((p) => p.text ?? "").join("\n") : m.content ?? "";
}

function asParts(m: ChatMessage): ChatMessage {
  return typeof m.content === "string" ? { ...m, content: [{ type: "text", text: m.content }] } : m;
}

/** The first system message joins the next one; alone it is dropped. */
function mergeSystem([system, next, ...rest]: ChatMessage[]): ChatMessage[] {
  return next ? [{ ...next, content: `${textContent(system)}\n${textContent(next)}` }, ...rest] : [];
}

function trimTexts(m: ChatMessage): void {
  if (typeof m.content === "string") m.content = m.content.trim();
  if (typeof m.reasoning_content === "string") m.reasoning_content = m.reasoning_content.trim();
}
