/**
 * A chat template as the server uses it: it renders prompts, makes parsers and trackers of answers, and knows which control
 * tokens these must see.
 * @module
 */
import { ChatFormat as ModelFormat, textContent } from "../core/chat/format.ts";
import {
  createOutputParser,
  type OutputParser,
  type ReasoningFormat,
  splitsReasoning,
} from "../core/chat/reasoning.ts";
import type { ChatMessage, ChatTemplateOptions } from "../core/chat/template.ts";
import { familyOf, speaksOfReasoning } from "../core/chat/tool_calls/families.ts";
import { callRules } from "../core/chat/tool_calls/form.ts";
import { AnswerTracker } from "../core/chat/tracker.ts";
import type { Rules } from "../core/sampling/grammar/expr.ts";
import type { Tokenizer } from "./tokenizer.ts";

export const REASONING_FORMATS = [
  "none",
  "auto",
  "deepseek",
  "deepseek-legacy",
] as const satisfies readonly ReasoningFormat[];

/** A conversation as the template sees it. */
export interface ChatInput {
  messages: Record<string, unknown>[];
  tools?: unknown[];
  addGenerationPrompt: boolean;
  /** Goes on with the last message instead of opening a new one. */
  continueFinal: boolean;
  kwargs: Record<string, unknown>;
}

/** How one answer is read back. */
export interface ParserInput {
  reasoningFormat: ReasoningFormat;
  /** `deepseek-legacy` differs in streams. */
  stream: boolean;
  /** The tools of the request; none: nothing is read as a call. */
  tools?: unknown[];
  parallelToolCalls: boolean;
  /** The prompt's end opened a reasoning block, as `render` said. */
  inReasoning: boolean;
}

/** A prompt, and what its end says of reasoning. */
export interface RenderedChat {
  prompt: string;
  /** The prompt's end opened a reasoning block. */
  inReasoning: boolean;
  /** The answer may open one: the family has such, its template speaks of it, and the prompt has not closed it. */
  mayReason: boolean;
}

/** The model's chat template and the reading of its answers. */
export interface ChatFormat {
  /** The template's source. */
  readonly source: string;
  /** Name of the family that its answers are read as. */
  readonly family: string;
  /** @throws TextError `text.template_refused` with the template's own words. */
  render(input: ChatInput): RenderedChat;
  createParser(input: ParserInput): OutputParser;
  /** Follows an answer while it is generated. */
  createTracker(input: ParserInput): AnswerTracker;
  /**
   * The grammar of an answer that is a call of one of the tools, or several where `many`; undefined where calls of this
   * family cannot be put in one.
   * @throws TextError for parameters of a tool that cannot be compiled.
   */
  callRules(tools: readonly unknown[], many: boolean): Rules | undefined;
  /** Texts that a call begins with; none where calls have no form. */
  readonly callTriggers: readonly string[];
  /** Tags around the reasoning of this family, where it has such. */
  readonly reasoningTags: { start: string; end: string } | undefined;
  /** Control tokens whose text the parser needs. */
  readonly preservedTokens: ReadonlySet<number>;
  /** Strings that end an answer besides the end-of-generation ids. */
  readonly stops: readonly string[];
}

/**
 * @param source The template's Jinja text.
 * @throws TextError `text.template_syntax`
 */
export function chatFormat(source: string, options: ChatTemplateOptions, tokenizer: Tokenizer): ChatFormat {
  const template = new ModelFormat(source, options);
  const family = familyOf(source);
  const form = family.form?.(source);
  const createParser = ({ reasoningFormat, tools, parallelToolCalls, inReasoning, stream }: ParserInput) =>
    createOutputParser({
      template: source,
      reasoningFormat,
      ...(tools === undefined ? {} : { tools }),
      parallelToolCalls,
      startsInReasoning: inReasoning,
      streaming: stream,
    });
  return {
    source,
    family: family.name,
    render: (input) => render(template, input),
    createParser,
    createTracker: (input) =>
      new AnswerTracker({
        parser: createParser(input),
        splitsReasoning: splitsReasoning(input.reasoningFormat, input.stream),
      }),
    callTriggers: form === undefined ? [] : family.triggers ?? family.starts,
    callRules: (tools, many) => form && callRules(form, tools, many),
    reasoningTags: family.reasoning,
    preservedTokens: new Set(
      (tokenizer.byIds ? [] : family.preserved).flatMap((marker) => {
        const ids = tokenizer.encode(marker, { addSpecial: false, parseSpecial: true });
        return ids.length === 1 ? [ids[0]] : [];
      }),
    ),
    stops: family.stops ?? [],
  };
}

/** Renders a conversation and looks at the end of the prompt. */
function render(template: ModelFormat, input: ChatInput): RenderedChat {
  const messages = input.messages as unknown as ChatMessage[];
  const args = { ...input, messages };
  const tags = familyOf(template.source).reasoning;
  if (input.continueFinal) {
    const last = messages.at(-1)!, content = textContent(last);
    const inReasoning = tags !== undefined &&
      (content === "" && !!last.reasoning_content || content.lastIndexOf(tags.start) > content.lastIndexOf(tags.end));
    return { prompt: template.render(args).prompt, inReasoning, mayReason: false };
  }
  // Only the end of the prompt matters, which one rendering shows.
  const prompt = template.renderText(args), end = prompt.trimEnd();
  const inReasoning = tags !== undefined && end.endsWith(tags.start.trim());
  const mayReason = tags !== undefined && !inReasoning && !end.endsWith(tags.end.trim()) &&
    input.kwargs.enable_thinking !== false && speaksOfReasoning(template.source);
  return { prompt, inReasoning, mayReason };
}
