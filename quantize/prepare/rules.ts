/**
 * How checkpoint tensors become the file's: rules from name to name with a transform between, looked up by name with its
 * numbers taken out. A family states its rules; this file knows what to do with them, and what is missing or left over.
 * @module
 */
import { stack, type View } from "./view.ts";

/** A tensor of the file before its type is chosen. */
export interface Output {
  readonly name: string;
  readonly view: View;
  /** Tensors with an order come before all others, by it; the others stay as they are. */
  readonly order?: number;
}

/** What a rule may ask of the tensor it takes. */
export interface RuleOptions {
  /** Shape in the checkpoint, slowest first. */
  shape?: readonly number[] | undefined;
  /** The tensor may be absent. */
  optional?: boolean;
  /** Blocks that must have it; all of the model's own where left out. */
  blocks?: (il: number) => boolean;
  map?: (v: View) => View;
  /** Order of what comes out, by block. */
  order?: (il: number) => number;
}

interface Rule {
  readonly from: string;
  readonly options: RuleOptions;
  /** Experts there are, for rules with `{e}`. */
  readonly n_expert: number;
  /** What it becomes, or undefined while more must arrive. */
  readonly take: (v: View, il: number, e: number) => Output[] | undefined;
}

/** Takes numbers out of a name: `a.3.b.12.c` is `a.#.b.#.c` and [3, 12]. */
function template(name: string): [template: string, numbers: number[]] {
  const numbers: number[] = [];
  const parts = name.split(".");
  for (let i = 0; i < parts.length; i++) {
    if (!/^\d+$/.test(parts[i])) continue;
    numbers.push(Number(parts[i]));
    parts[i] = "#";
  }
  return [parts.join("."), numbers];
}

const inBlock = (text: string, il: number) => text.replaceAll("{il}", String(il));

/**
 * A family's rules. `{il}` stands for the block's number, `{e}` for an expert's, on both sides.
 */
export class Rules {
  readonly #rules = new Map<string, Rule>();
  readonly #dropped = new Set<string>();
  readonly #groups: { from: string; n: number; parts: Map<number, Map<string, View>> }[] = [];
  readonly #needed: string[] = [];
  readonly #made = new Set<string>();
  /** Rule and block, of tensors that were seen. */
  readonly #seen = new Set<string>();

  /**
   * @param n_layer Blocks of the model itself, which must be whole.
   * @param n_block Blocks that may be there, with draft blocks after the model's own.
   */
  constructor(readonly n_layer: number, readonly n_block: number = n_layer) {}

