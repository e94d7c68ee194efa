/**
 * A snapshot as one run of bytes, for a file: what it is a snapshot of, then tokens and pages.
 *
 *   magic "BLOOMSEQ" · u32 version · u32 length of the header · SHA-256 of all that follows
 *   header, JSON: { model, build, n_tokens, adapters, caches: [{ places, bytes }] }
 *   tokens, i32 each · the pages of each cache
 *
 * Numbers are little-endian. Bits of a cache mean something only to the weights and the arithmetic that made them, so both are named.
 * @module
 */
import { EngineError } from "../errors.ts";
import { parseJson } from "../json.ts";
import type { Snapshot } from "./snapshot.ts";

/** What a snapshot belongs to. */
export interface SnapshotOwner {
  /** A digest of the model's weights and of the caches' types. */
  readonly model: string;
  /** The version of this program. */
  readonly build: string;
}

const MAGIC = new TextEncoder().encode("BLOOMSEQ");
const VERSION = 2;
const FIXED = 48;
/** Longest header; that of a million pages has about 7 MB. */
const MAX_HEADER = 64 << 20;

export async function encodeSnapshot(snapshot: Snapshot, owner: SnapshotOwner): Promise<Uint8Array<ArrayBuffer>> {
  const caches = snapshot.caches.map(({ places, data }) => ({ places, bytes: data.length }));
  const { model, build } = owner, { adapters } = snapshot;
  const header = new TextEncoder().encode(
    JSON.stringify({ model, build, n_tokens: snapshot.tokens.length, adapters, caches }),
  );
  const data = snapshot.caches.reduce((n, c) => n + c.data.length, 0);
  const out = new Uint8Array(FIXED + header.length + 4 * snapshot.tokens.length + data);
  const view = new DataView(out.buffer);
  out.set(MAGIC);
  view.setUint32(8, VERSION, true);
  view.setUint32(12, header.length, true);
  out.set(header, FIXED);
  let at = FIXED + header.length;
  for (const token of snapshot.tokens) {
    view.setInt32(at, token, true);
    at += 4;
  }
  for (const cache of snapshot.caches) {
    out.set(cache.data, at);
    at += cache.data.length;
  }
  out.set(await digest(out.subarray(FIXED)), 16);
  return out;
}

/**
 * The snapshot in a file.
 * @param name What messages call the file.
 * @throws {EngineError} `engine.snapshot_file` for a file that is none, is cut off or damaged, or belongs to another model or version
 */
export async function decodeSnapshot(
  bytes: Uint8Array<ArrayBuffer>,
  owner: SnapshotOwner,
  name: string,
): Promise<Snapshot> {
  const refuse = (what: string, hint?: string): never => {
    throw new EngineError("engine.snapshot_file", `Cannot restore ${name}: ${what}`, {
      at: { file: name },
      ...(hint === undefined ? {} : { hint }),
    });
  };
  if (bytes.length < FIXED || MAGIC.some((b, i) => bytes[i] !== b)) {
    refuse("it is no saved slot of this program", "save one with action=save");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const version = view.getUint32(8, true), n_header = view.getUint32(12, true);
  if (version !== VERSION) refuse(`its version is ${version}, expected ${VERSION}`);
  if (n_header > MAX_HEADER || FIXED + n_header > bytes.length) {
    refuse(`it is cut off: ${bytes.length} bytes, expected more than ${FIXED + n_header}`);
  }
  const header = headerOf(bytes.subarray(FIXED, FIXED + n_header)) ?? refuse("its header is damaged");
  const { n_tokens, caches } = header;
  const wanted = FIXED + n_header + 4 * n_tokens + caches.reduce((n, c) => n + c.bytes, 0);
  if (bytes.length !== wanted) refuse(`it has ${bytes.length} bytes, expected ${wanted}`);
  const sum = await digest(bytes.subarray(FIXED));
  if (sum.some((b, i) => bytes[16 + i] !== b)) refuse("it is damaged: its bytes are not those that were saved");
  if (header.model !== owner.model) {
    refuse("it was saved from another model or with other cache types", "use the model and flags it was saved with");
  }
  if (header.build !== owner.build) refuse(`it was saved by ${header.build}, expected ${owner.build}`);
  let at = FIXED + n_header;
  const tokens = Array.from({ length: n_tokens }, (_, i) => view.getInt32(at + 4 * i, true));
  at += 4 * n_tokens;
  return {
    tokens,
    adapters: header.adapters,
    caches: caches.map(({ places, bytes: n }) => {
      const data = bytes.subarray(at, at + n);
      at += n;
      return { places, data };
    }),
  };
}

interface Header extends SnapshotOwner {
  n_tokens: number;
  adapters: number[];
  caches: { places: number[]; bytes: number }[];
}

function headerOf(bytes: Uint8Array): Header | undefined {
  const isCount = (n: unknown): n is number => Number.isSafeInteger(n) && (n as number) >= 0;
  try {
    const h = parseJson(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as Partial<Header>;
    const good = typeof h.model === "string" && typeof h.build === "string" && isCount(h.n_tokens) &&
      Array.isArray(h.adapters) && h.adapters.every((a) => typeof a === "number") &&
      Array.isArray(h.caches) &&
      h.caches.every((c) => isCount(c?.bytes) && Array.isArray(c.places) && c.places.every(isCount));
    return good ? h as Header : undefined;
  } catch {
    return undefined;
  }
}

async function digest(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}
