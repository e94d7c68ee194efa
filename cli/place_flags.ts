/**
 * Flags that say where a model's weights lie, and what they mean to an engine.
 * @module
 */
import type { EngineOptions } from "../core/engine/mod.ts";
import { UsageError } from "../core/errors.ts";
import type { DeviceShare, LayerRun, PlaceOptions } from "../core/plan/places.ts";
import type { PlaceOverride } from "../core/program/place.ts";
import type { DeviceInfo } from "../core/program/backend.ts";
import type { Flag, Flags } from "./command.ts";
import { parseSize } from "./size.ts";

export const PLACE_FLAGS: readonly Flag[] = [
  {
    name: "place",
    type: "string",
    value: "PLACE",
    default: "auto",
    help:
      "where the weights go: auto = on a card what fits, with the experts of the first layers on the host where they do not; " +
      "card = all on the card; host = the same as --device cpu; 0:20,1:16 = 20 layers on the host and 16 on the first card",
  },
  {
    name: "host-room",
    type: "string",
    value: "SIZE",
    help:
      "host memory that the model may take, such as 8G; default: what is free, less a tenth. Experts that do not fit are read " +
      "from the drive as tokens need them",
  },
  {
    name: "card-room",
    type: "string",
    value: "SIZE",
    help: "memory of each card that the model may take, such as 20G; default: what is free",
  },
  {
    name: "n-gpu-layers",
    alias: ["ngl", "gpu-layers"],
    type: "int",
    value: "N",
    min: -2,
    words: { auto: -1, all: -2 },
    env: "LLAMA_ARG_N_GPU_LAYERS",
    help: "layers on the card, the last ones; the output counts as one. 0 = the same as --device cpu",
  },
  {
    name: "n-cpu-moe",
    alias: ["ncmoe"],
    type: "int",
    value: "N",
    min: 0,
    env: "LLAMA_ARG_N_CPU_MOE",
    help: "of the first N layers the routed experts are on the host",
  },
  {
    name: "cpu-moe",
    alias: ["cmoe"],
    type: "bool",
    env: "LLAMA_ARG_CPU_MOE",
    help: "the routed experts of all layers are on the host",
  },
  {
    name: "n-cpu-ffn",
    alias: ["ncffn"],
    type: "int",
    value: "N",
    min: 0,
    env: "LLAMA_ARG_N_CPU_FFN",
    help: "of the first N layers the feed-forward matrices are on the host",
  },
  {
    name: "override-tensor",
    alias: ["ot"],
    type: "strings",
    separator: ",",
    value: "REGEX=DEVICE",
    env: "LLAMA_ARG_OVERRIDE_TENSOR",
    help:
      "weights whose names fit are on that device: CPU, CUDA0, CUDA1. The first that fits counts; commas separate several",
  },
  {
    name: "split-mode",
    alias: ["sm"],
    type: "string",
    value: "MODE",
    env: "LLAMA_ARG_SPLIT_MODE",
    help: "over several cards: layer = layers are shared out (default), none = all on the one of --main-gpu",
  },
  {
    name: "tensor-split",
    alias: ["ts"],
    type: "string",
    value: "N0,N1",
    env: "LLAMA_ARG_TENSOR_SPLIT",
    help: "how many layers each of several cards has, in relation to the others; default: by free memory",
  },
  {
    name: "main-gpu",
    alias: ["mg"],
    type: "int",
    value: "N",
    min: 0,
    env: "LLAMA_ARG_MAIN_GPU",
    help: "the card that has the model with --split-mode none",
  },
  {
    name: "expert-rank",
    type: "string",
    value: "FILE",
    help:
      "which experts stay in memory first, where not all do: a .json file of bloomery rank, or an importance matrix",
  },
];

function refuse(flag: string, text: string, expected: string, hint?: string): never {
  throw new UsageError("usage.value", `Cannot use --${flag} ${text}: expected ${expected}`, {
    at: { flag: `--${flag}`, got: text },
    ...(hint === undefined ? {} : { hint }),
  });
}

/** `0:20,1:16`, where the last number of layers may be left out. @throws {UsageError} `usage.value` */
export function parseSplit(text: string): LayerRun[] {
  const parts = text.split(",");
  return parts.map((part, i) => {
    const m = /^(\d{1,4})(?::(\d{1,6}))?$/.exec(part.trim());
    if (!m || (m[2] === undefined && i < parts.length - 1)) {
      refuse("place", text, "auto, card, host, or layers of devices such as 0:20,1:16");
    }
    return m[2] === undefined ? { device: Number(m[1]) } : { device: Number(m[1]), layers: Number(m[2]) };
  });
}

/** What llama.cpp calls the memory of each device: `CPU`, `CUDA0`. */
function bufferNames(devices: readonly DeviceInfo[]): Map<string, number> {
  const names = new Map<string, number>(), seen = new Map<string, number>();
  for (const { kind, index } of devices) {
    const n = seen.get(kind) ?? 0;
    seen.set(kind, n + 1);
    names.set(kind === "cuda" ? `CUDA${n}` : n === 0 ? "CPU" : `CPU${n}`, index);
  }
  return names;
}

