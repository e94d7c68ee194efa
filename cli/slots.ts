/**
 * How a server's context is divided: `--ctx-size` is the total over all slots, as llama-server has it.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { Flag, Flags } from "./command.ts";
import { COMMON } from "./flags.ts";

/** Slots where `--parallel` does not say how many. */
const AUTO_SLOTS = 4;

export const SLOT_FLAGS = {
  ctxSize: {
    ...COMMON.ctxSize,
    help:
      "tokens of context over all slots (n_ctx), 0 = as if not given: a slot has --ctx-size / --parallel of them, or all " +
      "where slots share them (--kv-unified); default: what the model was trained for, or the most that fits",
  },
  parallel: {
    name: "parallel",
    alias: ["np"],
    type: "int",
    value: "N",
    default: -1,
    min: -1,
    max: 256,
    words: { auto: -1 },
    env: "LLAMA_ARG_N_PARALLEL",
    help: `requests answered at the same time (slots), -1 = ${AUTO_SLOTS} that share the context`,
  },
  unified: {
    name: "kv-unified",
    alias: ["kvu"],
    type: "bool",
    off: ["no-kvu"],
    env: "LLAMA_ARG_KV_UNIFIED",
    help:
      "every slot may take the whole context; where it is full, requests give way to others; default with --parallel -1",
  },
  perSlot: {
    name: "kv-unified-per-slot",
    type: "int",
    value: "N",
    min: 1,
    env: "LLAMA_ARG_KV_UNIFIED_PER_SLOT",
    help: "most tokens of a slot",
  },
  cacheSize: {
    name: "cache-size",
    type: "int",
    value: "N",
    min: 1,
    help: "tokens the cache holds over all slots, where they are to be fewer than the slots' contexts together",
  },
} as const satisfies Record<string, Flag>;

/** What becomes of what slots have computed. */
export const SLOT_CACHE_FLAGS: readonly Flag[] = [
  {
    name: "slot-save-path",
    type: "string",
    value: "DIR",
    env: "LLAMA_ARG_SLOT_SAVE_PATH",
    help: "folder for POST /slots/N?action=save, restore and erase; without it they are refused",
  },
  {
    name: "cache-ram",
    alias: ["cram"],
    type: "int",
    value: "MIB",
    default: 0,
    min: -1,
    env: "LLAMA_ARG_CACHE_RAM",
    help: "host memory for computed prompts that slots give up, in MiB, -1 = no limit",
  },
  {
    name: "slot-prompt-similarity",
    alias: ["sps"],
    type: "number",
    value: "SHARE",
    default: 0.1,
    min: 0,
    max: 1,
    help:
      "share of a prompt that a slot must have computed for the prompt to take its place; below, it copies the beginning",
  },
  {
    name: "sleep-idle-seconds",
    type: "number",
    value: "N",
    default: -1,
    min: -1,
    help: "seconds without a request after which the model leaves memory; the next request loads it again; -1 = never",
  },
  {
    name: "context-shift",
    type: "bool",
    off: [],
    env: "LLAMA_ARG_CONTEXT_SHIFT",
    help: "drop old tokens where a context is full and go on, instead of ending the answer; the rest is computed again",
  },
  {
    name: "keep",
    type: "int",
    value: "N",
    default: 0,
    min: -1,
    help: "first tokens that stay then, -1 = the prompt",
  },
];

/** Settings of the server that these flags give. @throws {UsageError} `usage.file` for a folder that is none */
export function slotCacheOf(flags: Flags): {
  slotSavePath?: string;
  promptCacheBytes: number;
  similarity: number;
  sleepAfterMs: number;
  contextShift: boolean;
  n_keep: number;
} {
  const path = flags.str("slot-save-path"), mib = flags.num("cache-ram") ?? 0;
  if (path !== undefined && !isFolder(path)) {
    throw new UsageError("usage.file", `Cannot save slots in ${path} of --slot-save-path: it is no folder`, {
      at: { flag: "--slot-save-path", file: path },
      hint: "make it first",
    });
  }
  return {
    ...(path === undefined ? {} : { slotSavePath: path }),
    promptCacheBytes: mib < 0 ? Infinity : mib * 2 ** 20,
    similarity: flags.num("slot-prompt-similarity")!,
    sleepAfterMs: Math.max(0, flags.num("sleep-idle-seconds")! * 1000),
    contextShift: flags.bool("context-shift"),
    n_keep: flags.num("keep")!,
  };
}

function isFolder(path: string): boolean {
  try {
    return Deno.statSync(path).isDirectory;
  } catch {
    return false;
  }
}

export interface Slots {
  readonly n_slots: number;
  /** Most tokens of a slot; undefined leaves it to the engine. */
  readonly n_ctx?: number;
  /** Tokens of all slots together; undefined: `contexts` whole ones. */
  readonly n_cache?: number;
  readonly contexts: number;
}

/** @throws {UsageError} `usage.context` when a slot gets nothing */
export function slotsOf(flags: Flags): Slots {
  const asked = flags.num("parallel") ?? -1;
  const n_slots = asked < 1 ? AUTO_SLOTS : asked;
  const unified = flags.has("kv-unified") ? flags.bool("kv-unified") : asked < 1;
  const perSlot = flags.num("kv-unified-per-slot");
  const total = flags.num("ctx-size") || undefined;
  const whole = total === undefined ? perSlot : unified ? total : Math.floor(total / n_slots);
  const n_ctx = whole === undefined ? undefined : Math.min(whole, perSlot ?? Infinity);
  if (n_ctx !== undefined && n_ctx < 1) {
    throw new UsageError("usage.context", `Cannot divide a context of ${total} tokens among ${n_slots} slots`, {
      at: { n_ctx: total, n_slots },
      hint: "raise --ctx-size, lower --parallel, or let slots share it with --kv-unified",
    });
  }
  const n_cache = flags.num("cache-size") ?? total;
  return {
    n_slots,
    ...(n_ctx === undefined ? {} : { n_ctx }),
    ...(n_cache === undefined ? {} : { n_cache: Math.max(n_cache, n_ctx ?? 1) }),
    // Slots that share hold one context together, unless each is held to a length of its own.
    contexts: unified && perSlot === undefined ? 1 : n_slots,
  };
}
