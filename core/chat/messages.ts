/**
 * Messages of a conversation, in OpenAI's shape.
 * @module
 */

/** A part of a message's content. */
export interface ContentPart {
  /** `text`, or a kind that only some templates know. */
  type: string;
  /** Of a `text` part. */
  text?: string;
  /** What templates read besides. */
  [field: string]: unknown;
}

/** A function that the assistant wants to be called. */
export interface ToolCall {
  /** Names the call, for the message that carries its result. */
  id?: string;
  /** `function`. */
  type?: string;
  /** Which one, with what. */
  function: {
    name: string;
    /** JSON text as clients send it, or the parsed object, which most templates want. */
    arguments: unknown;
  };
}

/** A message of a conversation. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, `tool` or what the template knows. */
  role: string;
  /** Text, or parts. */
  content?: string | ContentPart[] | null;
  /** The assistant's reasoning, where the template writes it. */
  reasoning_content?: string | null;
  /** Calls that the assistant made. */
  tool_calls?: ToolCall[] | null;
  /** Name of the function whose result a `tool` message carries. */
  name?: string;
  /** Names the call whose result a `tool` message carries. */
  tool_call_id?: string;
  /** What templates read besides. */
  [field: string]: unknown;
}