/** @throws {UsageError} `usage.value` */
export function parseOverrides(texts: readonly string[], devices: readonly DeviceInfo[]): PlaceOverride[] {
  const names = bufferNames(devices);
  return texts.map((text) => {
    const at = text.lastIndexOf("="), device = names.get(text.slice(at + 1).trim().toUpperCase());
    const expected = `REGEX=DEVICE with one of ${[...names.keys()].join(", ")}`;
    if (at < 1 || device === undefined) refuse("override-tensor", text, expected);
    try {
      return { pattern: new RegExp(text.slice(0, at)), device };
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      refuse("override-tensor", text, `a regular expression before the =: ${error.message}`);
    }
  });
}

/** Shares of the devices that layers are shared out over: numbers, or what is free there. @throws {UsageError} `usage.value` */
export function parseShares(text: string | undefined, devices: readonly DeviceInfo[]): DeviceShare[] {
  if (text === undefined) return devices.map((d) => ({ device: d.index, share: d.free_bytes }));
  const shares = text.split(/[,/]/).map(Number);
  const fits = shares.length <= devices.length && shares.every((n) => Number.isFinite(n) && n >= 0) &&
    shares.some((n) => n > 0);
  if (!fits) {
    refuse(
      "tensor-split",
      text,
      `at most ${devices.length} numbers separated by commas, for ${devices.map((d) => d.name).join(", ")}`,
      "name the cards with --device cuda:0,cuda:1",
    );
  }
  return devices.flatMap((d, i) => shares[i] > 0 ? [{ device: d.index, share: shares[i] }] : []);
}

/** Devices of a backend that a model is put on where the host is not asked for. */
function offloadDevices(flags: Flags, devices: readonly DeviceInfo[], device: DeviceInfo): DeviceInfo[] {
  const isList = flags.str("device")?.includes(",") === true || flags.has("tensor-split");
  const others = devices.filter((d) => d.index !== 0);
  return isList && flags.str("split-mode") !== "none" && others.length > 0 ? others : [device];
}

/**
 * What the flags ask of a plan.
 * @param device The one that `--device` chose.
 * @throws {UsageError} `usage.value`
 */
export function placeOf(flags: Flags, devices: readonly DeviceInfo[], device: number): PlaceOptions {
  const place = flags.str("place") ?? "auto", ngl = flags.num("n-gpu-layers");
  const main = devices.find((d) => d.index === device) ?? devices[0];
  const overrides = parseOverrides(flags.strs("override-tensor"), devices);
  const experts = flags.bool("cpu-moe") ? Infinity : flags.num("n-cpu-moe");
  const moved: PlaceOptions = {
    ...overrides.length > 0 ? { overrides } : {},
    ...experts === undefined ? {} : { hostExperts: experts },
    ...flags.has("n-cpu-ffn") ? { hostFeedForward: flags.num("n-cpu-ffn")! } : {},
  };
  if (!["auto", "card", "host"].includes(place)) return { split: parseSplit(place), ...moved };
  const over = offloadDevices(flags, devices, main), isPart = ngl !== undefined && ngl >= 0;
  if (main.index !== 0 && (over.length > 1 || isPart)) {
    const last = { layers: isPart ? ngl : Infinity, devices: parseShares(flags.str("tensor-split"), over) };
    return { last, ...moved };
  }
  // Who says what goes where is taken at his word.
  const isOpen = place === "auto" && Object.keys(moved).length === 0 && ngl !== -2;
  return { ...isOpen ? { spread: true } : {}, ...moved };
}

/**
 * What the flags ask of an engine.
 * @throws {UsageError} `usage.size`, `usage.value` @throws {FormatError} `format.rank`, `format.imatrix`
 */
export async function placementOf(
  flags: Flags,
): Promise<Pick<EngineOptions, "hostRoom" | "cardRoom" | "rank" | "place">> {
  const room = flags.str("host-room"), card = flags.str("card-room"), rank = flags.str("expert-rank");
  const mode = flags.str("split-mode");
  if (mode !== undefined && !["none", "layer"].includes(mode)) {
    refuse(
      "split-mode",
      mode,
      "layer or none",
      "rows of a matrix are not shared out over cards: use --split-mode layer",
    );
  }
  return {
    ...(room === undefined ? {} : { hostRoom: parseSize(room, "host-room") }),
    ...(card === undefined
      ? {}
      : { cardRoom: Math.min(...card.split(",").map((c) => parseSize(c.trim(), "card-room"))) }),
    ...(rank === undefined ? {} : { rank: await (await import("./residency.ts")).readRank(rank) }),
    place: (devices, device) => placeOf(flags, devices, device),
  };
}
