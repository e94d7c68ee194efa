/**
 * What the page knows of a conversation. Its messages are a tree: a retried answer is a sibling of the first one.
 * @module
 */

/** Sampler and request settings; what is left out is the server's default. */
export interface Settings {
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  max_tokens?: number;
  repeat_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  seed?: number;
  /** Whether the model is to reason; left out, its template decides. */
  reasoning?: "on" | "off";
  reasoning_budget_tokens?: number;
  /** Rivals of each token to ask for; 0 or absent, no probabilities. */
  n_probs?: number;
  /** JSON text of OpenAI tools. */
  tools?: string;
  /** JSON text of an object with further fields of the request. */
  extra?: string;
}

/** A conversation. */
export interface Chat {
  readonly id: string;
  title: string;
  /** The user gave it the title. */
  named?: boolean;
  readonly created: number;
  updated: number;
  system: string;
  settings: Settings;
  /** The last message of the branch that is shown. */
  leaf: string | null;
}

/** A file that was read as text. */
export interface TextFile {
  name: string;
  text: string;
}

/** A call of a tool. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

/** A token that could have stood at a place. */
export interface Rival {
  id: number;
  /** Bytes of its text. */
  bytes: number[];
  logprob: number;
}

/** A token of an answer, with its rivals. */
export interface TokenRecord extends Rival {
  top: Rival[];
}

/** How fast an answer came. */
export interface Stats {
  n_prompt: number;
  n_cached: number;
  n_predicted: number;
  /** Tokens a second. */
  prompt_rate: number;
  predicted_rate: number;
}

/**
 * `running`: it is being generated, here or in another window. `cut`: the connection was lost and the server no longer has the rest.
 */
export type Status = "done" | "running" | "stopped" | "failed" | "cut";

/** A message. */
export interface Message {
  readonly id: string;
  readonly chat: string;
  readonly parent: string | null;
  readonly role: "user" | "assistant" | "tool";
  readonly created: number;
  content: string;
  reasoning: string;
  calls: ToolCall[];
  /** Of a tool's message: the call that it answers. */
  call?: string;
  files: TextFile[];
  status: Status;
  /** What went wrong, for people. */
  error?: string;
  /** `length` where the limit of tokens ended it. */
  finish?: string;
  tokens?: TokenRecord[];
  stats?: Stats;
  model?: string;
  /** What the answer began with when its generation started; a resumed stream is added to it. */
  start?: { content: string; reasoning: string; n_tokens: number };
  /** The stream's name at the server while it runs. */
  stream?: string;
}
