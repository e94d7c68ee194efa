/**
 * What each weight takes on a device, and where its bytes lie: a copy in the layout that kernels want, the file's own bytes, or
 * a table of which only the rows that tokens name are read.
 * @module
 */
import type { ModelFile } from "../arch/keys.ts";
import { FormatError } from "../errors.ts";
import { type GgmlType, rowBytes } from "../gguf/types.ts";
import type { DeviceInfo, PackedRange } from "../program/backend.ts";
import { KIND, type Program, USE, type WeightDesc } from "../program/program.ts";

/**
 * Where a weight lies: `memory`, a packed copy on the device; `mapped`, the file's bytes as they are, which stay in memory while
 * they are used; `packed`, the same of the model's packed form; `table`, rows that are read from the file or from host memory as tokens
 * name them; `pool`, experts in slots.
 */
export type Form = "memory" | "mapped" | "packed" | "table" | "pool";

/** One weight of a plan. */
export interface WeightPlan {
  /** In the file. */
  readonly name: string;
  /** As the file has it. */
  readonly type: GgmlType;
  /** As the file has it. */
  readonly bytes: number;
  /** Where it lies. */
  readonly form: Form;
  /** Which device has it; a weight that several devices read is there several times. */
  readonly device: number;
  /** That it takes of the device's memory for itself: 0 for a table and in a pool. */
  readonly device_bytes: number;
}

/** Memory is had in pages. */
const PAGE = 4096;
/** Output rows that the host packs together (`csrc/cpu/packing.h`). */
const GROUP = 8;
/** Bytes of a packed block of 8 rows. */
const PACKED: Readonly<Record<string, number>> = { q4_0: 144, q8_0: 272, q4_K: 1184, q5_K: 1440, q6_K: 1680 };
/** A card leaves larger tables of rows in host memory, as a share of its own. */
const TABLE_SHARE = 1 / 4;

function inPages(bytes: number): number {
  return Math.ceil(bytes / PAGE) * PAGE;
}

/** Bytes of one matrix as the host's kernels want it. */
export function packedBytes(type: GgmlType, n_in: number, n_out: number): number {
  const packed = PACKED[type.name];
  return packed === undefined ? rowBytes(type, n_in) * n_out : Math.ceil(n_out / GROUP) * (n_in / type.block) * packed;
}

/** Whether the host keeps a packed copy of matrices of this type. */
export function isPacked(type: GgmlType): boolean {
  return type.name in PACKED;
}

/** Whether the host wants this weight of a model packed. */
export function isPackedWeight(w: WeightDesc): boolean {
  return (w.uses & USE.MUL_MAT) !== 0 && isPacked(w.type) && !w.decode && w.constant === undefined;
}

/**
 * Where the packed matrices of a weight lie, where the model has a packed form.
 * @throws {FormatError} `format.packed`
 */
export function packedPlace(w: WeightDesc, file: ModelFile): PackedRange | undefined {
  const place = isPackedWeight(w) ? file.packed?.(w.name) : undefined;
  if (place === undefined) return undefined;
  const bytes = packedBytes(w.type, w.ne[0], w.ne[1]), n_matrix = w.ne[2] * w.ne[3];
  if (place.stride >= bytes && place.n_matrix === n_matrix) return place;
  throw new FormatError(
    "format.packed",
    `Cannot use "${w.name}" of ${place.path}: it has ${place.n_matrix} matrices of ${place.stride} bytes, expected ${n_matrix} of ${bytes} or more`,
    { at: { file: place.path, tensor: w.name }, hint: "make it again with bloomery pack --overwrite" },
  );
}

/** @param offset Of the weight in a file; undefined where none has it as it is. */
function onHost(w: WeightDesc, offset: number | undefined): Pick<WeightPlan, "form" | "device_bytes"> {
  const n = w.ne[1] * w.ne[2] * w.ne[3], bytes = rowBytes(w.type, w.ne[0]) * n;
  const products = (w.uses & USE.MUL_MAT) !== 0;
  if (products && isPacked(w.type)) {
    return { form: "memory", device_bytes: inPages(packedBytes(w.type, w.ne[0], w.ne[1]) * w.ne[2] * w.ne[3]) };
  }
  const whole = offset === undefined || w.decode || (w.uses & USE.VECTOR) !== 0 || w.type.name === "i32";
  const aligned = offset !== undefined && offset % w.type.bytes === 0;
  if (whole || !(aligned || w.type.block > 1)) return { form: "memory", device_bytes: inPages(bytes) };
  return products ? { form: "mapped", device_bytes: bytes } : { form: "table", device_bytes: 0 };
}

function onCard(w: WeightDesc, device: DeviceInfo): Pick<WeightPlan, "form" | "device_bytes"> {
  const bytes = rowBytes(w.type, w.ne[0]) * w.ne[1] * w.ne[2] * w.ne[3];
  const rowsOnly = (w.uses & USE.ROWS) !== 0 && (w.uses & ~(USE.ROWS | USE.HOST)) === 0;
  const stays = rowsOnly && ((w.uses & USE.HOST) !== 0 || bytes > device.memory_bytes * TABLE_SHARE);
  return stays ? { form: "table", device_bytes: 0 } : { form: "memory", device_bytes: bytes };
}

/** Where a weight of a model lies on a device, as the library decides it. */
export function planWeight(w: WeightDesc, file: ModelFile, device: DeviceInfo): WeightPlan {
  const t = w.constant === undefined ? file.tensor(w.name) : undefined;
  const packed = device.kind === "cpu" ? packedPlace(w, file) : undefined;
  const place = packed !== undefined
    ? { form: "packed" as const, device_bytes: packed.stride * w.ne[2] * w.ne[3] }
    : device.kind === "cuda"
    ? onCard(w, device)
    : onHost(w, t && file.place(t)?.offset);
  return { name: w.name, type: t?.type ?? w.type, bytes: t?.bytes ?? 0, device: w.device, ...place };
}

/** The routed weights of one layer. */
export interface RoutedGroup {
  /** In the order that a step reads them. */
  readonly weights: readonly WeightDesc[];
  readonly n_expert: number;
  /** Experts of one row. */
  readonly n_used: number;
  /** Experts are read from the model's packed form. */
  readonly packed?: boolean;
}

/** Weights that are read by expert, by the choice of experts that they share: those of one layer. */
export function routedGroups(p: Program): RoutedGroup[] {
  const groups = new Map<number, { weights: Set<WeightDesc>; n_used: number }>();
  const other = new Set<WeightDesc>();
  for (const op of p.ops) {
    for (const [i, id] of op.src.entries()) {
      const t = p.tensors[id];
      if (t?.kind !== KIND.WEIGHT) continue;
      const w = p.weights[t.ref];
      if (op.op !== "MUL_MAT_ID" || i !== 0 || w.ne[3] !== 1) {
        other.add(w);
        continue;
      }
      const ids = op.src[2];
      const group = groups.get(ids) ?? { weights: new Set(), n_used: p.tensors[ids].ne[0] };
      group.weights.add(w);
      groups.set(ids, group);
    }
  }
  const seen = new Set<WeightDesc>();
  return [...groups.values()].flatMap(({ weights, n_used }) => {
    // A weight that is read in another way too, or in two places, stays whole.
    const own = [...weights].filter((w) => !other.has(w) && !seen.has(w) && !w.decode && w.constant === undefined);
    for (const w of own) seen.add(w);
    const n_expert = own[0]?.ne[2] ?? 0;
    const fit = own.filter((w) => w.ne[2] === n_expert);
    return fit.length === 0 ? [] : [{ weights: fit, n_expert, n_used }];
  });
}
