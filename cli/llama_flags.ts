/**
 * Flags of llama-server and llama-cli that are accepted and change nothing here, so that their command lines, environment
 * variables and service files can be kept. Each says why; a run warns once.
 * @module
 */
import type { Flag } from "./command.ts";

type More = Partial<Omit<Flag, "name" | "noEffect">>;

/** A switch: `--NAME`, and `--no-NAME` where `off` is given. */
const toggle = (name: string, why: string, more: More = {}): Flag => ({
  name,
  type: "bool",
  help: "accepted, no effect",
  noEffect: why,
  ...more,
});

/** A flag with a value that is not looked at. */
const value = (name: string, why: string, more: More = {}): Flag => ({
  name,
  type: "string",
  value: "VALUE",
  help: "accepted, no effect",
  noEffect: why,
  ...more,
});

const WITH_WEIGHTS = "work is done where its weights lie";
const LOADING = "weights are always read into the device's memory at the start";
const ATTENTION = "attention is always computed without the whole matrix of scores";
const SPECULATION = "no token is guessed here; numbers are the same without";
const THREADS = "the threads of --threads do all the work";
const LOG = "the log has one form";
const PICTURES = "there is no reader of pictures, sounds and videos";

/** Accepted by every command that runs a model. */
export const LLAMA_MODEL_FLAGS: readonly Flag[] = [
  value("batch-size", "prompts are cut by --ubatch-size alone", { alias: ["b"], env: "LLAMA_ARG_BATCH" }),
  value("flash-attn", ATTENTION, {
    alias: ["fa"],
    choices: ["on", "off", "auto"],
    bare: "on",
    env: "LLAMA_ARG_FLASH_ATTN",
  }),
  value("threads-batch", THREADS, { alias: ["tb"] }),
  value("cpu-mask", THREADS, { alias: ["C"] }),
  value("cpu-range", THREADS, { alias: ["Cr"] }),
  value("cpu-strict", THREADS),
  value("prio", THREADS),
  value("poll", THREADS),
  value("cpu-mask-batch", THREADS, { alias: ["Cb"] }),
  value("cpu-range-batch", THREADS, { alias: ["Crb"] }),
  value("cpu-strict-batch", THREADS),
  value("prio-batch", THREADS),
  value("poll-batch", THREADS),
  value("numa", THREADS, { env: "LLAMA_ARG_NUMA" }),
  value("rpc", "other machines are not used", { env: "LLAMA_ARG_RPC" }),
  value("moe-cache-mib", "see --host-room", { env: "LLAMA_ARG_MOE_CACHE_MIB" }),
  toggle("kv-offload", "a cache lies with its layer, see --place", {
    alias: ["kvo"],
    off: ["nkvo"],
    env: "LLAMA_ARG_KV_OFFLOAD",
  }),
  toggle("op-offload", WITH_WEIGHTS, { off: [] }),
  toggle("no-host", WITH_WEIGHTS, { env: "LLAMA_ARG_NO_HOST" }),
  value("fit", "settings are used as given, and a plan that does not fit is refused", {
    choices: ["on", "off"],
    bare: "on",
    env: "LLAMA_ARG_FIT",
  }),
  value("fit-target", "see --fit", { alias: ["fitt"], env: "LLAMA_ARG_FIT_TARGET" }),
  value("fit-ctx", "see --fit", { alias: ["fitc"], env: "LLAMA_ARG_FIT_CTX" }),
  value("load-mode", LOADING, { alias: ["lm"], env: "LLAMA_ARG_LOAD_MODE" }),
  value("lazy-mode", LOADING, { alias: ["lzm"], env: "LLAMA_ARG_LAZY_MODE" }),
  toggle("mmap", LOADING, { off: [], env: "LLAMA_ARG_MMAP" }),
  toggle("mlock", LOADING, { env: "LLAMA_ARG_MLOCK" }),
  toggle("direct-io", LOADING, { alias: ["dio"], off: [] }),
  toggle("repack", "weights are laid out for the device in any case", {
    off: ["nr"],
    env: "LLAMA_ARG_REPACK",
  }),
  toggle("warmup", "nothing has to be warmed up", { off: [], env: "LLAMA_ARG_WARMUP" }),
  toggle("check-tensors", "bloomery inspect --check reads a file for that"),
  toggle("swa-full", "the cache keeps every token", { env: "LLAMA_ARG_SWA_FULL" }),
  value("defrag-thold", "the cache consists of pages and needs no defragmenting", {
    alias: ["dt"],
    env: "LLAMA_ARG_DEFRAG_THOLD",
  }),
  toggle("perf", "rates are printed or answered in any case", { off: [], env: "LLAMA_ARG_PERF" }),
  toggle("escape", "texts are taken as they are", { alias: ["e"], off: [] }),
  toggle("mmproj-auto", PICTURES, { off: ["no-mmproj"], env: "LLAMA_ARG_MMPROJ_AUTO" }),
  toggle("mmproj-offload", PICTURES, { off: [], env: "LLAMA_ARG_MMPROJ_OFFLOAD" }),
  value("mmproj-device", PICTURES, { alias: ["mmdev"] }),
  value("image-min-tokens", PICTURES, { env: "LLAMA_ARG_IMAGE_MIN_TOKENS" }),
  value("image-max-tokens", PICTURES, { env: "LLAMA_ARG_IMAGE_MAX_TOKENS" }),
  value("mtmd-batch-max-tokens", PICTURES, { env: "LLAMA_ARG_MTMD_BATCH_MAX_TOKENS" }),
  value("video-fps", PICTURES, { env: "LLAMA_ARG_VIDEO_FPS" }),
  value("video-timestamp-interval", PICTURES, { env: "LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL" }),
  value("video-ffmpeg-dir", PICTURES, { env: "LLAMA_ARG_VIDEO_FFMPEG_DIR" }),
  toggle("jinja", "chat templates are always Jinja", { off: [], env: "LLAMA_ARG_JINJA" }),
  toggle("backend-sampling", "sampling runs where it is fastest", { alias: ["bs"], env: "LLAMA_ARG_BACKEND_SAMPLING" }),
  toggle("log-disable", "see --quiet"),
  value("log-colors", LOG, { choices: ["on", "off", "auto"], bare: "on", env: "LLAMA_ARG_LOG_COLORS" }),
  value("log-verbosity", "see --verbose", { alias: ["lv", "verbosity"], env: "LLAMA_ARG_LOG_VERBOSITY" }),
  toggle("log-prefix", LOG, { off: [], env: "LLAMA_ARG_LOG_PREFIX" }),
  toggle("log-timestamps", LOG, { off: [], env: "LLAMA_ARG_LOG_TIMESTAMPS" }),
];

