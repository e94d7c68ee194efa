/**
 * Waits for a checkpoint that is still being fetched. Each file is checked as it arrives, so that a broken one is told then
 * and not at the end; when all are there, `prepare` can begin. The file's header needs the shapes of all tensors, so nothing
 * can be written before the last header has come.
 * @module
 */
import { openSafetensors } from "../../core/safetensors/read.ts";
import { FormatError, ModelError } from "../../core/errors.ts";

const INDEX = "model.safetensors.index.json";
const SHARD = /^(.*)-(\d{5})-of-(\d{5})\.safetensors$/;

export interface FollowOptions {
  signal?: AbortSignal;
  /** Milliseconds between looks at the folder. */
  interval?: number;
  /** Called for each file that has arrived whole. */
  onArrived?: (file: string, n_arrived: number, n_files: number) => void;
}

/** What is in the way of a file: nothing, or why it is not ready. */
type State = "ready" | "absent" | "growing";

/** Files of the folder that are wanted; undefined as long as nothing tells how many there are. */
function wantedFiles(dir: string): string[] | undefined {
  let names: string[];
  try {
    names = [...Deno.readDirSync(dir)].map((e) => e.name);
  } catch {
    return undefined;
  }
  if (!names.includes("config.json")) return undefined;
  if (names.includes(INDEX)) {
    try {
      const map = JSON.parse(Deno.readTextFileSync(dir + INDEX)).weight_map as Record<string, string>;
      return [...new Set(Object.values(map))].sort();
    } catch {
      return undefined; // not written to its end
    }
  }
  if (names.includes("model.safetensors")) return ["model.safetensors"];
  const shard = names.map((n) => SHARD.exec(n)).find((m) => m !== null);
  if (!shard) return undefined;
  return Array.from(
    { length: Number(shard[3]) },
    (_, i) => `${shard[1]}-${String(i + 1).padStart(5, "0")}-of-${shard[3]}.safetensors`,
  );
}

/** Faults of a file that has not come to its end. */
const UNFINISHED: ReadonlySet<string> = new Set(["format.short_file", "format.truncated"]);
/** Any fault of a file that changed within this time may go away. */
const SETTLED_MS = 10_000;

/** A file that is still being written is growing; one that has come to rest and is broken is a fault. */
function stateOf(path: string): State {
  let info: Deno.FileInfo;
  try {
    info = Deno.statSync(path);
  } catch {
    return "absent";
  }
  if (info.size === 0) return "growing";
  try {
    openSafetensors(path).close();
    return "ready";
  } catch (error) {
    const isRecent = Date.now() - (info.mtime?.getTime() ?? 0) < SETTLED_MS;
    if (isRecent || (error instanceof FormatError && UNFINISHED.has(error.code))) return "growing";
    throw error;
  }
}

/**
 * Resolves when every file of the checkpoint is there and whole.
 * @throws {FormatError} for a file that is damaged, not merely short; {@link ModelError} `model.unreadable` when there is no
 * such folder; the signal's reason.
 */
export async function followCheckpoint(folder: string, options: FollowOptions = {}): Promise<void> {
  const dir = folder.endsWith("/") ? folder : folder + "/";
  try {
    if (!Deno.statSync(dir).isDirectory) throw new Error("it is not a folder");
  } catch (cause) {
    throw new ModelError("model.unreadable", `Cannot follow ${dir}: ${(cause as Error).message}`, {
      at: { file: dir },
      cause,
    });
  }
  const arrived = new Set<string>();
  for (;;) {
    options.signal?.throwIfAborted();
    const wanted = wantedFiles(dir);
    for (const name of wanted ?? []) {
      if (arrived.has(name) || stateOf(dir + name) !== "ready") continue;
      arrived.add(name);
      options.onArrived?.(name, arrived.size, wanted!.length);
    }
    if (wanted && wanted.every((name) => arrived.has(name))) return;
    await new Promise((resolve) => setTimeout(resolve, options.interval ?? 1000));
  }
}
