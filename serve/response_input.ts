/**
 * Items of a Responses request to the messages of a conversation: reasoning, the message and the calls of one turn of the
 * assistant are one message there.
 * @module
 */
import { badRequest, unsupported } from "./errors.ts";

/** A message as chat requests have it. */
export type StoredMessage = Record<string, unknown>;
type InputItem = Record<string, unknown> & { type?: string | undefined };

interface Turn {
  role: "assistant";
  content: string;
  reasoning_content?: string;
  tool_calls?: unknown[];
}

/** @throws ApiError 400 naming the item at fault. */
export function inputMessages(input: string | InputItem[]): StoredMessage[] {
  if (typeof input === "string") return [{ role: "user", content: input }];
  const out: StoredMessage[] = [];
  let turn: Turn | undefined;
  const close = () => {
    if (turn !== undefined) out.push({ ...turn });
    turn = undefined;
  };
  const open = () => turn ??= { role: "assistant", content: "" };
  input.forEach((item, i) => {
    const param = `input[${i}]`;
    switch (item.type ?? "message") {
      case "reasoning":
        if (turn?.content || turn?.tool_calls) close();
        open().reasoning_content = (turn?.reasoning_content ?? "") + reasoningText(item, param);
        break;
      case "message": {
        const { role } = item;
        if (typeof role !== "string" || role === "") {
          throw badRequest(`${param}.role: expected the name of a role`, `${param}.role`);
        }
        const content = textOf(item.content, `${param}.content`);
        if (role !== "assistant") {
          close();
          out.push({ role, content });
          break;
        }
        if (turn?.content || turn?.tool_calls) close();
        open().content = content;
        break;
      }
      case "function_call": {
        const name = stringOf(item.name, `${param}.name`);
        const calls = open().tool_calls ??= [];
        calls.push({
          id: stringOf(item.call_id, `${param}.call_id`),
          type: "function",
          function: { name, arguments: stringOf(item.arguments, `${param}.arguments`) },
        });
        break;
      }
      case "function_call_output":
        close();
        out.push({
          role: "tool",
          tool_call_id: stringOf(item.call_id, `${param}.call_id`),
          content: textOf(item.output, `${param}.output`),
        });
        break;
      default:
        throw unsupported(`${param}.type`, `this server reads no items of type "${item.type}"`);
    }
  });
  close();
  return out;
}

function stringOf(value: unknown, param: string): string {
  if (typeof value === "string") return value;
  throw badRequest(`${param}: expected a string`, param);
}

/** A text, or the text of parts. */
function textOf(content: unknown, param: string): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw badRequest(`${param}: expected a string or an array of parts`, param);
  return content.map((part, j) => {
    const { type, text, refusal } = part ?? {};
    if (type === "refusal") return stringOf(refusal, `${param}[${j}].refusal`);
    if (type !== "input_text" && type !== "output_text" && type !== "text") {
      throw unsupported(`${param}[${j}]`, `this model reads text only, found a part of type ${JSON.stringify(type)}`);
    }
    return stringOf(text, `${param}[${j}].text`);
  }).join("");
}

/** The reasoning itself, else its summary; what is encrypted is another server's. */
function reasoningText({ content, summary }: InputItem, param: string): string {
  const parts = Array.isArray(content) && content.length > 0 ? content : Array.isArray(summary) ? summary : [];
  return parts.map((part, j) => stringOf(part?.text, `${param}.content[${j}].text`)).join("\n");
}
