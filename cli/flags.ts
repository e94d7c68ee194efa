/**
 * Flags that several commands share, each defined once, under the names that llama.cpp's tools have for them where they have
 * one. `llama_flags.ts` lists what is accepted for their sake and changes nothing here.
 * @module
 */
import type { SamplingParams } from "../core/sampling/mod.ts";
import type { Flag } from "./command.ts";
import { ADAPTER_FLAGS } from "./adapter_flags.ts";
import { OVERRIDE_FLAG } from "./override_kv.ts";
import { PLACE_FLAGS } from "./place_flags.ts";

export const COMMON = {
  json: { name: "json", type: "bool", help: "print one JSON document on stdout" },
  quiet: { name: "quiet", alias: ["q"], type: "bool", help: "no progress on stderr" },
  verbose: {
    name: "verbose",
    alias: ["v", "log-verbose"],
    type: "bool",
    help: "print the memory plan, and which settings come from the environment or a config file",
  },
  config: {
    name: "config",
    type: "string",
    value: "FILE",
    help:
      'JSON file with flags: {"ctx-size": 4096, "serve": {"port": 9000}}; flags and environment variables override it',
  },
  overwrite: {
    name: "overwrite",
    type: "bool",
    help: "replace files that exist; without it a command never writes over a file",
  },
  model: {
    name: "model",
    alias: ["m"],
    type: "string",
    value: "FILE",
    env: "LLAMA_ARG_MODEL",
    help: "GGUF file, the first of a split set, or a Hugging Face folder",
  },
  device: {
    name: "device",
    alias: ["dev"],
    type: "string",
    value: "DEVICE",
    default: "auto",
    env: "LLAMA_ARG_DEVICE",
    help: "auto, cpu, cuda[:i] or reference; several with commas between them",
  },
  threads: {
    name: "threads",
    alias: ["t"],
    type: "int",
    value: "N",
    default: 0,
    min: -1,
    max: 1024,
    env: "LLAMA_ARG_THREADS",
    help: "host threads, 0 or -1 = one per core",
  },
  ctxSize: {
    name: "ctx-size",
    alias: ["c", "n-ctx"],
    type: "int",
    value: "N",
    min: 0,
    env: "LLAMA_ARG_CTX_SIZE",
    help:
      "tokens of context (n_ctx), 0 = as if not given; default: what the model was trained for, or the most that fits",
  },
  ubatchSize: {
    name: "ubatch-size",
    alias: ["ub"],
    type: "int",
    value: "N",
    default: 512,
    min: 1,
    max: 8192,
    env: "LLAMA_ARG_UBATCH",
    help: "most token rows of one device step (n_ubatch)",
  },
  cacheTypeK: {
    name: "cache-type-k",
    alias: ["ctk"],
    type: "string",
    value: "TYPE",
    default: "f16",
    choices: ["f32", "f16", "q8_0"],
    env: "LLAMA_ARG_CACHE_TYPE_K",
    help: "type of cached keys",
  },
  cacheTypeV: {
    name: "cache-type-v",
    alias: ["ctv"],
    type: "string",
    value: "TYPE",
    default: "f16",
    choices: ["f32", "f16", "q8_0"],
    env: "LLAMA_ARG_CACHE_TYPE_V",
    help: "type of cached values",
  },
} as const satisfies Record<string, Flag>;

/** How a model is named that has to be downloaded first; `cli/model_file.ts` reads these. */
export const HUB_FLAGS = [
  {
    name: "hf-file",
    alias: ["hff"],
    type: "string",
    value: "NAME",
    env: "LLAMA_ARG_HF_FILE",
    help: "file of the repository, instead of the one that QUANT names",
  },
  {
    name: "hf-token",
    alias: ["hft"],
    type: "string",
    value: "TOKEN",
    env: "HF_TOKEN",
    help: "access token for repositories that are not public",
  },
  {
    name: "hf-endpoint",
    type: "string",
    value: "URL",
    env: "HF_ENDPOINT",
    default: "https://huggingface.co",
    help: "address of the Hub, or of a mirror",
  },
  {
    name: "cache-dir",
    type: "string",
    value: "DIR",
    env: "LLAMA_CACHE",
    help: "folder of downloaded models; default: bloomery in the user's cache folder",
  },
  { name: "offline", type: "bool", env: "LLAMA_ARG_OFFLINE", help: "use only what was downloaded before" },
] as const satisfies readonly Flag[];

