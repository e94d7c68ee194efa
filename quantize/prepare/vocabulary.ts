/**
 * The vocabulary keys of a checkpoint.
 * @module
 */
import { ModelError } from "../../core/errors.ts";
import { ggufValue, type Metadata } from "../../core/gguf/metadata.ts";
import type { Config } from "./config.ts";
import type { Family } from "./family.ts";
import { type CheckpointFiles, SpecialTokens } from "./special_tokens.ts";

type Json = Record<string, any>;
const NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5;

function looksSpecial(text: string): boolean {
  return ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].includes(text) || /^<\|.*\|>$|^<｜.*｜>$|^<unused.*>$/su.test(text);
}

/** Pre-tokenizers by the expression that splits the text. */
const PRE: Readonly<Record<string, string>> = {
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+":
    "qwen2",
};

/** Writes `tokenizer.*`. */
export function writeVocabulary(metadata: Metadata, files: CheckpointFiles, c: Config, family: Family): void {
  if (family.vocabulary === "llama") {
    const config = files.json("tokenizer_config.json") as Json | undefined;
    if (typeof config?.["add_prefix_space"] === "boolean") {
      metadata.set("tokenizer.ggml.add_space_prefix", ggufValue.bool(config["add_prefix_space"]));
    }
  }
  const tokenizer = files.json("tokenizer.json") as Json | undefined;
  if (tokenizer?.["model"]?.["type"] !== "BPE") {
    throw new ModelError("model.tokenizer", `Cannot use the tokenizer of ${c.file}: tokenizer.json is not of type BPE`);
  }
  const added = new Map<number, Json>((tokenizer["added_tokens"] as Json[]).map((t) => [t["id"], t]));
  const byId = new Map<number, string>(
    Object.entries(tokenizer["model"]["vocab"] as Record<string, number>).map(([t, id]) => [id, t]),
  );
  const n_vocab = c.int("vocab_size") ?? byId.size + added.size;
  const tokens: string[] = [];
  const types: number[] = [];
  for (let id = 0; id < n_vocab; id++) {
    const a = added.get(id);
    const t = a ? a["content"] as string : byId.get(id);
    tokens.push(t ?? `[PAD${id}]`);
    types.push(
      t === undefined ? UNUSED : !a ? NORMAL : a["special"] || looksSpecial(t) ? CONTROL : USER_DEFINED,
    );
  }
  const pre = PRE[tokenizer["pre_tokenizer"]?.["pretokenizers"]?.[0]?.["pattern"]?.["Regex"]];
  const merges = (tokenizer["model"]["merges"] as (string | string[])[]).map((m) =>
    typeof m === "string" ? m : m.map((part) => part.replaceAll(" ", "\u0120")).join(" ")
  );
  metadata.set("tokenizer.ggml.model", ggufValue.str("gpt2"))
    .set("tokenizer.ggml.pre", ggufValue.str(pre))
    .set("tokenizer.ggml.tokens", ggufValue.strs(tokens))
    .set("tokenizer.ggml.token_type", ggufValue.i32s(types))
    .set("tokenizer.ggml.merges", ggufValue.strs(merges));
  const special = new SpecialTokens(files);
  if (family.vocabulary === "glm") {
    const id = (text: string) => [...added.values()].find((t) => t["content"] === text)?.["id"];
    special.set("bos", id("[gMASK]"));
    special.set("eot", id("<|user|>"));
    special.set("unk", id("<|endoftext|>"));
    special.set("eom", id("<|observation|>"));
  }
  special.write(metadata);
}
