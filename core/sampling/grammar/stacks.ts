/**
 * Where a text stands in a grammar: the set of stacks of nodes that its bytes allow, numbered so that each step from
 * one set by one byte is worked out once.
 * @module
 */
import type { Automaton } from "./automaton.ts";
import { LIMITS, refuse } from "./expr.ts";

/** A set of stacks. */
export interface Config {
  readonly id: number;
  /** Frames that the last byte led to, sorted. */
  readonly kernel: Int32Array;
  /** Frames that read the next byte: the kernel's and those of the rules they enter. */
  readonly active: Int32Array;
  /** The whole of the grammar may end here. */
  readonly ends: boolean;
}

/** The frame below all others: popping to it ends the grammar. */
export const OUTSIDE = 0;
export const DEAD = -1;
const UNKNOWN = -2;

export class Stacks {
  readonly #node: number[] = [-1];
  readonly #parent: number[] = [-1];
  readonly #frames = new Map<number, number>();
  readonly #configs: Config[] = [];
  readonly #index = new Map<string, number>();
  readonly #single = new Map<number, number>();
  /** Per set: where each byte leads. */
  readonly #steps: (Int32Array | undefined)[] = [];
  /** Per frame: the frames that read below it, and whether it can end. */
  readonly #closures: ({ active: number[]; ends: boolean } | undefined)[] = [];

  constructor(readonly automaton: Automaton) {}

  get size(): number {
    return this.#configs.length + this.#node.length;
  }

  /** The frame of a node upon a parent. A node that can only end is its parent: recursion at a rule's end costs nothing. */
  frame(node: number, parent: number): number {
    const n = this.automaton.node(node);
    if (n.final && !n.reads && n.calls.length === 0) return parent;
    const key = node * 0x4000000 + parent;
    let id = this.#frames.get(key);
    if (id === undefined) {
      id = this.#node.push(node) - 1;
      this.#parent.push(parent);
      if (parent >= 0x4000000) throw new Error("too many frames");
      this.#frames.set(key, id);
    }
    return id;
  }

  nodeOf(frame: number): number {
    return this.#node[frame];
  }

  parentOf(frame: number): number {
    return this.#parent[frame];
  }

  config(id: number): Config {
    return this.#configs[id];
  }

  /** The set of these frames. */
  of(frames: readonly number[]): number {
    // Nearly always it is one, and needs no text for a key.
    const one = frames.length === 1 || frames.every((f) => f === frames[0]);
    if (one) {
      const known = this.#single.get(frames[0]);
      if (known !== undefined) return known;
    }
    const kernel = Int32Array.from(new Set(frames)).sort();
    const key = one ? "" : kernel.join();
    const known = one ? undefined : this.#index.get(key);
    if (known !== undefined) return known;
    const active = new Set<number>();
    let ends = false;
    for (const frame of kernel) {
      const c = this.#closure(frame);
      for (const f of c.active) active.add(f);
      ends ||= c.ends;
    }
    if (active.size > LIMITS.stacks) refuse("the number of stacks", active.size, LIMITS.stacks);
    const id = this.#configs.length;
    this.#configs.push({ id, kernel, active: Int32Array.from(active), ends });
    this.#steps.push(undefined);
    if (one) this.#single.set(frames[0], id);
    else this.#index.set(key, id);
    return id;
  }

  /** The set behind a byte, `DEAD` where none is left. */
  step(config: number, byte: number): number {
    const steps = this.#steps[config];
    if (steps === undefined) return this.#find(config, byte);
    const to = steps[byte];
    return to === UNKNOWN ? this.#find(config, byte) : to;
  }

  #find(config: number, byte: number): number {
    const frames: number[] = [];
    for (const frame of this.#configs[config].active) {
      const next = this.automaton.next(this.#node[frame], byte);
      if (next >= 0) frames.push(this.frame(next, this.#parent[frame]));
    }
    const to = frames.length === 0 ? DEAD : this.of(frames);
    (this.#steps[config] ??= new Int32Array(256).fill(UNKNOWN))[byte] = to;
    return to;
  }

  /** Whether any number of plain characters may follow, and leave the set as it is. */
  takesPlain(config: number): boolean {
    return this.#takesPlain[config] ??= this.#takes(this.#configs[config].kernel);
  }

  readonly #takesPlain: boolean[] = [];

  #takes(kernel: Int32Array): boolean {
    if (kernel.length !== 1 || kernel[0] === OUTSIDE) return false;
    const node = this.#node[kernel[0]];
    return this.automaton.plainNext(node) === node;
  }

  #closure(frame: number): { active: number[]; ends: boolean } {
    const known = this.#closures[frame];
    if (known) return known;
    const active: number[] = [];
    let ends = false;
    const seen = new Set([frame]);
    for (const f of seen) {
      if (f === OUTSIDE) {
        ends = true;
        continue;
      }
      const node = this.automaton.node(this.#node[f]), parent = this.#parent[f];
      if (node.reads) active.push(f);
      if (node.final) seen.add(parent);
      for (const call of node.calls) seen.add(this.frame(call.start, this.frame(call.back, parent)));
      if (seen.size > 16 * LIMITS.stacks) refuse("the number of stacks", `over ${seen.size - 1}`, 16 * LIMITS.stacks);
    }
    return this.#closures[frame] = { active, ends };
  }
}
