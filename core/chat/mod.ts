/**
 * Chatting: templates, messages as a model takes them, and answers taken apart as they stream.
 * @module
 */
export { ChatFormat, opensReasoning } from "./format.ts";
export type { ChatPrompt, ChatRenderInput, ParserInput } from "./format.ts";
export type { ChatMessage, ContentPart, ToolCall } from "./messages.ts";
export { createOutputParser } from "./reasoning.ts";
export type { Delta, OutputParser, OutputParserOptions, Place, ReasoningFormat, Where } from "./reasoning.ts";
export { StopMatcher } from "./stop.ts";
export { ChatTemplate } from "./template.ts";
export type { ChatTemplateOptions, RenderArgs } from "./template.ts";
export { familyOf } from "./tool_calls/families.ts";