/** Accepted by those of them that guess no tokens. */
export const LLAMA_DRAFT_FLAGS: readonly Flag[] = [
  value("model-draft", SPECULATION, { alias: ["md", "spec-draft-model"], env: "LLAMA_ARG_SPEC_DRAFT_MODEL" }),
  value("spec-type", SPECULATION, { env: "LLAMA_ARG_SPEC_TYPE" }),
  value("spec-draft-n-max", SPECULATION, { alias: ["draft-max", "draft"], env: "LLAMA_ARG_SPEC_DRAFT_N_MAX" }),
  value("spec-draft-n-min", SPECULATION, { alias: ["draft-min"], env: "LLAMA_ARG_SPEC_DRAFT_N_MIN" }),
  value("spec-draft-p-min", SPECULATION, { alias: ["draft-p-min"], env: "LLAMA_ARG_SPEC_DRAFT_P_MIN" }),
];

const NO_TOOLS = "the server runs no tools; clients do";
const NO_TOOLS_OFF = "the server runs no tools in any case";

/** Accepted by `serve` besides. */
export const LLAMA_SERVER_FLAGS: readonly Flag[] = [
  toggle("cont-batching", "requests always share their steps", {
    alias: ["cb"],
    off: ["nocb"],
    env: "LLAMA_ARG_CONT_BATCHING",
  }),
  value("cache-reuse", "text that was computed at another place would change the answer", {
    env: "LLAMA_ARG_CACHE_REUSE",
  }),
  toggle("cache-idle-slots", "see --cache-ram", { off: [], env: "LLAMA_ARG_CACHE_IDLE_SLOTS" }),
  value("ctx-checkpoints", "the cache keeps every token", {
    alias: ["ctxcp", "swa-checkpoints"],
    env: "LLAMA_ARG_CTX_CHECKPOINTS",
  }),
  value("threads-http", "requests are read by one thread", { env: "LLAMA_ARG_THREADS_HTTP" }),
  value("timeout", "connections stay as long as they are used", { alias: ["to"], env: "LLAMA_ARG_TIMEOUT" }),
  value("ui-config", "the server has no settings of a web page", {
    alias: ["webui-config"],
    env: "LLAMA_ARG_UI_CONFIG",
  }),
  value("ui-config-file", "the server has no settings of a web page", {
    alias: ["webui-config-file"],
    env: "LLAMA_ARG_UI_CONFIG_FILE",
  }),
  value("media-path", PICTURES),
  value("checkpoint-min-step", "the engine keeps points where requests may go on", {
    alias: ["cms"],
    env: "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",
  }),
  toggle("reasoning-preserve", "the template decides what of earlier reasoning a prompt holds", {
    off: [],
    env: "LLAMA_ARG_REASONING_PRESERVE",
  }),
  toggle("log-jsonl", "see --log-format json", { off: [], env: "LLAMA_ARG_LOG_JSONL" }),
  value("log-prompts-dir", "see --log-prompts"),
  // Off is what they are here; on cannot be.
  toggle("ui-mcp-proxy", NO_TOOLS_OFF, {
    alias: ["webui-mcp-proxy"],
    off: ["no-webui-mcp-proxy"],
    env: "LLAMA_ARG_UI_MCP_PROXY",
    refusedOn: NO_TOOLS,
  }),
  toggle("agent", NO_TOOLS_OFF, {
    alias: ["ag"],
    off: ["no-ag"],
    env: "LLAMA_ARG_AGENT",
    refusedOn: NO_TOOLS,
  }),
  toggle("reuse-port", "one server has the port", { env: "LLAMA_ARG_REUSE_PORT" }),
];

