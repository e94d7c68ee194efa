/**
 * The body of a chat request, from the branch that is shown and the settings.
 * @module
 */
import type { Chat, Message, Settings } from "./types.ts";

/** A setting that cannot be sent, in words for people. */
export class SettingError extends Error {}

const NUMBERS = [
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "max_tokens",
  "repeat_penalty",
  "presence_penalty",
  "frequency_penalty",
  "seed",
  "reasoning_budget_tokens",
] as const;

/**
 * @param path The messages before the answer; where `prefill` is given, the answer goes on from it.
 * @throws {SettingError} for tools or further fields that are no JSON
 */
export function requestBody(
  chat: Pick<Chat, "system" | "settings">,
  path: readonly Message[],
  options: { model?: string | undefined; prefill?: { content: string; reasoning: string } | undefined } = {},
): Record<string, unknown> {
  const { settings } = chat, { prefill, model } = options;
  const messages: object[] = [];
  if (chat.system.trim() !== "") messages.push({ role: "system", content: chat.system });
  for (const message of path) messages.push(...wire(message));
  if (prefill !== undefined) {
    messages.push({
      role: "assistant",
      content: prefill.content,
      ...(prefill.reasoning === "" ? {} : { reasoning_content: prefill.reasoning }),
    });
  }
  const tools = settings.tools?.trim() ? parsed(settings.tools, "Tools", Array.isArray) : undefined;
  return {
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...(model === undefined ? {} : { model }),
    ...Object.fromEntries(NUMBERS.flatMap((name) => settings[name] === undefined ? [] : [[name, settings[name]]])),
    ...(settings.reasoning === undefined
      ? {}
      : { chat_template_kwargs: { enable_thinking: settings.reasoning === "on" } }),
    ...(settings.n_probs ? { logprobs: true, top_logprobs: settings.n_probs } : {}),
    ...(tools === undefined ? {} : { tools }),
    ...extraFields(settings),
  };
}

function extraFields(settings: Settings): object {
  if (!settings.extra?.trim()) return {};
  const isObject = (v: unknown) => typeof v === "object" && v !== null && !Array.isArray(v);
  return parsed(settings.extra, "Further fields", isObject) as object;
}

function parsed(text: string, what: string, fits: (value: unknown) => boolean): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new SettingError(`${what} in the settings: not JSON (${(cause as Error).message})`);
  }
  if (fits(value)) return value;
  throw new SettingError(`${what} in the settings: expected ${what === "Tools" ? "an array" : "an object"}`);
}

/** A message as the server takes it. */
function wire(message: Message): object[] {
  switch (message.role) {
    case "user":
      return [{ role: "user", content: withFiles(message) }];
    case "tool":
      return [{ role: "tool", tool_call_id: message.call, content: message.content }];
    case "assistant":
      return [{
        role: "assistant",
        content: message.content,
        ...(message.reasoning === "" ? {} : { reasoning_content: message.reasoning }),
        ...(message.calls.length === 0 ? {} : {
          tool_calls: message.calls.map((call) => ({
            id: call.id,
            type: "function",
            function: { name: call.name, arguments: call.arguments },
          })),
        }),
      }];
  }
}

/** Files stand before the text, each in a fence that is longer than any in the file. */
export function withFiles({ content, files }: Pick<Message, "content" | "files">): string {
  const shown = files.map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((marks) => marks.length));
    const fence = "`".repeat(longest + 1);
    return `${name}\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}\n\n`;
  });
  return shown.join("") + content;
}
