/**
 * Messages of a conversation, in OpenAI's shape.
 * @module
 */

export interface ContentPart {
  type: string;
  text?: string;
  [field: string]: unknown;
}

export interface ToolCall {
  id?: string;
  type?: string;
  function: {
    name: string;
    /** JSON text as clients send it, or the parsed object, which most templates want. */
    arguments: unknown;
  };
}

export interface ChatMessage {
  role: string;
  content?: string | ContentPart[] | null;
  reasoning_content?: string | null;
  tool_calls?: ToolCall[] | null;
  /** Name of the function whose result a `tool` message carries. */
  name?: string;
  tool_call_id?: string;
  [field: string]: unknown;
}