/** Accepted by `run` besides. */
export const LLAMA_CLI_FLAGS: readonly Flag[] = [
  toggle("context-shift", "an answer ends where the context is full", { off: [], env: "LLAMA_ARG_CONTEXT_SHIFT" }),
  value("keep", "an answer ends where the context is full"),
  toggle("conversation", "there is a chat where no prompt is given", { alias: ["cnv"] }),
  toggle("color", "answers are not coloured", { alias: ["co"] }),
  toggle("simple-io", "a terminal is recognized"),
  toggle("interactive", "there is a chat where no prompt is given", { alias: ["i"] }),
  toggle("single-turn", "a prompt on the command line is answered once", { alias: ["st"] }),
  toggle("display-prompt", "prompts are not printed", { off: [] }),
  toggle("show-timings", "rates are printed, see --quiet", { off: [] }),
];

/** Flags that would change answers in a way that is not there; accepting them silently would be wrong. */
export const REFUSED: Readonly<Record<string, string>> = {
  "mmproj": "images and audio are not supported",
  "mm": "images and audio are not supported",
  "rope-scaling": "the file's rope keys decide; change them with --override-kv",
  "rope-scale": "the file's rope keys decide; change them with --override-kv",
  "rope-freq-base": "the file's rope keys decide; change them with --override-kv",
  "rope-freq-scale": "the file's rope keys decide; change them with --override-kv",
  "yarn-orig-ctx": "the file's rope keys decide; change them with --override-kv",
  "model-url": "download the file, or use --hf-repo",
  "mu": "download the file, or use --hf-repo",
  "tools": NO_TOOLS,
  "tools-runtime": NO_TOOLS,
  "mcp-servers-config": NO_TOOLS,
  "mcp-servers-json": NO_TOOLS,
  "special": "answers do not show the markup of special tokens",
  "sp": "answers do not show the markup of special tokens",
  "mmproj-url": "images and audio are not supported",
  "mmu": "images and audio are not supported",
  "docker-repo": "download the file, or use --hf-repo",
  "dr": "download the file, or use --hf-repo",
  "yarn-ext-factor": "the file's rope keys decide; change them with --override-kv",
  "yarn-attn-factor": "the file's rope keys decide; change them with --override-kv",
  "yarn-beta-slow": "the file's rope keys decide; change them with --override-kv",
  "yarn-beta-fast": "the file's rope keys decide; change them with --override-kv",
  "spec-ngram-size-n": "it was removed; see --spec-ngram-simple-size-n and --spec-ngram-mod-n-match",
  "spec-ngram-size-m": "it was removed; see --spec-ngram-simple-size-m",
  "spec-ngram-min-hits": "it was removed; see --spec-ngram-simple-min-hits",
  "list-devices": "bloomery --version lists the devices",
  "cache-list": "see the folder of --cache-dir",
  "cl": "see the folder of --cache-dir",
  "completion-bash": "see bloomery completions bash",
  ...Object.fromEntries(
    [
      "embd-gemma-default",
      "fim-qwen-1.5b-default",
      "fim-qwen-3b-default",
      "fim-qwen-7b-default",
      "fim-qwen-7b-spec",
      "fim-qwen-14b-spec",
      "fim-qwen-30b-default",
      "gpt-oss-20b-default",
      "gpt-oss-120b-default",
      "vision-gemma-4b-default",
      "vision-gemma-12b-default",
    ].map((name) => [name, "name the model with --hf-repo"]),
  ),
};
