/**
 * The type of each tensor in the file.
 * @module
 */
import type { View } from "./view.ts";

/** What may be asked for: one type for all matrices, the checkpoint's main type, or each tensor's own. */
export const OUTTYPES = ["f32", "f16", "bf16", "q8_0", "auto", "keep"] as const;
/** One of them. */
export type Outtype = (typeof OUTTYPES)[number];

/** `general.file_type` of each. */
export const FILE_TYPES: Readonly<Record<string, number>> = { f32: 0, f16: 1, q8_0: 7, bf16: 32, mxfp4: 38, nvfp4: 39 };

/** Small matrices that runtimes want in f32. */
const ALWAYS_F32 = new Set([
  "ffn_gate_inp.weight",
  "ffn_gate_inp_shexp.weight",
  "position_embd.weight",
  "token_types.weight",
  "ssm_conv1d.weight",
  "ssm_conv1d_q.weight",
  "ssm_conv1d_k.weight",
  "ssm_conv1d_v.weight",
  "shortconv.conv.weight",
  "indexer.proj.weight",
  "altup_correct_coef.weight",
  "altup_predict_coef.weight",
]);

/** Names of ggml types by view type. */
const OWN: Readonly<Record<View["dtype"], string>> = {
  F32: "f32",
  F16: "f16",
  BF16: "bf16",
  I32: "i32",
  I64: "i64",
  MXFP4: "mxfp4",
  NVFP4: "nvfp4",
  Q8_0: "q8_0",
};

/**
 * The ggml type of a tensor, by name. Vectors, norms, biases and routers are f32 whatever is asked for; blocks and integers
 * stay what they are. Rows that q8_0 cannot cut into blocks become f16.
 *
 * @param main The checkpoint's 16-bit type, for values whose own type a file cannot have.
 * @param forced What the family wants for this tensor.
 */
export function tensorType(
  name: string,
  v: View,
  outtype: Exclude<Outtype, "auto">,
  main: string,
  forced?: string,
): string {
  const isFloat = v.dtype === "F32" || v.dtype === "F16" || v.dtype === "BF16";
  if (!isFloat) return OWN[v.dtype];
  if (v.shape.length <= 1 || name.endsWith("_norm.weight")) return "f32";
  let type = forced;
  if (type === undefined) {
    const inBlock = name.replace(/^blk\.\d+\./, "");
    if (ALWAYS_F32.has(inBlock) || !name.endsWith(".weight")) return "f32";
    type = outtype !== "keep" ? outtype : v.coded ? main : OWN[v.dtype];
  }
  return type === "q8_0" && v.shape[v.shape.length - 1] % 32 !== 0 ? "f16" : type;
}

/** The main type of a checkpoint: that of the first matrix in 16 bits, f16 when there is none. */
export function guessOuttype(tensors: Iterable<{ dtype: string; shape: readonly number[] }>): "bf16" | "f16" {
  for (const t of tensors) {
    if (t.shape.length < 2) continue;
    if (t.dtype === "BF16") return "bf16";
    if (t.dtype === "F16") return "f16";
  }
  return "f16";
}
