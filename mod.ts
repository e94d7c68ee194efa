/**
 * bloomery as a library: open a model, generate, chat, score, compare, prepare and quantize from TypeScript.
 *
 * The native library must have been built (`deno task build`); `device: "reference"` needs none.
 *
 * @example Ask a model
 * ```ts
 * import assert from "node:assert/strict";
 * import { openModel, prepare } from "./mod.ts";
 *
 * const path = Deno.makeTempDirSync() + "/bloom-nano.gguf";
 * await prepare("models/bloom-nano", path);
 * using opened = await openModel(path, { device: "cpu", n_ctx: 256 });
 * let answer = "";
 * const messages = [{ role: "user", content: "What is 27 + 58?" }];
 * for await (const piece of opened.model.chat(messages, { sampling: { temperature: 0 } })) answer += piece.text;
 * assert.match(answer, /27 \+ 58 = 85/);
 * ```
 *
 * @example Quantize rows of numbers
 * ```ts
 * import assert from "node:assert/strict";
 * import { dequantizeRows, quantizeRows } from "./mod.ts";
 *
 * const rows = Float32Array.from({ length: 256 }, (_, i) => i / 256);
 * const blocks = await quantizeRows("q8_0", rows, 256);
 * assert.equal(blocks.length, 256 / 32 * 34);
 * const back = await dequantizeRows("q8_0", blocks, 256);
 * assert.ok(Math.abs(back[100] - rows[100]) < 0.01);
 * ```
 * @module
 */