/** Which model: a file, or a repository of the Hub. */
export const MODEL_SOURCE_FLAGS: readonly Flag[] = [
  COMMON.model,
  {
    name: "hf-repo",
    alias: ["hf", "hfr"],
    type: "string",
    value: "OWNER/REPO[:QUANT]",
    env: "LLAMA_ARG_HF_REPO",
    help: "download the model from the Hub and use it; QUANT such as Q8_0, default: Q4_K_M, else the first file",
  },
  ...HUB_FLAGS,
];

/** Flags of every command that runs a model; `cli/open.ts` reads them. */
export const MODEL_FLAGS: readonly Flag[] = [
  ...MODEL_SOURCE_FLAGS,
  COMMON.device,
  COMMON.threads,
  COMMON.ctxSize,
  COMMON.ubatchSize,
  COMMON.cacheTypeK,
  COMMON.cacheTypeV,
  ...PLACE_FLAGS,
  ...ADAPTER_FLAGS,
  OVERRIDE_FLAG,
  COMMON.verbose,
  COMMON.config,
];

type NumberParam = { [K in keyof SamplingParams]: SamplingParams[K] extends number ? K : never }[keyof SamplingParams];

const sampling = (
  param: NumberParam,
  flag: Omit<Flag, "type" | "value"> & { type?: Flag["type"]; value?: string },
): { param: NumberParam; flag: Flag } => ({ param, flag: { type: "number", value: "X", ...flag } });

/** The sampler chain's numbers: which flag sets which. A command's defaults are what the model recommends. */
export const SAMPLING: readonly { readonly param: NumberParam; readonly flag: Flag }[] = [
  sampling("temperature", {
    name: "temp",
    alias: ["temperature"],
    min: 0,
    env: "LLAMA_ARG_TEMPERATURE",
    help: "temperature, 0 = always the likeliest token; default: what the model recommends, else 0.8",
  }),
  sampling("top_k", {
    name: "top-k",
    type: "int",
    value: "K",
    env: "LLAMA_ARG_TOP_K",
    help: "candidates kept, 0 = all; default: what the model recommends, else 40",
  }),
  sampling("top_p", {
    name: "top-p",
    min: 0,
    max: 1,
    env: "LLAMA_ARG_TOP_P",
    help: "probability mass kept; default: what the model recommends, else 0.95",
  }),
  sampling("min_p", {
    name: "min-p",
    min: 0,
    max: 1,
    env: "LLAMA_ARG_MIN_P",
    help: "least probability, relative to the best candidate; default: what the model recommends, else 0.05",
  }),
  sampling("typical_p", {
    name: "typical-p",
    alias: ["typical"],
    min: 0,
    max: 1,
    help: "mass of locally typical candidates kept, 1 = off",
  }),
  sampling("top_n_sigma", {
    name: "top-n-sigma",
    alias: ["top-nsigma"],
    help: "standard deviations below the best logit that candidates may have, -1 = off",
  }),
  sampling("xtc_probability", { name: "xtc-probability", min: 0, max: 1, help: "chance that top choices are removed" }),
  sampling("xtc_threshold", {
    name: "xtc-threshold",
    min: 0,
    max: 1,
    help: "probability above which a token is a top choice",
  }),
  sampling("repeat_last_n", {
    name: "repeat-last-n",
    type: "int",
    value: "N",
    min: -1,
    help: "tokens that the three penalties look back at, -1 = all",
  }),
  sampling("repeat_penalty", {
    name: "repeat-penalty",
    min: 0,
    env: "LLAMA_ARG_REPEAT_PENALTY",
    help: "penalty on tokens seen before, 1 = off",
  }),
  sampling("presence_penalty", {
    name: "presence-penalty",
    env: "LLAMA_ARG_PRESENCE_PENALTY",
    help: "subtracted from the logits of tokens seen before, 0 = off",
  }),
  sampling("frequency_penalty", {
    name: "frequency-penalty",
    env: "LLAMA_ARG_FREQUENCY_PENALTY",
    help: "subtracted for every time that a token was seen before, 0 = off",
  }),
  sampling("dry_multiplier", { name: "dry-multiplier", min: 0, help: "penalty on repeating a sequence, 0 = off" }),
  sampling("dry_base", { name: "dry-base", help: "growth of that penalty with the sequence's length" }),
  sampling("dry_allowed_length", {
    name: "dry-allowed-length",
    type: "int",
    value: "N",
    min: 0,
    help: "longest repetition without a penalty",
  }),
  sampling("dry_penalty_last_n", {
    name: "dry-penalty-last-n",
    type: "int",
    value: "N",
    min: -1,
    help: "tokens in which repetitions are looked for, -1 = all",
  }),
  sampling("dynatemp_range", {
    name: "dynatemp-range",
    min: 0,
    help: "half width of the temperature's range, 0 = off",
  }),
  sampling("dynatemp_exponent", { name: "dynatemp-exp", help: "how the temperature follows the entropy" }),
  sampling("mirostat", {
    name: "mirostat",
    type: "int",
    value: "N",
    min: 0,
    max: 2,
    help: "Mirostat version 1 or 2 instead of the other stages, 0 = off",
  }),
  sampling("mirostat_eta", { name: "mirostat-lr", help: "learning rate of Mirostat" }),
  sampling("mirostat_tau", { name: "mirostat-ent", help: "surprise that Mirostat aims at" }),
  sampling("adaptive_target", {
    name: "adaptive-target",
    max: 1,
    help: "draw tokens whose probability is near this, below 0 = off",
  }),
  sampling("adaptive_decay", { name: "adaptive-decay", min: 0, max: 0.99, help: "how long that draw remembers" }),
  sampling("min_keep", {
    name: "min-keep",
    type: "int",
    value: "N",
    min: 0,
    help: "candidates that no stage goes below",
  }),
  sampling("seed", {
    name: "seed",
    alias: ["s"],
    type: "int",
    value: "N",
    min: -1,
    max: 2 ** 32 - 1,
    help: "seed of the sampler, -1 = random; default: random",
  }),
];

