/**
 * A chat template as the server uses it: rendering, the parser that fits its answers, and what of a model's markup must
 * reach that parser.
 * @module
 */
import { ChatFormat as ModelFormat } from "../core/chat/format.ts";
import { createOutputParser } from "../core/chat/reasoning.ts";
import type { ChatTemplateOptions } from "../core/chat/template.ts";
import { detectFamily, preservedMarkers } from "../core/chat/tool_calls/detect.ts";
import type { ChatFormat, ChatInput, Tokenizer } from "./model.ts";

/**
 * @param source The template's Jinja text.
 * @throws TextError `text.template_syntax`
 */
export function chatFormat(source: string, options: ChatTemplateOptions, tokenizer: Tokenizer): ChatFormat {
  const template = new ModelFormat(source, options);
  const family = detectFamily(source);
  const tags = family === "harmony" ? undefined : family.reasoning;
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
    preservedTokens: new Set(
      preservedMarkers(source).flatMap((marker) => {
        const ids = tokenizer.encode(marker, { addSpecial: false, parseSpecial: true });
        return ids.length === 1 ? [ids[0]] : [];
      }),
    ),
    stops: family === "harmony" ? [] : family.stops ?? [],
  };
}

/** Stands for the end of an assistant message that goes on; no text of a conversation holds it. */
const OPEN_END = "\u{f8ff}open end\u{f8ff}";

type Tags = { start: string; end: string } | undefined;

function render(template: ModelFormat, input: ChatInput, tags: Tags): { prompt: string; inReasoning: boolean } {
  const args = {
    ...(input.tools === undefined ? {} : { tools: input.tools }),
    kwargs: input.kwargs,
  };
  if (input.continueFinal) {
    // The template closes every message. What it writes from the end of the last content on is cut away.
    const messages = [...input.messages];
    const last = messages[messages.length - 1];
    const content = String(last.content);
    messages[messages.length - 1] = { ...last, content: content + OPEN_END };
    const closed = template.renderText({ ...args, messages: messages as never, addGenerationPrompt: false });
    const inReasoning = tags !== undefined && content.lastIndexOf(tags.start) > content.lastIndexOf(tags.end);
    return { prompt: closed.slice(0, closed.lastIndexOf(OPEN_END)), inReasoning };
  }
  const { addGenerationPrompt } = input;
  const prompt = template.renderText({ ...args, messages: input.messages as never, addGenerationPrompt });
  return { prompt, inReasoning: tags !== undefined && prompt.trimEnd().endsWith(tags.start.trim()) };
}
