/**
 * Choosing and opening a backend by name, and a model on it.
 * @module
 */
import type { ModelSource } from "../core/arch/mod.ts";
import { UsageError } from "../core/errors.ts";
import { LanguageModel, type LanguageModelOptions } from "../core/language_model.ts";
import type { Backend, DeviceInfo } from "../core/program/backend.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { openNativeBackend } from "./backend.ts";
import { libraryPath } from "./library.ts";

export { buildInfo, openNativeBackend } from "./backend.ts";
export { ABI_VERSION, libraryPath } from "./library.ts";

/** A backend and the device of it that a name chose. */
export interface OpenedBackend extends Disposable {
  /** Close it by holding this with `using`. */
  readonly backend: Backend;
  /** The device that was asked for; of a list the first that is not the host. */
  readonly device: DeviceInfo;
}

function opened(backend: Backend, index: number): OpenedBackend {
  const device = backend.devices.find((d) => d.index === index);
  if (!device) throw new Error(`the backend has no device ${index}`);
  return { backend, device, [Symbol.dispose]: () => backend[Symbol.dispose]() };
}

/** The cards that a list of device names asks for, by their number; `cpu` and `reference` are -1. */
function namedDevices(name: string): number[] {
  return name.split(",").map((one) => {
    const cuda = /^cuda(?::(\d+))?$/.exec(one);
    if (cuda) return Number(cuda[1] ?? 0);
    if (one === "cpu" || (one === "reference" && !name.includes("cpu") && !name.includes("cuda"))) return -1;
    throw new UsageError(
      "usage.device",
      `Cannot use --device ${name}: expected auto, cpu, cuda, cuda:N or reference, or several of them separated by commas`,
      { at: { flag: "--device", got: name } },
    );
  });
}

/**
 * Opens the backend a device name asks for.
 *
 * @param name `auto` (the first CUDA card when there is one, else the CPU), `cpu`, `cuda`, `cuda:1`, `reference`; or several with commas
 * between them: a name that comes again adds a logical device.
 * @param threads Host threads, 0 = one per core.
 * @throws {UsageError} `usage.device` for an unknown name or a card that is not there
 * @throws {NativeError} `native.library_missing`, ...
 */
export function openBackend(name = "auto", options: { threads?: number } = {}): OpenedBackend {
  const isAuto = name === "auto", names = isAuto ? [0] : namedDevices(name);
  const wantsCard = names.some((n) => n >= 0);
  if (name.startsWith("reference")) return chosen(openReferenceBackend(), names, name);
  if (!wantsCard || (isAuto && libraryPath("cuda") === undefined)) {
    return chosen(openNativeBackend("cpu", options), isAuto ? [-1] : names, name);
  }
  const backend = openNativeBackend("cuda", options);
  const hasCard = backend.devices.some((d) => d.kind === "cuda");
  return chosen(backend, isAuto && !hasCard ? [-1] : names, name);
}

/** Adds the logical devices of a list, and finds the one that is asked for first. */
function chosen(backend: Backend, names: readonly number[], name: string): OpenedBackend {
  try {
    const cards = backend.devices.filter((d) => d.kind === "cuda"), seen = new Set<number>();
    const indices = names.map((n) => {
      const index = n < 0 ? 0 : cards[n]?.index;
      if (index === undefined) {
        throw new UsageError("usage.device", `Cannot use --device ${name}: found ${cards.length} CUDA devices`, {
          at: { flag: "--device", got: name, n_cards: cards.length },
          hint: "see bloomery --version for the devices of this machine",
        });
      }
      if (seen.has(index)) return backend.addDevice(index);
      seen.add(index);
      return index;
    });
    return opened(backend, indices.find((i) => i !== 0) ?? 0);
  } catch (error) {
    backend[Symbol.dispose]();
    throw error;
  }
}

/** A model with the backend that runs it; disposing it closes both. */
export interface OpenedModel extends Disposable {
  /** Text in, text out. */
  readonly model: LanguageModel;
  /** What runs it. */
  readonly backend: Backend;
  /** Where it lies. */
  readonly device: DeviceInfo;
}

/**
 * Opens a model on a device: a GGUF file by its path, or one that is open already, such as a checkpoint's folder.
 * @example
 * ```ts ignore
 * using opened = await openModel("model.gguf", { device: "cpu" });
 * let answer = "";
 * for await (const { text } of opened.model.chat([{ role: "user", content: "Who are you?" }])) answer += text;
 * ```
 */
export async function openModel(
  from: string | ModelSource | ((backend: Backend) => ModelSource | Promise<ModelSource>),
  options: Omit<LanguageModelOptions, "device"> & { device?: string; threads?: number } = {},
): Promise<OpenedModel> {
  const { device: name, threads, ...rest } = options;
  const { backend, device } = openBackend(name, threads === undefined ? {} : { threads });
  try {
    const source = typeof from === "function" ? await from(backend) : from;
    const model = await LanguageModel.load(source, backend, { ...rest, device: device.index });
    return {
      model,
      backend,
      device,
      [Symbol.dispose]: () => {
        model[Symbol.dispose]();
        backend[Symbol.dispose]();
      },
    };
  } catch (error) {
    backend[Symbol.dispose]();
    throw error;
  }
}