/** Flags of the sampler; `samplingOf` reads them. */
export const SAMPLING_FLAGS: readonly Flag[] = [
  ...SAMPLING.map(({ flag }) => flag),
  {
    name: "samplers",
    type: "string",
    value: "LIST",
    help: "stages of the sampler in their order, separated by semicolons",
  },
  {
    name: "sampler-seq",
    alias: ["sampling-seq"],
    type: "string",
    value: "LETTERS",
    help: "the same by letters: edskypmxt is the default order",
  },
  {
    name: "logit-bias",
    alias: ["l"],
    type: "strings",
    value: "ID(+|-)BIAS",
    help: "added to the logit of a token: 15043+1; may be given several times",
  },
  {
    name: "dry-sequence-breaker",
    type: "strings",
    value: "TEXT",
    help: "text at which a repetition ends, for --dry-multiplier; may be given several times, none = no such text; " +
      "default: a new line, a colon, a quotation mark, an asterisk",
  },
  { name: "ignore-eos", type: "bool", help: "keep generating past the end of the answer" },
];

/** The form that answers must have; `formOf` reads them. */
export const FORM_FLAGS: readonly Flag[] = [
  { name: "grammar", type: "string", value: "GBNF", help: "grammar of the answer" },
  { name: "grammar-file", type: "string", value: "FILE", help: "file with such a grammar" },
  {
    name: "json-schema",
    alias: ["j"],
    type: "string",
    value: "JSON",
    help: "JSON schema of the answer; {} = any JSON",
  },
  { name: "json-schema-file", alias: ["jf"], type: "string", value: "FILE", help: "file with such a schema" },
];

/** The most tokens of an answer. */
export const PREDICT: Flag = {
  name: "predict",
  alias: ["n", "n-predict"],
  type: "int",
  value: "N",
  default: -1,
  min: -1,
  env: "LLAMA_ARG_N_PREDICT",
  help: "most tokens of an answer, -1 = as many as the context holds",
};

/** Whether and how much a model reasons before it answers; `reasoningKwargs` reads them. */
export const REASONING_FLAGS: readonly Flag[] = [
  {
    name: "reasoning",
    alias: ["rea"],
    type: "string",
    value: "MODE",
    choices: ["on", "off", "auto"],
    bare: "on",
    env: "LLAMA_ARG_REASONING",
    help: "whether the template asks for reasoning; auto leaves it to the template",
  },
  {
    name: "reasoning-effort",
    type: "string",
    value: "LEVEL",
    env: "LLAMA_ARG_REASONING_EFFORT",
    help: "reasoning_effort of the template: low, medium, high or what it knows; default leaves it to the template",
  },
];

/** How the files of a set are divided. */
export const SPLIT_FLAGS: readonly Flag[] = [
  {
    name: "split-max-size",
    type: "string",
    value: "SIZE",
    help: "write a set of files with at most SIZE of tensors each, such as 4G",
  },
  {
    name: "split-max-tensors",
    type: "int",
    value: "N",
    min: 1,
    help: "write a set of files with at most N tensors each",
  },
  { name: "no-tensor-first-split", type: "bool", help: "the first file of a set holds metadata only" },
];
