/**
 * Which tokens have a role: from the file's keys, else from well-known texts; and which of them end a generation.
 * Facts: the lists of texts are those that llama.cpp 0.7.0 looks for.
 * @module
 */

import type { Metadata } from "../gguf/metadata.ts";
import { type SpecialIds, TOKEN_TYPE } from "./types.ts";
import type { Vocab } from "./vocab.ts";

type Role = keyof SpecialIds;

/** The keys that name each role's id, the older name last. */
const KEYS: Record<Role, readonly string[]> = {
  bos: ["bos_token_id"],
  eos: ["eos_token_id"],
  eot: ["eot_token_id"],
  eom: ["eom_token_id"],
  unk: ["unknown_token_id"],
  sep: ["seperator_token_id"], // spelled so in files
  pad: ["padding_token_id"],
  mask: ["mask_token_id"],
  fim_pre: ["fim_pre_token_id", "prefix_token_id"],
  fim_suf: ["fim_suf_token_id", "suffix_token_id"],
  fim_mid: ["fim_mid_token_id", "middle_token_id"],
  fim_pad: ["fim_pad_token_id"],
  fim_rep: ["fim_rep_token_id"],
  fim_sep: ["fim_sep_token_id"],
};

/** Texts that take a role that no key gave, in order of preference. */
const TEXTS: Partial<Record<Role, readonly string[]>> = {
  eot: [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
  ],
  eom: ["<|eom_id|>"],
  fim_pre: [
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<|plamo:fim_prefix|>",
  ],
  fim_suf: [
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<|plamo:fim_suffix|>",
  ],
  fim_mid: [
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
    "<|plamo:fim_middle|>",
  ],
  fim_pad: ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
  fim_rep: ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
  fim_sep: ["<|file_sep|>", "<|plamo:file_separator|>"],
};

/** Texts that always end a generation. */
const EOG_TEXTS: readonly string[] = [
  "<|eot_id|>",
  "<|im_end|>",
  "<|end|>",
  "<|return|>",
  "<|call|>",
  "<|flush|>",
  "<|calls|>",
  "<end_of_turn>",
  "<|endoftext|>",
  "</s>",
  "<|eom_id|>",
  "<EOT>",
  "_<EOT>",
  "[EOT]",
  "[EOS]",
  "<|end_of_text|>",
  "<end_of_utterance>",
  "<eos>",
  "<turn|>",
  "<|tool_response>",
  "<｜end▁of▁sentence｜>",
  "[e~[",
  "<|ifm|im_end|>",
];

/** Harmony's markers: content to whoever reads the stream, so always shown and always parsed. */
const ALWAYS_SHOWN: readonly string[] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

export interface SpecialTokens {
  readonly ids: SpecialIds;
  readonly eogIds: ReadonlySet<number>;
}

/**
 * Reads the roles and corrects `vocab.types` where a token's text gives it one.
 * @param defaults Ids that the tokenizer's model implies.
 */
export function readSpecialTokens(
  metadata: Metadata,
  vocab: Vocab,
  defaults: Partial<SpecialIds>,
  warnings: string[],
): SpecialTokens {
  const ids = {} as Record<Role, number | null>;
  for (const role of Object.keys(KEYS) as Role[]) {
    const fallback = defaults[role] ?? null;
    ids[role] = fallback !== null && fallback < vocab.n ? fallback : null;
    for (const key of KEYS[role].toReversed()) {
      const id = metadata.int(`tokenizer.ggml.${key}`, undefined);
      if (id === undefined) continue;
      // 2^32 - 1 is how some files say "none"
      if (id >= 0 && id < vocab.n) ids[role] = id;
      else warnings.push(`tokenizer.ggml.${key} is ${id}, which is no token of ${vocab.n}: ignored`);
    }
  }
  for (const [role, texts] of Object.entries(TEXTS) as [Role, readonly string[]][]) {
    if (ids[role] !== null) continue;
    const id = texts.map((text) => vocab.find(text)).find((found) => found >= 0);
    if (id === undefined) continue;
    ids[role] = id;
    vocab.types[id] = TOKEN_TYPE.control;
  }
  return { ids, eogIds: readEogIds(vocab, ids) };
}

function readEogIds(vocab: Vocab, ids: Record<Role, number | null>): Set<number> {
  const eog = new Set<number>();
  for (const role of ["fim_pad", "fim_rep", "fim_sep"] as const) if (ids[role] !== null) eog.add(ids[role]);
  for (const text of EOG_TEXTS) {
    const id = vocab.find(text);
    if (id < 0) continue;
    eog.add(id);
    vocab.types[id] = TOKEN_TYPE.control;
  }
  for (const text of ALWAYS_SHOWN) {
    const id = vocab.find(text);
    if (id >= 0) vocab.types[id] = TOKEN_TYPE.userDefined;
  }
  for (const role of ["eos", "eot", "eom"] as const) if (ids[role] !== null) eog.add(ids[role]);

  const ends = (text: string) => eog.has(vocab.find(text));
  const callEnds = ends("<|call|>") || ends("<|calls|>");
  if (ends("<|end|>") && callEnds && (ends("<|return|>") || ends("<|flush|>"))) {
    // harmony: <|end|> ends a message of several
    const id = vocab.find("<|end|>");
    eog.delete(id);
    vocab.types[id] = TOKEN_TYPE.userDefined;
  }
  if (ends("<|tool_response>") && ends("</s>")) {
    const id = vocab.find("</s>");
    eog.delete(id);
    vocab.types[id] = TOKEN_TYPE.normal;
  }
  return eog;
}
