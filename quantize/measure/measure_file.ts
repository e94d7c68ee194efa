/**
 * Files of measured losses: for each tensor and type what the model loses when that tensor alone becomes that type.
 * @module
 */
import { QuantizeError } from "../../core/errors.ts";
import { type GgmlType, ggmlTypeByName } from "../../core/gguf/types.ts";

const SCHEMA = "bloomery.measure/1";

/** How losses are measured. `kl`: nats a token of the output's distribution; `error`: share of the product's energy. */
export const MEASURES = ["kl", "error"] as const;
/** One of them. */
export type MeasuredBy = typeof MEASURES[number];

/** What the losses of a file are of. A later run adds to them only where all of this but the names is the same. */
export interface MeasureJob {
  /** Path of the model. */
  readonly model: string;
  /** What it is; see `contentKey`. */
  readonly model_key: string;
  readonly by: MeasuredBy;
  /** Path of the importance matrix that encoders were given. */
  readonly imatrix: string | null;
  /** What it is; see `imatrixKey`. */
  readonly imatrix_key: string | null;
  /** What a loss is the mean of, such as the texts and their windows. */
  readonly over: Readonly<Record<string, string | number | boolean | readonly string[]>>;
}

/** The loss of a tensor in one type. */
export interface Loss {
  readonly type: GgmlType;
  /** Of the tensor in this type. */
  readonly bytes: number;
  readonly loss: number;
  /** Its standard error, where there are several windows. */
  readonly se: number | null;
}

/** What was measured of a tensor. */
export interface MeasuredTensor {
  readonly name: string;
  readonly ne: readonly number[];
  readonly losses: readonly Loss[];
}

/** A file of losses. */
export interface MeasureFile {
  readonly job: MeasureJob;
  readonly tensors: readonly MeasuredTensor[];
}

/** What two jobs differ in; undefined where one continues the other. */
export function measureDifference(a: MeasureJob, b: MeasureJob): string | undefined {
  for (const key of ["by", "model_key", "imatrix_key"] as const) {
    if (a[key] !== b[key]) return `${key} was ${a[key] ?? "none"}, now it is ${b[key] ?? "none"}`;
  }
  for (const key of new Set([...Object.keys(a.over), ...Object.keys(b.over)])) {
    const [was, is] = [a.over[key], b.over[key]].map((v) => JSON.stringify(v) ?? "none");
    if (was !== is && key !== "texts") return `${key} was ${was}, now it is ${is}`;
  }
  return undefined;
}

/** Writes beside and renames, so that a killed run leaves the earlier file. */
export function writeMeasure(file: MeasureFile, path: string): void {
  const tensors = file.tensors.map(({ name, ne, losses }) => ({
    name,
    ne,
    losses: losses.map(({ type, bytes, loss, se }) => ({ type: type.name, bytes, loss, se })),
  }));
  const lines = tensors.map((t) => JSON.stringify(t)).join(",\n");
  Deno.writeTextFileSync(
    `${path}.partial`,
    `{"schema":${JSON.stringify(SCHEMA)},"job":${JSON.stringify(file.job)},"tensors":[\n${lines}\n]}\n`,
  );
  Deno.renameSync(`${path}.partial`, path);
}

type Json = Record<string, unknown>;

/** Getters that name what is wrong by its field. */
class Reader {
  constructor(readonly path: string) {}

  wrong(field: string, found: unknown, expected: string): QuantizeError {
    const told = (JSON.stringify(found) ?? "nothing").slice(0, 80);
    return new QuantizeError(
      "quantize.measure_file",
      `Cannot read ${this.path}, field "${field}": found ${told}, expected ${expected}`,
      { at: { file: this.path, field, expected }, hint: "give a file that bloomery measure wrote" },
    );
  }
  object(v: unknown, field: string): Json {
    if (typeof v !== "object" || v === null || Array.isArray(v)) throw this.wrong(field, v, "an object");
    return v as Json;
  }
  list(v: unknown, field: string): unknown[] {
    if (!Array.isArray(v)) throw this.wrong(field, v, "a list");
    return v;
  }
  text(v: unknown, field: string): string {
    if (typeof v !== "string") throw this.wrong(field, v, "a text");
    return v;
  }
  count(v: unknown, field: string): number {
    if (!Number.isSafeInteger(v) || (v as number) < 1) throw this.wrong(field, v, "a whole number from 1");
    return v as number;
  }
  loss(v: unknown, field: string): number {
    if (typeof v !== "number" || !Number.isFinite(v) || v < 0) throw this.wrong(field, v, "a number from 0");
    return v;
  }
}

function readJob(r: Reader, v: unknown): MeasureJob {
  const o = r.object(v, "job");
  const orNull = (key: string) => o[key] === null ? null : r.text(o[key], `job.${key}`);
  const by = MEASURES.find((m) => m === o.by);
  if (by === undefined) throw r.wrong("job.by", o.by, MEASURES.join(" or "));
  const over = r.object(o.over, "job.over");
  for (const [key, value] of Object.entries(over)) {
    const list = Array.isArray(value) && value.every((x) => typeof x === "string");
    if (!list && !["string", "number", "boolean"].includes(typeof value)) {
      throw r.wrong(`job.over.${key}`, value, "a text, a number, true, false or a list of texts");
    }
  }
  return {
    model: r.text(o.model, "job.model"),
    model_key: r.text(o.model_key, "job.model_key"),
    by,
    imatrix: orNull("imatrix"),
    imatrix_key: orNull("imatrix_key"),
    over: over as MeasureJob["over"],
  };
}

function readTensor(r: Reader, v: unknown, field: string): MeasuredTensor {
  const o = r.object(v, field);
  const losses = r.list(o.losses, `${field}.losses`).map((item, i) => {
    const at = `${field}.losses[${i}]`, l = r.object(item, at);
    const type = ggmlTypeByName(r.text(l.type, `${at}.type`));
    if (type === undefined) throw r.wrong(`${at}.type`, l.type, "the name of a tensor type");
    return {
      type,
      bytes: r.count(l.bytes, `${at}.bytes`),
      loss: r.loss(l.loss, `${at}.loss`),
      se: l.se === null ? null : r.loss(l.se, `${at}.se`),
    };
  });
  const twice = losses.find((l, i) => losses.findIndex((o) => o.type.id === l.type.id) !== i);
  if (twice) throw r.wrong(`${field}.losses`, twice.type.name, "each type once");
  return {
    name: r.text(o.name, `${field}.name`),
    ne: r.list(o.ne, `${field}.ne`).map((n, i) => r.count(n, `${field}.ne[${i}]`)),
    losses,
  };
}

/**
 * Reads a file of losses.
 * @param path What messages call it.
 * @throws {QuantizeError} `quantize.measure_file` naming the field
 */
export function parseMeasure(text: string, path: string): MeasureFile {
  const r = new Reader(path);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new QuantizeError("quantize.measure_file", `Cannot read ${path}: it is not JSON`, {
      at: { file: path },
      hint: "give a file that bloomery measure wrote",
      cause,
    });
  }
  const o = r.object(value, "the file");
  if (o.schema !== SCHEMA) throw r.wrong("schema", o.schema, JSON.stringify(SCHEMA));
  const job = readJob(r, o.job);
  const tensors = r.list(o.tensors, "tensors").map((t, i) => readTensor(r, t, `tensors[${i}]`));
  const seen = new Set<string>();
  for (const { name } of tensors) {
    if (seen.size === seen.add(name).size) throw r.wrong("tensors", name, "each tensor once");
  }
  return { job, tensors };
}
