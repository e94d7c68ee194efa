/**
 * A model over HTTP, in OpenAI's, Anthropic's and llama-server's shapes.
 * @module
 */
export { servedModel, type ServedModelOptions } from "./language_model.ts";
export type { ServedModel } from "./model.ts";
export { type RunningServer, type ServerOptions, startServer } from "./server.ts";
