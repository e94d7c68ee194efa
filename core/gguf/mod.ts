/**
 * GGUF files: opening, metadata, writing, the table of tensor types.
 * @module
 */
export { alignUp, DEFAULT_ALIGNMENT, elementCount, tensorBytes, trimDims } from "./layout.ts";
export { fileTypeName } from "./file_type.ts";
export * from "./metadata.ts";
export * from "./read.ts";
export * from "./types.ts";
export {
  bufferTarget,
  encodeHeader,
  fileTarget,
  GgufWriter,
  type GgufWriterOptions,
  partialPath,
  type TensorInfo,
  type WritableTarget,
} from "./write.ts";
