/**
 * What commands say of experts that were read from the drive, and ranks of experts as files.
 * @module
 */
import type { Engine } from "../core/engine/mod.ts";
import type { ExpertRank, ResidencyStats } from "../core/engine/residency.ts";
import { FormatError } from "../core/errors.ts";
import { readText } from "./text_file.ts";
import { formatAmount } from "./progress.ts";

const SCHEMA = "bloomery.rank/1";

/** The counts of a rank's document; a text says what is wrong with it. */
function rankCounts(document: unknown): ExpertRank | string {
  const { schema, counts } = (document ?? {}) as { schema?: unknown; counts?: unknown };
  if (schema !== SCHEMA) return `schema is ${JSON.stringify(schema)}, expected "${SCHEMA}"`;
  if (typeof counts !== "object" || counts === null) return "counts is not an object";
  for (const [name, rows] of Object.entries(counts)) {
    const fits = Array.isArray(rows) && rows.every((n) => typeof n === "number" && n >= 0);
    if (!fits) return `counts of ${name} are not an array of numbers of at least 0`;
  }
  return new Map(Object.entries(counts as Record<string, number[]>));
}

/** A rank as the document that `readRank` takes. */
export function rankDocument(model: string, n_tokens: number, counts: ExpertRank) {
  return {
    schema: SCHEMA,
    model,
    n_tokens,
    counts: Object.fromEntries([...counts].map(([name, rows]) => [name, Array.from(rows)])),
  };
}

/**
 * The rows of each expert from a rank file, or from the counts of an importance matrix.
 * @throws {FormatError} `format.rank`, `format.imatrix`
 */
export async function readRank(path: string): Promise<ExpertRank> {
  if (!path.toLowerCase().endsWith(".json")) {
    const { readImatrix } = await import("../quantize/imatrix.ts");
    return new Map([...readImatrix(path).sums].map(([name, { counts }]) => [name, counts]));
  }
  let document: unknown;
  try {
    document = JSON.parse(readText(path, "expert-rank"));
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new FormatError("format.rank", `Cannot read rank ${path}: ${cause.message}`, { at: { file: path }, cause });
  }
  const counts = rankCounts(document);
  if (typeof counts !== "string") return counts;
  throw new FormatError("format.rank", `Cannot read rank ${path}: ${counts}`, {
    at: { file: path },
    hint: "make one with bloomery rank",
  });
}

const percent = (hits: number, misses: number) =>
  hits + misses === 0 ? "-" : `${(100 * hits / (hits + misses)).toFixed(1)} %`;

/** Hit rates in one line, and one more for each layer where they are wanted. */
export function describeResidency(stats: ResidencyStats, byLayer = false): string {
  const { hits, misses, read_bytes, ahead_bytes, unused_bytes, wait_ms, n_held, n_slots, n_needed } = stats;
  const line =
    `experts: ${percent(hits, misses)} of ${hits + misses} were in memory (${n_held} of ${n_slots} slots full), ` +
    `${formatAmount(read_bytes, "B")} read, waited ${(wait_ms / 1000).toFixed(2)} s`;
  const guessed = (l: { n_needed: number; n_right: number }) => percent(l.n_right, l.n_needed - l.n_right);
  const ahead = n_needed === 0 ? [] : [
    `guessed ${guessed(stats)} of the ${n_needed} that layers needed, ` +
    `${formatAmount(ahead_bytes, "B")} read ahead, ${formatAmount(unused_bytes, "B")} of it for nothing`,
  ];
  const text = [line, ...ahead].join("; ");
  if (!byLayer) return text;
  const layers = stats.layers.map((l) =>
    `  ${l.name}  ${percent(l.hits, l.misses)}${l.n_needed === 0 ? "" : `, guessed ${guessed(l)}`}`
  );
  return [text, ...layers].join("\n");
}

/** The line of an engine's experts; undefined where all are resident. */
export function residencyNote(engine: Engine, byLayer = false): string | undefined {
  return engine.residency && describeResidency(engine.residency.stats, byLayer);
}
