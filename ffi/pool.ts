/**
 * Pools: slots of a device's memory that experts are read into while steps run.
 * @module
 */
import type {
  PoolCounts,
  PooledSource,
  PooledTensor,
  PoolHandle,
  PoolSpec,
  TensorHandle,
} from "../core/program/backend.ts";
import { bytesOf, check, Handle, N_ERR, ne4, pointerFrom } from "./handle.ts";
import type { Library } from "./library.ts";
import { NativeTensor } from "./tensor.ts";

/** Numbers of `bl_pool_counts` before those of the groups, and of a group before those of its experts. */
const N_HEAD = 7, N_GROUP = 5;

class NativePool extends Handle implements PoolHandle {
  /** Experts of each group. */
  readonly #groups: number[] = [];
  #counts = new BigUint64Array(N_HEAD);

  constructor(
    readonly library: Library,
    pointer: Deno.PointerObject,
    readonly file: (path: string) => Deno.PointerObject,
  ) {
    super(pointer, (p) => library.symbols.bl_pool_free(p));
  }

  get bytes(): number {
    return Number(this.library.symbols.bl_pool_bytes(this.pointer));
  }

  addTensor(spec: PooledTensor, source: PooledSource): TensorHandle {
    const err = new Uint8Array(N_ERR), out = new BigUint64Array(1);
    const { symbols } = this.library;
    const [add, size] = "stride" in source
      ? [symbols.bl_pool_map, source.stride] as const
      : [symbols.bl_pool_tensor, source.bytes] as const;
    const status = add(
      this.pointer,
      spec.group,
      spec.type.id,
      ne4(spec.ne),
      this.file(source.path),
      BigInt(source.offset),
      BigInt(size),
      out,
      err,
      BigInt(N_ERR),
    );
    check(status, err);
    this.#groups[spec.group] = spec.ne[2];
    this.#counts = new BigUint64Array(N_HEAD + this.#groups.reduce((n, experts) => n + N_GROUP + experts, 0));
    return new NativeTensor(this.library, pointerFrom(out));
  }

  addCopy(of: string, copy: string): void {
    const err = new Uint8Array(N_ERR);
    const { symbols } = this.library;
    check(symbols.bl_pool_copy(this.pointer, this.file(of), this.file(copy), err, BigInt(N_ERR)), err);
  }

  seat(group: number, seated: Uint8Array): void {
    const err = new Uint8Array(N_ERR);
    const { symbols } = this.library;
    check(
      symbols.bl_pool_seat(this.pointer, group, bytesOf(seated), BigInt(seated.length), err, BigInt(N_ERR)),
      err,
    );
  }

  async fill(): Promise<void> {
    const err = new Uint8Array(N_ERR);
    check(await this.library.symbols.bl_pool_fill(this.pointer, err, BigInt(N_ERR)), err);
  }

  counts(): PoolCounts {
    const all = this.#counts;
    this.library.symbols.bl_pool_counts(this.pointer, all, BigInt(all.length));
    let at = N_HEAD;
    const groups = this.#groups.map((n_expert) => {
      const [hits, misses, n_needed, n_guessed, n_right] = Array.from(all.subarray(at, at += N_GROUP), Number);
      const rows = Float64Array.from(all.subarray(at, at += n_expert), Number);
      return { hits, misses, n_needed, n_guessed, n_right, rows };
    });
    return {
      read_bytes: Number(all[0]),
      n_reads: Number(all[1]),
      wait_ms: Number(all[2]) / 1e6,
      n_held: Number(all[3]),
      direct: all[4] === 1n,
      ahead_bytes: Number(all[5]),
      unused_bytes: Number(all[6]),
      groups,
    };
  }
}

/** @throws {NativeError} `native.unsupported` on a device that has no pools, `native.memory` */
export function createPool(
  library: Library,
  runtime: Deno.PointerObject,
  spec: PoolSpec,
  file: (path: string) => Deno.PointerObject,
): PoolHandle {
  const err = new Uint8Array(N_ERR), out = new BigUint64Array(1);
  const { symbols } = library;
  check(
    symbols.bl_pool_create(runtime, spec.device, BigInt(spec.slot_bytes), spec.n_slots, out, err, BigInt(N_ERR)),
    err,
    "use a smaller --host-room",
  );
  return new NativePool(library, pointerFrom(out), file);
}