  #add(from: string, options: RuleOptions, take: Rule["take"], n_expert = Infinity): this {
    this.#rules.set(from.replaceAll(/\{(il|e)\}/g, "#"), { from, options, take, n_expert });
    return this;
  }

  /** One tensor under another name; names are whole. */
  exact(from: string, to: string, options: RuleOptions = {}): this {
    const map = options.map ?? ((v: View) => v);
    return this.#add(from, options, (v, il) => [{ name: inBlock(to, il), view: map(v) }]);
  }

  /** `from.weight` becomes `to.weight`. */
  weight(from: string, to: string, options: RuleOptions = {}): this {
    return this.exact(`${from}.weight`, `${to}.weight`, options);
  }

  /** A weight and, where there is one, its bias, both with the same transform. `shape` is the weight's. */
  linear(from: string, to: string, options: RuleOptions = {}): this {
    const shape = options.shape?.slice(0, 1);
    return this.weight(from, to, options).exact(`${from}.bias`, `${to}.bias`, { ...options, shape, optional: true });
  }

  /** One tensor becomes several. */
  split(from: string, to: (v: View, il: number) => Output[], options: RuleOptions = {}): this {
    return this.#add(from, options, to);
  }

  /** Several tensors of a block become some others together, where the last of them arrives. */
  gather(from: readonly string[], to: (views: View[], il: number) => Output[], options: RuleOptions = {}): this {
    const group = { from: from[0], n: from.length, parts: new Map<number, Map<string, View>>() };
    this.#groups.push(group);
    from.forEach((name) =>
      this.#add(name, options, (v, il) => {
        let parts = group.parts.get(il);
        if (!parts) group.parts.set(il, parts = new Map());
        parts.set(name, v);
        if (parts.size < group.n) return undefined;
        group.parts.delete(il);
        return to(from.map((n) => parts.get(n)!), il);
      })
    );
    return this;
  }

  /** Tensors of the file that must come out for every block of the model, whichever rule makes them. */
  need(...names: string[]): this {
    this.#needed.push(...names);
    return this;
  }

  /** Takes back a rule. */
  forget(from: string): this {
    this.#rules.delete(from.replaceAll(/\{(il|e)\}/g, "#"));
    return this;
  }

  /** Tensors that the file does not need. */
  drop(...names: string[]): this {
    for (const name of names) this.#dropped.add(name.replaceAll(/\{(il|e)\}/g, "#"));
    return this;
  }

  /**
   * The matrices of a layer's experts, each stored apart, stacked into one tensor per kind. All come out where the last of
   * them arrives, in the order given.
   *
   * @param from Name with `{il}`, `{e}` and `{w}`.
   * @param kinds What `{w}` is in the checkpoint, what the stack is called, and the shape of one matrix.
   */
  experts(
    from: string,
    n_expert: number,
    kinds: readonly (readonly [w: string, to: string, shape?: readonly number[]])[],
    options: RuleOptions = {},
  ): this {
    const group = { from, n: n_expert * kinds.length, parts: new Map<number, Map<string, View>>() };
    this.#groups.push(group);
    for (const [w, , shape] of kinds) {
      this.#add(from.replace("{w}", w), { ...options, shape }, (v, il, e) => {
        let parts = group.parts.get(il);
        if (!parts) group.parts.set(il, parts = new Map());
        parts.set(`${w}.${e}`, v);
        if (parts.size < group.n) return undefined;
        const made = parts;
        group.parts.delete(il);
        return kinds.map(([w, to]) => ({
          name: inBlock(to, il),
          view: stack(Array.from({ length: n_expert }, (_, e) => made.get(`${w}.${e}`)!)),
        }));
      }, n_expert);
    }
    return this;
  }

  /**
   * What a checkpoint tensor becomes: outputs, `undefined` while its group is incomplete, or the problem with it.
   */
  apply(name: string, view: View): Output[] | undefined | { problem: string } | { unmapped: true } {
    const [key, numbers] = template(name);
    const rule = this.#rules.get(key);
    if (!rule) return this.#dropped.has(key) ? undefined : { unmapped: true };
    const order = [...rule.from.matchAll(/\{(il|e)\}/g)].map((m) => m[1]);
    const il = numbers[order.indexOf("il")] ?? 0;
    const e = numbers[order.indexOf("e")] ?? 0;
    if (order.includes("il") && il >= this.n_block) {
      return { problem: `tensor "${name}" belongs to block ${il}, expected blocks 0 to ${this.n_block - 1}` };
    }
    if (e >= rule.n_expert) {
      return { problem: `tensor "${name}" belongs to expert ${e}, expected experts 0 to ${rule.n_expert - 1}` };
    }
    this.#seen.add(`${rule.from} ${il}`);
    const expected = rule.options.shape;
    if (expected && expected.join() !== view.shape.join()) {
      return { problem: `tensor "${name}" has shape [${view.shape.join(", ")}], expected [${expected.join(", ")}]` };
    }
    const outputs = rule.take(view, il, e);
    for (const o of outputs ?? []) this.#made.add(o.name);
    const { order: orderOf } = rule.options;
    return orderOf ? outputs?.map((o) => ({ ...o, order: orderOf(il) })) : outputs;
  }

  /** Missing tensors, one sentence each. */
  missing(): string[] {
    const problems: string[] = [];
    for (const { from, n, parts } of this.#groups) {
      for (const [il, have] of parts) {
        problems.push(`block ${il} has ${have.size} of the ${n} tensors that belong to "${inBlock(from, il)}"`);
      }
    }
    for (const { from, options } of this.#rules.values()) {
      if (options.optional) continue;
      const inBlocks = from.includes("{il}");
      const absent: number[] = [];
      for (let il = 0; il < (inBlocks ? this.n_layer : 1); il++) {
        if (inBlocks && options.blocks?.(il) === false) continue;
        if (!this.#seen.has(`${from} ${il}`)) absent.push(il);
      }
      if (absent.length === 0) continue;
      problems.push(
        inBlocks ? `tensor "${from}" is missing for il = ${ranges(absent)}` : `tensor "${from}" is missing`,
      );
    }
    for (const name of this.#needed) {
      const absent = Array.from({ length: this.n_layer }, (_, il) => il).filter((il) =>
        !this.#made.has(inBlock(name, il))
      );
      if (absent.length > 0) problems.push(`nothing makes tensor "${name}" for il = ${ranges(absent)}`);
    }
    return problems;
  }
}

/** `0-3, 7` for 0, 1, 2, 3, 7. */
function ranges(sorted: readonly number[]): string {
  const out: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) j++;
    out.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return out.join(", ");
}