export {
  BloomeryError,
  EngineError,
  type ErrorArea,
  type ErrorCode,
  type ErrorFacts,
  EvalError,
  FormatError,
  ModelError,
  NativeError,
  PlanError,
  QuantizeError,
  ServeError,
  TextError,
  UsageError,
} from "./core/errors.ts";
export type { ByteSource } from "./core/bytes.ts";
export { GgufFile, type GgufShard, type GgufTensor, openGguf, type OpenGgufOptions } from "./core/gguf/read.ts";
export {
  type ArrayOf,
  type GgufArray,
  type GgufValue,
  type IntArray,
  Metadata,
  type NumberType,
  type ScalarType,
  StringArray,
  VALUE_TYPES,
  type ValueType,
} from "./core/gguf/metadata.ts";
export { GGML_TYPES, type GgmlType, ggmlType, ggmlTypeById, ggmlTypeByName } from "./core/gguf/types.ts";
export {
  Checkpoint,
  openCheckpoint,
  type OpenCheckpointOptions,
  type SafetensorsFile,
  type SafetensorsTensor,
} from "./core/safetensors/read.ts";
export {
  type DecodeOptions,
  type EncodeOptions,
  type SpecialIds,
  type Tokenizer,
  tokenizerFromGguf,
  type TokenizerOptions,
  type TokenStream,
} from "./core/tokenizer/mod.ts";
export {
  ChatFormat,
  type ChatMessage,
  type ChatPrompt,
  type ChatRenderInput,
  ChatTemplate,
  type ContentPart,
  type Delta,
  type OutputParser,
  type ParserInput,
  type Place,
  type ReasoningFormat,
  type RenderArgs,
  type ToolCall,
  type Where,
} from "./core/chat/mod.ts";
export { defaultSampling, Sampler, type SamplerName, samplerNames, type SamplingParams } from "./core/sampling/mod.ts";
export type { ExpertRank } from "./core/engine/residency.ts";
export type { PoolPlan } from "./core/plan/pools.ts";
export type { Form, WeightPlan } from "./core/plan/weights.ts";
export {
  Engine,
  type EngineOptions,
  type PlanningOptions,
  type Sequence,
  type StepOutput,
  type StepRequest,
} from "./core/engine/mod.ts";
export type { Backend, DeviceInfo, FileRange, TensorSource } from "./core/program/backend.ts";
export type { CachePart, CachePlan, CacheType } from "./core/plan/cache.ts";
export { describePlan } from "./core/plan/describe.ts";
export type { DeviceShare, LayerRun, PlaceOptions } from "./core/plan/places.ts";
export type { PlaceOverride } from "./core/program/place.ts";
export type { DevicePlan, Plan } from "./core/plan/plan.ts";
export {
  type ChatOptions,
  type GenerateOptions,
  LanguageModel,
  type LanguageModelOptions,
  type Piece,
  type StopReason,
} from "./core/language_model.ts";
export type { AdapterInfo, ModelFile, ModelSource, ModelTensor } from "./core/arch/mod.ts";
export { Adapter, withAdapters } from "./core/arch/adapter.ts";
export type { AdapterShape } from "./core/program/adapter.ts";
export { type FolderModel, openFolderModel } from "./quantize/folder_model.ts";
export { type DraftCounts, Drafter, type DrafterOptions } from "./core/draft/drafter.ts";
export { DRAFT_KINDS, type DraftedModel, type DraftKind, openDrafter, type OpenDrafterOptions } from "./ffi/drafter.ts";
export { openBackend, type OpenedBackend, type OpenedModel, openModel } from "./ffi/mod.ts";
export {
  type EarlyProgress,
  type FollowOptions,
  NGRAM_LAYOUTS,
  type NgramLayout,
  type Outtype,
  OUTTYPES,
  prepare,
  type PreparedTensor,
  type PrepareFileOptions,
  type PrepareOptions,
  type PrepareProgress,
  type PrepareResult,
  type RowQuantizer,
} from "./quantize/prepare/mod.ts";
export { quantize, type QuantizeOptions, type QuantizeProgress, type QuantizeResult } from "./quantize/quantize.ts";
export type { PlannedTensor, PlanOptions, SourceTensor, TypePattern, UnreachedExperts } from "./quantize/plan.ts";
export type { Fallback, QuantizeSummary, TypeTotal } from "./quantize/quantize_summary.ts";
export type { Override } from "./quantize/output_metadata.ts";
export { openGgufSource, type QuantizeSource } from "./quantize/quantize_source.ts";
export { openFolderSource } from "./quantize/folder_source.ts";
export { type FileType, parseFileType } from "./quantize/file_types.ts";
export {
  type Imatrix,
  type ImatrixFile,
  type ImatrixFilter,
  type ImatrixSums,
  readImatrix,
  useImatrix,
} from "./quantize/imatrix.ts";
export type { SplitLimits } from "./quantize/reshard.ts";
export type { TensorInfo } from "./core/gguf/write.ts";
export type { DequantizeRowsOptions, QuantizeRowsOptions } from "./quantize/rows.ts";
export {
  type AnswerDefaults,
  type AppSettings,
  type CorsOrigins,
  FolderPage,
  type ListenerSettings,
  OwnPage,
  type Page,
  type Pooling,
  type RequestLogEntry,
  type RunningServer,
  type ServedModel,
  servedModel,
  type ServedModelOptions,
  type ServerOptions,
  startServer,
  type Tls,
} from "./serve/mod.ts";
export { cutWindows, type TextSource, type Window, type WindowOptions } from "./eval/windows.ts";
export { type ScoreLine, scoreWindows } from "./eval/score.ts";
export {
  compareModels,
  type Report,
  type ReportWindow,
  type Row,
  summarize,
  type WindowDetail,
  type WindowResult,
} from "./eval/compare.ts";
export type { Estimate } from "./eval/stats.ts";

import { openBackend } from "./ffi/mod.ts";
import { dequantizeRows as decodeRows, quantizeRows as encodeRows, type QuantizeRowsOptions } from "./quantize/rows.ts";

// The two functions below are the only code here: they bind rows of numbers to the host's backend, opened at first use.
let host: ReturnType<typeof openBackend> | undefined;

/**
 * Encodes rows of numbers as blocks of a tensor type, bit for bit as llama-quantize does.
 * @param rows `[n_rows, n_per_row]`, finite
 * @throws {UsageError} `usage.tensor_type`, `usage.row_length` · {@link NativeError} `native.unsupported`, `native.data`
 */
export function quantizeRows(
  type: string,
  rows: Float32Array,
  n_per_row: number,
  options: QuantizeRowsOptions = {},
): Promise<Uint8Array> {
  return encodeRows((host ??= openBackend("cpu")).backend, type, rows, n_per_row, options);
}

/**
 * Decodes blocks of a tensor type.
 * @param data `[n_rows]` encoded rows
 * @returns `[n_rows, n_per_row]`
 */
export function dequantizeRows(type: string, data: Uint8Array, n_per_row: number): Promise<Float32Array> {
  return decodeRows((host ??= openBackend("cpu")).backend, type, data, n_per_row);
}
