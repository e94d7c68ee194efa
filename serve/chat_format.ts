/**
 * A chat template as the server uses it: rendering with the generation prompt told apart, and the parser that fits.
 * @module
 */
import { ChatTemplate, type ChatTemplateOptions } from "../core/chat/template.ts";
import type { ChatFormat, ChatInput } from "./model.ts";

/**
 * @param source The template's Jinja text.
 * @throws TextError `text.template_syntax`
 */
export function chatFormat(source: string, options: ChatTemplateOptions): ChatFormat {
  const template = new ChatTemplate(source, options);
  return {
    source,
    render: (input) => render(template, input),
    createParser: () => ({ push: (text) => [{ content: text }], finish: () => [] }),
    preservedTokens: new Set(),
    stops: [],
  };
}

/** Stands for the end of an assistant message that goes on; no text of a conversation holds it. */
const OPEN_END = "\u{f8ff}open end\u{f8ff}";

function render(template: ChatTemplate, input: ChatInput): { prompt: string; generationPrompt: string } {
  const args = {
    messages: input.messages as never,
    ...(input.tools === undefined ? {} : { tools: input.tools }),
    kwargs: input.kwargs,
  };
  if (input.continueFinal) {
    // The template closes every message. What it writes from the end of the last content on is cut away.
    const messages = [...input.messages];
    const last = messages[messages.length - 1];
    messages[messages.length - 1] = { ...last, content: `${last.content}${OPEN_END}` };
    const closed = template.render({ ...args, messages: messages as never });
    return { prompt: closed.slice(0, closed.lastIndexOf(OPEN_END)), generationPrompt: "" };
  }
  if (!input.addGenerationPrompt) return { prompt: template.render(args), generationPrompt: "" };
  const prompt = template.render({ ...args, addGenerationPrompt: true });
  const closed = template.render(args);
  let same = 0;
  while (same < closed.length && closed[same] === prompt[same]) same++;
  return { prompt, generationPrompt: prompt.slice(same) };
}
