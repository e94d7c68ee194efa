/**
 * What conversations can hold with a chat template and with what the server does for it, found by rendering small ones: /props tells
 * clients.
 * @module
 */
import type { ChatFormat, ChatInput } from "./chat_format.ts";

const MARK = "zq7mark";
const TOOL = {
  type: "function",
  function: { name: MARK, description: "", parameters: { type: "object", properties: {} } },
};

const call = (name: string, args: unknown) => ({
  type: "function",
  id: "123456789",
  function: { name, arguments: args },
});
const user = { role: "user", content: "x" };

/** llama-server's names. */
export function templateCaps(chat: Pick<ChatFormat, "render">): Record<string, boolean> {
  const render = (messages: ChatInput["messages"], more: Partial<ChatInput> = {}): string => {
    try {
      return chat.render({ messages, addGenerationPrompt: false, continueFinal: false, kwargs: {}, ...more }).prompt;
    } catch { // refused by the template
      return "";
    }
  };
  const shows = (messages: ChatInput["messages"], more: Partial<ChatInput> = {}) =>
    render(messages, more).includes(MARK);
  const called = (
    ...calls: unknown[]
  ) => [user, { role: "assistant", content: "", tool_calls: calls }, ...calls.map(answer)];
  const answer = () => ({ role: "tool", tool_call_id: "123456789", name: "f", content: "x" });
  const tools = [TOOL];
  const effort = (reasoning_effort: string) =>
    render([user], { addGenerationPrompt: true, kwargs: { reasoning_effort, enable_thinking: true } });
  return {
    supports_string_content: shows([{ ...user, content: MARK }]),
    supports_typed_content: shows([{ ...user, content: [{ type: "text", text: MARK }] }]),
    supports_system_role: shows([{ role: "system", content: MARK }, user]),
    supports_tools: shows([user], { tools }),
    supports_tool_calls: shows(called(call(MARK, {})), {
      tools: [{ ...TOOL, function: { ...TOOL.function, name: "f" } }],
    }),
    supports_parallel_tool_calls: shows(called(call("f", {}), call(MARK, {}))),
    supports_object_arguments: shows(called(call("f", { a: MARK }))),
    supports_preserve_reasoning: shows([user, { role: "assistant", content: "y", reasoning_content: MARK }, user]),
    supports_reasoning_effort: effort("low") !== effort("high"),
  };
}
