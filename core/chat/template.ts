/**
 * Chat templates: a conversation to the text that a model was trained on.
 * @module
 */
import { TextError } from "../errors.ts";
import { evaluateTemplate } from "./jinja/evaluate.ts";
import { isFilter, isTest } from "./jinja/filters.ts";
import { strftime } from "./jinja/methods.ts";
import { type Node, parse, TemplateSyntaxError } from "./jinja/parse.ts";
import { str, TemplateFailure, TemplateRefusal, toValue, type Value } from "./jinja/values.ts";
import type { ChatMessage } from "./messages.ts";

export type { ChatMessage, ContentPart, ToolCall } from "./messages.ts";

export interface ChatTemplateOptions {
  /** Text of the beginning-of-sequence token, "" where the vocabulary has none. */
  bosToken: string;
  eosToken: string;
  /** The clock that `strftime_now` and `date_string` show. */
  now?: () => Date;
  /** What error messages call the template: a file or a model. */
  name?: string;
}

/** What a template renders. */
export interface RenderArgs {
  /** Oldest first. */
  messages: ChatMessage[];
  /** OpenAI tools; an empty list counts as none. */
  tools?: unknown[];
  /** Ends with what opens the assistant's answer; no where left out. */
  addGenerationPrompt?: boolean;
  /** Further variables (`enable_thinking`, `reasoning_effort`, ...); they win over the built-in ones. */
  kwargs?: Record<string, unknown>;
}

/**
 * A parsed chat template.
 *
 * @example
 * ```ts
 * import { ChatTemplate } from "./template.ts";
 * const t = new ChatTemplate("{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}", {
 *   bosToken: "<s>",
 *   eosToken: "</s>",
 * });
 * t.render({ messages: [{ role: "user", content: "Hi" }] }); // "<s>[user] Hi"
 * ```
 */
export class ChatTemplate {
  /** The Jinja text, as given. */
  readonly source: string;
  readonly #name: string;
  readonly #tree: Node;
  readonly #options: ChatTemplateOptions;

  /**
   * Reads a template.
   * @param source Jinja text.
   * @throws {TextError} `text.template_syntax` naming the line, on bad syntax and unknown filters or tests.
   */
  constructor(source: string, options: ChatTemplateOptions) {
    this.source = source;
    this.#options = options;
    this.#name = options.name ?? "chat template";
    try {
      this.#tree = parse(source, { filter: isFilter, test: isTest });
    } catch (e) {
      if (!(e instanceof TemplateSyntaxError) && !(e instanceof RangeError)) throw e;
      const line = e instanceof TemplateSyntaxError ? e.line : 1;
      const why = e instanceof TemplateSyntaxError ? e.message : "it is nested too deeply";
      throw new TextError("text.template_syntax", `Cannot parse ${this.#name}, line ${line}: ${why}`, {
        at: { template: this.#name, line },
        hint: "give a corrected template with --chat-template-file",
        cause: e,
      });
    }
  }

  /**
   * Renders a conversation.
   * @throws {TextError} `text.template_refused` with the template's own words when it calls `raise_exception`;
   * `text.template_failed` when it cannot be evaluated for this conversation.
   */
  render(args: RenderArgs): string {
    const now = (this.#options.now ?? (() => new Date()))();
    const variables = new Map<string, Value>([
      ["messages", toValue(args.messages)],
      // transformers passes None, not undefined, where there are none.
      ["tools", args.tools?.length ? toValue(args.tools) : null],
      ["documents", null],
      ["bos_token", this.#options.bosToken],
      ["eos_token", this.#options.eosToken],
      ["add_generation_prompt", args.addGenerationPrompt ?? false],
      ["raise_exception", ([words]) => {
        throw new TemplateRefusal(words === undefined ? "" : str(words));
      }],
      ["strftime_now", ([format]) => strftime(now, format === undefined ? "%c" : str(format))],
    ]);
    for (const [name, v] of toValue(args.kwargs ?? {}) as Map<string, Value>) variables.set(name, v);
    try {
      return evaluateTemplate(this.#tree, variables);
    } catch (e) {
      if (e instanceof TemplateRefusal) {
        throw new TextError("text.template_refused", e.message, {
          at: { template: this.#name },
          hint: "the model's chat template does not take this conversation; change the order or the roles of messages",
          cause: e,
        });
      }
      if (e instanceof TemplateFailure || e instanceof RangeError) {
        const why = e instanceof TemplateFailure ? e.message : "recursion is too deep";
        throw new TextError("text.template_failed", `Cannot render ${this.#name}: ${why}`, {
          at: { template: this.#name },
          hint: "the conversation lacks something that the template reads, or the template is broken",
          cause: e,
        });
      }
      throw e;
    }
  }
}
