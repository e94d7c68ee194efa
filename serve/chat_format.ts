/**
 * A chat template as the server uses it: it renders prompts, makes parsers and trackers of answers, and knows which control
 * tokens these must see.
 * @module
 */
import { ChatFormat as ModelFormat, textContent } from "../core/chat/format.ts";
import { createOutputParser, splitsReasoning } from "../core/chat/reasoning.ts";
import type { ChatMessage, ChatTemplateOptions } from "../core/chat/template.ts";
import { familyOf, speaksOfReasoning } from "../core/chat/tool_calls/families.ts";
import { callRules } from "../core/chat/tool_calls/form.ts";
import { AnswerTracker } from "../core/chat/tracker.ts";
import type { ChatFormat, ChatInput, ParserInput, RenderedChat, Tokenizer } from "./model.ts";

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
      family.preserved.flatMap((marker) => {
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
    const content = textContent(messages.at(-1)!);
    const inReasoning = tags !== undefined && content.lastIndexOf(tags.start) > content.lastIndexOf(tags.end);
    return { prompt: template.render(args).prompt, inReasoning, mayReason: false };
  }
  // Only the end of the prompt matters, which one rendering shows.
  const prompt = template.renderText(args), end = prompt.trimEnd();
  const inReasoning = tags !== undefined && end.endsWith(tags.start.trim());
  const mayReason = tags !== undefined && !inReasoning && !end.endsWith(tags.end.trim()) &&
    input.kwargs.enable_thinking !== false && speaksOfReasoning(template.source);
  return { prompt, inReasoning, mayReason };
}
