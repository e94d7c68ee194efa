/**
 * A machine as predictions know it: what its memory, its processors and its drives move and compute in a second. `bloomery machine`
 * measures one; the document of another machine does as well.
 * @module
 */
import { FormatError } from "../errors.ts";

/** Products with matrices of one type. */
export interface ProductRate {
  /** Bytes of weights a second, with one row of activations. */
  readonly one: number;
  /** Multiply-adds a second, with many rows. */
  readonly many: number;
}

/** A host or a card. */
export interface Processor {
  readonly name: string;
  /** Bytes a second that one row's products read at most, and that a cache is read with. */
  readonly bandwidth: number;
  /** Seconds of an op that has nearly nothing to do. */
  readonly op: number;
  /** By the name of a type. */
  readonly products: Readonly<Record<string, ProductRate>>;
}

export interface Card extends Processor {
  /** Bytes a second from host memory to the card's, and back. */
  readonly to_card: number;
  readonly to_host: number;
}

export interface Drive {
  /** What was read. */
  readonly path: string;
  /** Bytes a second past the page cache: of reads of about an expert at random places, and of neighbours. */
  readonly random: number;
  readonly sequential: number;
}

/** Of a machine's document. */
export const MACHINE_SCHEMA = "bloomery.machine/1";

export interface Machine {
  readonly schema: typeof MACHINE_SCHEMA;
  readonly host: Processor & { readonly n_threads: number };
  readonly cards: readonly Card[];
  readonly drives: readonly Drive[];
}

/** Reads fields of a document, and knows where it is. */
class Fields {
  constructor(readonly file: string, readonly at: string, readonly value: unknown) {}

  refuse(what: string): never {
    const where = this.at === "" ? "the document" : this.at;
    throw new FormatError("format.machine", `Cannot use ${this.file} as a machine: ${where} ${what}`, {
      at: { file: this.file, field: this.at },
      hint: "make one with bloomery machine -o FILE",
    });
  }

  of(key: string): Fields {
    if (typeof this.value !== "object" || this.value === null || Array.isArray(this.value)) this.refuse("is no object");
    const own = Object.hasOwn(this.value, key) ? (this.value as Record<string, unknown>)[key] : undefined;
    return new Fields(this.file, this.at === "" ? key : `${this.at}.${key}`, own);
  }

  get text(): string {
    return typeof this.value === "string" ? this.value : this.refuse("is no text");
  }

  /** Above zero. */
  get rate(): number {
    const { value } = this;
    return typeof value === "number" && value > 0 && Number.isFinite(value)
      ? value
      : this.refuse("is no number above 0");
  }

  get list(): Fields[] {
    if (!Array.isArray(this.value)) this.refuse("is no list");
    return this.value.map((v, i) => new Fields(this.file, `${this.at}[${i}]`, v));
  }

  get entries(): [string, Fields][] {
    if (typeof this.value !== "object" || this.value === null || Array.isArray(this.value)) this.refuse("is no object");
    return Object.keys(this.value).map((key) => [key, this.of(key)]);
  }
}

function processor(f: Fields): Processor {
  const products = f.of("products").entries.map(([type, p]): [string, ProductRate] => [
    type,
    { one: p.of("one").rate, many: p.of("many").rate },
  ]);
  if (products.length === 0) f.of("products").refuse("is empty");
  return {
    name: f.of("name").text,
    bandwidth: f.of("bandwidth").rate,
    op: f.of("op").rate,
    products: Object.fromEntries(products),
  };
}

/**
 * A machine's document.
 * @param file What messages call it.
 * @throws {FormatError} `format.machine`
 */
export function parseMachine(file: string, text: string): Machine {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new FormatError("format.machine", `Cannot use ${file} as a machine: ${cause.message}`, {
      at: { file },
      cause,
    });
  }
  const all = new Fields(file, "", document);
  const schema = all.of("schema");
  if (schema.value !== MACHINE_SCHEMA) {
    schema.refuse(`is ${JSON.stringify(schema.value)}, expected "${MACHINE_SCHEMA}"`);
  }
  const host = all.of("host");
  return {
    schema: MACHINE_SCHEMA,
    host: { ...processor(host), n_threads: host.of("n_threads").rate },
    cards: all.of("cards").list.map((c) => ({
      ...processor(c),
      to_card: c.of("to_card").rate,
      to_host: c.of("to_host").rate,
    })),
    drives: all.of("drives").list.map((d) => ({
      path: d.of("path").text,
      random: d.of("random").rate,
      sequential: d.of("sequential").rate,
    })),
  };
}

/** What a processor does with a type that was not measured: as with the slowest that was. */
export function productRate(p: Processor, type: string): ProductRate {
  const known = p.products[type];
  if (known !== undefined) return known;
  const all = Object.values(p.products);
  return { one: Math.min(...all.map((r) => r.one)), many: Math.min(...all.map((r) => r.many)) };
}
