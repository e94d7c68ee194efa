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
export { type GgufFile, type GgufTensor, openGguf } from "./core/gguf/read.ts";
export { Metadata } from "./core/gguf/metadata.ts";
export { GGML_TYPES, type GgmlType, ggmlType, ggmlTypeById, ggmlTypeByName } from "./core/gguf/types.ts";
export { type Checkpoint, openCheckpoint } from "./core/safetensors/read.ts";
export { type Tokenizer, tokenizerFromGguf } from "./core/tokenizer/mod.ts";
export { ChatFormat, type ChatMessage, ChatTemplate } from "./core/chat/mod.ts";
export { defaultSampling, Sampler, type SamplingParams } from "./core/sampling/mod.ts";
export { Engine, type EngineOptions, type Sequence, type StepOutput, type StepRequest } from "./core/engine/mod.ts";
export type { Backend, DeviceInfo, FileRange } from "./core/program/backend.ts";
export { type CacheType, describePlan, type Plan } from "./core/plan/plan.ts";
export {
  type ChatOptions,
  type GenerateOptions,
  LanguageModel,
  type LanguageModelOptions,
  type Piece,
  type StopReason,
} from "./core/language_model.ts";
export { openBackend, type OpenedBackend, type OpenedModel, openModel } from "./ffi/mod.ts";
export { prepare } from "./quantize/prepare/mod.ts";
export { quantize, type QuantizeOptions, type QuantizeResult } from "./quantize/quantize.ts";
export { ggufQuantizeSource, type QuantizeSource } from "./quantize/quantize_source.ts";
export { folderQuantizeSource } from "./quantize/folder_source.ts";
export { type FileType, parseFileType } from "./quantize/file_types.ts";
export { type Imatrix, readImatrix, useImatrix } from "./quantize/imatrix.ts";
export { type RunningServer, servedModel, type ServerOptions, startServer } from "./serve/mod.ts";
export { cutWindows, type Window } from "./eval/windows.ts";
export { type ScoreLine, scoreWindows } from "./eval/score.ts";
export { compareModels, type Report, summarize } from "./eval/compare.ts";

import { openBackend } from "./ffi/mod.ts";
import { dequantizeRows as decodeRows, quantizeRows as encodeRows, type QuantizeRowsOptions } from "./quantize/rows.ts";

// The two functions below are the only code here: they bind rows of numbers to the host's backend, opened at first use.
let host: ReturnType<typeof openBackend> | undefined;

/**
 * Encodes rows of numbers as blocks of a tensor type, bit for bit as llama-quantize does.
 * @param rows `[n_rows, nPerRow]`, finite
 * @throws {UsageError} `usage.tensor_type`, `usage.row_length` · {@link NativeError} `native.unsupported`, `native.data`
 */
export function quantizeRows(
  type: string,
  rows: Float32Array,
  nPerRow: number,
  options: QuantizeRowsOptions = {},
): Promise<Uint8Array> {
  return encodeRows((host ??= openBackend("cpu")).backend, type, rows, nPerRow, options);
}

/**
 * Decodes blocks of a tensor type.
 * @param data `[n_rows]` encoded rows
 * @returns `[n_rows, nPerRow]`
 */
export function dequantizeRows(type: string, data: Uint8Array, nPerRow: number): Promise<Float32Array> {
  return decodeRows((host ??= openBackend("cpu")).backend, type, data, nPerRow);
}
