/**
 * From a released checkpoint to a GGUF file, or to a source that reads like one.
 * @module
 */
export { prepare, type PrepareResult } from "./prepare.ts";
export type { EarlyProgress, PrepareFileOptions, PrepareProgress } from "./file_options.ts";
export {
  openPrepared,
  type PreparedSource,
  type PreparedTensor,
  type PrepareOptions,
  type RowQuantizer,
} from "./source.ts";
export type { FollowOptions } from "./follow.ts";
export { type Outtype, OUTTYPES } from "./outtype.ts";
export { NGRAM_LAYOUTS, type NgramLayout } from "./family.ts";
