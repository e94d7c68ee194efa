/**
 * A chat template as the server uses it: rendering, the parser that fits its answers, and what of a model's markup must
 * reach that parser.
 * @module
 */
import { ChatFormat as ModelFormat, textContent } from "../core/chat/format.ts";
import { createOutputParser } from "../core/chat/reasoning.ts";
import type { ChatMessage, ChatTemplateOptions } from "../core/chat/template.ts";
import { familyOf } from "../core/chat/tool_calls/families.ts";
import { callRules } from "../core/chat/tool_calls/form.ts";
import type { ChatFormat, ChatInput, Tokenizer } from "./model.ts";

/**
 * @param source The template's Jinja text.
 * @throws TextError `text.template_syntax`
 */
export function chatFormat(source: string, options: ChatTemplateOptions, tokenizer: Tokenizer): ChatFormat {
  const template = new ModelFormat(source, options);
  const family = familyOf(source);
  const tags = family.reasoning;
  const form = family.form?.(source);
  return {
    source,
    render: (input) => render(template, input, tags),
    createParser: ({ reasoningFormat, tools, parallelToolCalls, inReasoning, stream }) =>
      createOutputParser({
        template: source,
        reasoningFormat,
        ...(tools === undefined ? {} : { tools }),
        parallelToolCalls,
        startsInReasoning: inReasoning,
        streaming: stream,
      }),
    callTriggers: form === undefined ? [] : family.triggers ?? family.starts,
    callEndsReasoning: family.callEndsReasoning ?? false,
    callRules: (tools, many) => form && callRules(form, tools, many),
    reasoningTags: tags,
    preservedTokens: new Set(
      family.preserved.flatMap((marker) => {
        const ids = tokenizer.encode(marker, { addSpecial: false, parseSpecial: true });
        return ids.length === 1 ? [ids[0]] : [];
      }),
    ),
    stops: family.stops ?? [],
  };
}

type Tags = { start: string; end: string } | undefined;

function render(template: ModelFormat, input: ChatInput, tags: Tags): { prompt: string; inReasoning: boolean } {
  const messages = input.messages as unknown as ChatMessage[];
  const args = { ...input, messages };
  if (input.continueFinal) {
    const content = textContent(messages.at(-1)!);
    const inReasoning = tags !== undefined && content.lastIndexOf(tags.start) > content.lastIndexOf(tags.end);
    return { prompt: template.render(args).prompt, inReasoning };
  }
  // Only the end of the prompt matters, which one rendering shows.
  const prompt = template.renderText(args);
  return { prompt, inReasoning: tags !== undefined && prompt.trimEnd().endsWith(tags.start.trim()) };
}
