/**
 * A model over HTTP, in OpenAI's, Anthropic's and llama-server's shapes.
 *
 * @example Serve a file
 * ```ts ignore
 * import { openModel } from "@bloomery/bloomery";
 * import { servedModel, startServer, openServer, type WaitingServer, type ListenerSettings } from "./mod.ts";
 *
 * using opened = await openModel("model.gguf", { n_ctx: 4096, n_cache: 4 * 4096 });
 * const server = await startServer({ model: servedModel(opened.model), port: 8080, n_slots: 4 });
 * await server.drained;
 * ```
 * @module
 */
export type { AppSettings } from "./app.ts";
export type { AnswerDefaults } from "./answer_request.ts";
export type { CorsOrigins } from "./cors.ts";
export type { Pooling } from "./embedder.ts";
export type { Tls } from "./listener.ts";
export { FolderPage, OwnPage, type Page } from "./page.ts";
export type { RequestLogEntry } from "./request_log.ts";
export { type ServedModel, servedModel, type ServedModelOptions } from "./language_model.ts";
export {
  type ListenerSettings,
  openServer,
  type RunningServer,
  type ServerOptions,
  startServer,
  type WaitingServer,
} from "./server.ts";
