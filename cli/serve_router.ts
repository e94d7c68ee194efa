/**
 * `bloomery serve` without a model: one address for several, each of which runs when it is asked for.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { ListenerSettings } from "../serve/server.ts";
import type { CatalogEntry } from "../serve/router/catalog.ts";
import { EXIT, type Flag, type Flags } from "./command.ts";
import { onHangUp } from "./hang_up.ts";
import type { Io } from "./io.ts";

export const ROUTER_FLAGS: readonly Flag[] = [
  {
    name: "models-dir",
    type: "string",
    value: "DIR",
    env: "LLAMA_ARG_MODELS_DIR",
    help: "serve the models of this folder, each when a request names it; default without -m: those downloaded",
  },
  {
    name: "models-preset",
    alias: ["models"],
    type: "string",
    value: "FILE",
    env: "LLAMA_ARG_MODELS_PRESET",
    help: "serve the models that an INI file describes: [NAME], model = FILE, and flags of its own",
  },
  {
    name: "models-max",
    type: "int",
    value: "N",
    min: 0,
    default: 4,
    env: "LLAMA_ARG_MODELS_MAX",
    help: "models that run at once at most, 0 = any number; the one that was not used for longest leaves",
  },
  {
    name: "models-autoload",
    type: "bool",
    off: [],
    env: "LLAMA_ARG_MODELS_AUTOLOAD",
    help: "a request starts the model that it names (default)",
  },
];

/** Flags that are the router's own, or a model's place. */
const NOT_HANDED_ON = new Set([
  ...ROUTER_FLAGS.map((f) => f.name),
  ...[
    "model",
    "hf-repo",
    "hf-file",
    "alias",
    "host",
    "port",
    "config",
    "log-file",
    "api-prefix",
    "path",
    "ui",
    "quiet",
  ],
  ...["api-key", "api-key-file", "ssl-key-file", "ssl-cert-file", "cors-origins", "cors-methods", "cors-headers"],
]);

/** Whether the flags ask for several models. */
export function wantsRouter(flags: Flags): boolean {
  const one = flags.str("model") !== undefined || flags.str("hf-repo") !== undefined;
  const several = flags.str("models-dir") ?? flags.str("models-preset");
  if (!one || several === undefined) return !one;
  throw new UsageError(
    "usage.model",
    "Cannot serve one model and several: found both a model and --models-dir or --models-preset",
    {
      hint: "leave one of them out",
    },
  );
}

/** Words that give a server of one model what the flags say for all. */
export function handedOn(flags: Flags): string[] {
  return [...flags.values].flatMap(([name, value]) => {
    const origin = flags.origins.get(name);
    if (NOT_HANDED_ON.has(name) || value === undefined || (origin !== "flag" && origin !== "config")) return [];
    if (typeof value === "boolean") return [value ? `--${name}` : `--no-${name}`];
    return (Array.isArray(value) ? value : [String(value)]).map((v) => `--${name}=${v}`);
  });
}

/** This program, to be started once more. */
export function ownCommand(main: string = Deno.mainModule): string[] {
  if (Deno.build.standalone) return [Deno.execPath()];
  return [Deno.execPath(), "run", "--allow-all", "--no-check", "--no-prompt", main];
}

async function catalogOf(flags: Flags): Promise<CatalogEntry[]> {
  const { modelsInFolder, modelsOfPreset } = await import("../serve/router/catalog.ts");
  const dir = flags.str("models-dir"), preset = flags.str("models-preset");
  const found = [
    ...preset === undefined ? [] : modelsOfPreset(preset),
    ...dir === undefined ? [] : modelsInFolder(dir),
    ...preset === undefined && dir === undefined ? await downloaded(flags) : [],
  ];
  const names = found.flatMap((e) => [e.id, ...e.aliases]);
  const twice = names.find((n, i) => names.indexOf(n) !== i);
  if (twice === undefined) return found;
  throw new UsageError("usage.models", `Cannot serve two models of one name: "${twice}"`, {
    at: { name: twice },
    hint: "name them apart",
  });
}

async function downloaded(flags: Flags): Promise<CatalogEntry[]> {
  const { defaultCacheDir } = await import("../hub/mod.ts");
  const { modelsInFolder } = await import("../serve/router/catalog.ts");
  const dir = flags.str("cache-dir") ?? defaultCacheDir((variable) => Deno.env.get(variable));
  try {
    Deno.statSync(dir);
  } catch {
    return []; // nothing was downloaded yet
  }
  return modelsInFolder(dir);
}

/** Serves until it is told to end. */
export async function serveSeveral(
  flags: Flags,
  io: Io,
  options: ListenerSettings,
  keys: () => string[],
): Promise<number> {
  const { startRouter } = await import("../serve/router/server.ts");
  const models = await catalogOf(flags), folder = Deno.makeTempDirSync({ prefix: "bloomery-" });
  try {
    const router = await startRouter({
      ...options,
      models,
      most: flags.num("models-max")!,
      autoload: !flags.has("models-autoload") || flags.bool("models-autoload"),
      command: ownCommand(),
      args: handedOn(flags),
      folder,
    });
    using _ = io.hold();
    router.fleet.onChange((i) => {
      const why = i.failure ? `: ${i.failure.text}` : "";
      io.note(`model ${i.entry.id}: ${i.state}${why}`);
    });
    if (models.length === 0) io.warn("there are no models: give --models-dir, --models-preset or -m");
    io.note(
      `serving on ${router.url}: ${models.length} ${
        models.length === 1 ? "model" : "models"
      }, each when it is asked for`,
    );
    const end = () => {
      io.note("finishing the running requests; once more ends at once");
      router.drain();
    };
    using _hup = onHangUp(io, () => router.reload(keys()));
    if (io.signal.aborted) end();
    else io.signal.addEventListener("abort", end, { once: true });
    await router.drained;
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
  return EXIT.done;
}
