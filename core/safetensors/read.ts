/**
 * Reading safetensors: one file, or a Hugging Face folder as one checkpoint.
 * @module
 */
export { Checkpoint, openCheckpoint, type OpenCheckpointOptions, weightMap } from "./checkpoint.ts";
export {
  openSafetensors,
  readSafetensorsHeader,
  SAFETENSORS_DTYPES,
  type SafetensorsFile,
  type SafetensorsTensor,
} from "./file.ts";
