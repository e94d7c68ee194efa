/**
 * Which model file a command works on: the one of `--model`, or a downloaded one of `--hf-repo`.
 * @module
 */
import type { ModelSource } from "../core/arch/mod.ts";
import { fileSource } from "../core/bytes.ts";
import { UsageError } from "../core/errors.ts";
import type { Backend } from "../core/program/backend.ts";
import type { Pulled } from "../hub/mod.ts";
import type { Flags } from "./command.ts";
import type { Io } from "./io.ts";

/** Downloads a model of the Hub, where it is not there yet. Flags: `HUB_FLAGS`. */
export async function pullFromFlags(name: string, flags: Flags, io: Io): Promise<Pulled> {
  const { defaultCacheDir, pullModel } = await import("../hub/mod.ts");
  let bar: ReturnType<Io["bar"]> | undefined;
  using _ = io.hold();
  io.ifInterrupted("stopped; run the same command to continue");
  const pulled = await pullModel(name, {
    endpoint: flags.str("hf-endpoint")!,
    token: flags.str("hf-token"),
    cacheDir: flags.str("cache-dir") ?? defaultCacheDir((variable) => Deno.env.get(variable)),
    file: flags.str("hf-file"),
    offline: flags.bool("offline"),
    signal: io.signal,
    onProgress: (p) => (bar ??= io.bar("download", p.total, "B")).update(p.done, p.resumed),
    onRetry: (text) => io.note(text),
    onNote: (text) => io.warn(text),
  });
  if (pulled.fetched > 0) bar?.stop();
  else bar?.cancel();
  io.ifInterrupted(undefined);
  return pulled;
}

/**
 * The path of the model that the flags name: a folder, or a file that can be opened. Flags: `MODEL_SOURCE_FLAGS`.
 * @throws {UsageError} `usage.missing_flag`, `usage.model` · `format.unreadable`
 */
export async function modelPath(flags: Flags, io: Io): Promise<string> {
  const path = await namedModel(flags, io);
  if (!isFolder(path)) fileSource(path).close(); // before a device is opened for it
  return path;
}

function isFolder(path: string): boolean {
  try {
    return Deno.statSync(path).isDirectory;
  } catch {
    return false; // the file's own error says more
  }
}

/**
 * Opens the headers of a model: a GGUF file, or a Hugging Face folder as the file it would become.
 * @param backend Encodes Q8_0 for checkpoints in 8 bits; a slower encoder does it where left out.
 */
export async function openSource(path: string, io: Io, backend?: Backend): Promise<ModelSource> {
  if (!isFolder(path)) {
    const { openGguf } = await import("../core/gguf/read.ts");
    return openGguf(path);
  }
  const { openFolderModel } = await import("../quantize/folder_model.ts");
  const { formatBytes } = await import("../core/plan/bytes.ts");
  const model = openFolderModel(path, backend ? { quantize: (job) => backend.quantize(job) } : {});
  for (const w of model.warnings) io.warn(w);
  for (const { type, n, bytes } of model.converted) {
    io.note(`${n} tensors of ${path} become ${type.name} while they load (${formatBytes(bytes)})`);
  }
  return model;
}

async function namedModel(flags: Flags, io: Io): Promise<string> {
  const model = flags.str("model"), repo = flags.str("hf-repo");
  if (model !== undefined && repo !== undefined) {
    // An environment variable of a service must not stand in the way of a flag.
    const origin = (name: string) => flags.origins.get(name);
    if (origin("model") === origin("hf-repo")) {
      throw new UsageError("usage.model", "Cannot use two models: both --model and --hf-repo are given", {
        hint: "give one of them",
      });
    }
    const order = ["flag", "env", "config"];
    const first = order.indexOf(origin("model")!) < order.indexOf(origin("hf-repo")!);
    return first ? model : (await pullFromFlags(repo, flags, io)).path;
  }
  if (model !== undefined) return model;
  if (repo !== undefined) return (await pullFromFlags(repo, flags, io)).path;
  throw new UsageError("usage.missing_flag", "Cannot work without a model: found neither -m nor -hf", {
    hint: "give -m FILE, or -hf OWNER/REPO to download one",
  });
}
