/**
 * How a checkpoint's vectors are pooled, as sentence-transformers writes it beside the model.
 * @module
 */
import { ModelError } from "../../core/errors.ts";
import type { CheckpointFacts } from "./family.ts";

type Json = Record<string, unknown>;

const isObject = (v: unknown): v is Json => typeof v === "object" && v !== null && !Array.isArray(v);

/** Fields of a pooling module that are true, and values of its `pooling_mode`, with llama.cpp's numbers. */
const MODES: readonly (readonly [field: string, mode: string, number: number])[] = [
  ["pooling_mode_mean_tokens", "mean", 1],
  ["pooling_mode_cls_token", "cls", 2],
  ["pooling_mode_lasttoken", "lasttoken", 3],
];

/** Modules of sentence-transformers whose type ends so: their folders. */
export function modulePaths(facts: Pick<CheckpointFacts, "json">, type: string): string[] {
  const modules = facts.json("modules.json");
  if (!Array.isArray(modules)) return [];
  return modules.filter((m): m is Json => isObject(m) && String(m.type).endsWith(type)).map((m) => String(m.path));
}

/**
 * `pooling_type`, or undefined where nothing says it.
 * @throws {ModelError} `model.config` for a way of pooling that files have no number for
 */
export function poolingType(facts: Pick<CheckpointFacts, "json">): number | undefined {
  const [path] = modulePaths(facts, "Pooling");
  if (path === undefined) return undefined;
  const file = `${path}/config.json`, config = facts.json(file);
  if (isObject(config)) {
    const found = MODES.find(([field]) => config[field] === true) ??
      MODES.find(([, mode]) => config.pooling_mode === mode);
    if (found) return found[2];
  }
  throw new ModelError("model.config", `Cannot use ${file}: it pools neither by mean nor by first or last token`, {
    at: { file, expected: MODES.map(([field]) => field) },
  });
}
