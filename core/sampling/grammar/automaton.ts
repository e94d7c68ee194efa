/**
 * Rules to an automaton over bytes: a finite one per rule, whose edges read a byte or call a rule.
 *
 * The nondeterministic states are made at once; deterministic nodes (sets of states) are made when first met, so a
 * grammar costs what is used of it. Call edges stay nondeterministic: the runtime keeps a set of stacks.
 * @module
 */
import { TextError } from "../../errors.ts";
import { type Expr, LIMITS, type Ranges, refuse, type Rules } from "./expr.ts";

/** A deterministic node: what may follow at one place of a rule. */
export interface Node {
  readonly id: number;
  /** The rule may end here. */
  readonly final: boolean;
  /** Rules that may be entered here, with the node to go on from behind them. */
  readonly calls: readonly { readonly start: number; readonly back: number }[];
  /** Whether any byte may be read. */
  readonly reads: boolean;
}

const UNKNOWN = -2;
/** Repetitions of one character longer than two of these are made of blocks, see `#times`. */
const BLOCK = 128;
/** Rules without calls and loops up to this size are copied into their callers, which keeps stacks shallow. */
const INLINE = 64;

export class Automaton {
  // Edges of the nondeterministic states.
  readonly #bytes: number[][] = []; // [lo, hi, to]*
  readonly #empty: number[][] = []; // [to]*
  readonly #calls: number[][] = []; // [rule, to]*
  readonly #ends = new Set<number>();
  readonly #ruleIndex = new Map<string, number>();
  readonly #ruleStart: number[] = [];
  readonly #rules: ReadonlyMap<string, Expr>;
  readonly #repetitions = new Map<Expr, Map<number, number>>();

  readonly #sets: Int32Array[] = [];
  readonly #nodes: Node[] = [];
  readonly #next: (Int32Array | undefined)[] = [];
  readonly #index = new Map<string, number>();
  #work = 0;
  readonly #startNode = new Map<number, number>();

  /** Node where a text begins. */
  readonly root: number;

  /** @throws {TextError} `text.grammar_too_large`, `text.grammar_left_recursion` */
  constructor({ root, rules }: Rules) {
    this.#rules = inlined(rules);
    const first = this.#ruleNumber(root);
    for (let i = 0; i < this.#pending.length; i++) {
      const [index, expr] = this.#pending[i];
      const end = this.#build(expr, this.#ruleStart[index]);
      this.#ends.add(end);
    }
    this.#checkLeftRecursion();
    this.root = this.#start(first);
  }

  get size(): number {
    return this.#nodes.length;
  }

  node(id: number): Node {
    return this.#nodes[id];
  }

  /** The node behind a byte, -1 where it cannot follow. */
  next(id: number, byte: number): number {
    const table = this.#next[id] ??= new Int32Array(256).fill(UNKNOWN);
    if (table[byte] !== UNKNOWN) return table[byte];
    const targets: number[] = [];
    // The bytes around this one that the same edges read go the same way.
    let lo = 0, hi = 255;
    for (const state of this.#sets[id]) {
      const edges = this.#bytes[state];
      for (let e = 0; e < edges.length; e += 3) {
        if (byte < edges[e]) hi = Math.min(hi, edges[e] - 1);
        else if (byte > edges[e + 1]) lo = Math.max(lo, edges[e + 1] + 1);
        else {
          lo = Math.max(lo, edges[e]);
          hi = Math.min(hi, edges[e + 1]);
          targets.push(edges[e + 2]);
        }
      }
    }
    const to = targets.length === 0 ? -1 : this.#node(targets);
    table.fill(to, lo, hi + 1);
    return to;
  }

  readonly #pending: [index: number, expr: Expr][] = [];

  #ruleNumber(name: string): number {
    let index = this.#ruleIndex.get(name);
    if (index === undefined) {
      index = this.#addRule(this.#rules.get(name)!);
      this.#ruleIndex.set(name, index);
    }
    return index;
  }

  #addRule(expr: Expr): number {
    const index = this.#ruleStart.push(this.#state()) - 1;
    this.#pending.push([index, expr]);
    return index;
  }

  #state(): number {
    if (this.#bytes.length >= LIMITS.states) refuse("the number of states", `over ${LIMITS.states}`, LIMITS.states);
    this.#bytes.push([]);
    this.#empty.push([]);
    return this.#calls.push([]) - 1;
  }

  /** Adds an expression behind a state; gives the state behind it. */
  #build(e: Expr, from: number): number {
    switch (e.type) {
      case "text": {
        for (const byte of new TextEncoder().encode(e.text)) {
          const to = this.#state();
          this.#bytes[from].push(byte, byte, to);
          from = to;
        }
        return from;
      }
      case "class": {
        const to = this.#state();
        for (const sequence of utf8Sequences(e.ranges)) {
          let at = from;
          sequence.forEach(([lo, hi], i) => {
            const next = i === sequence.length - 1 ? to : this.#state();
            this.#bytes[at].push(lo, hi, next);
            at = next;
          });
        }
        return to;
      }
      case "seq":
        for (const item of e.items) from = this.#build(item, from);
        return from;
      case "alt": {
        const to = this.#state();
        for (const item of e.items) {
          const begin = this.#state();
          this.#empty[from].push(begin);
          this.#empty[this.#build(item, begin)].push(to);
        }
        return to;
      }
      case "rule": {
        const to = this.#state();
        this.#calls[from].push(this.#ruleNumber(e.name), to);
        return to;
      }
      case "repeat":
        from = this.#times(e.item, e.min, from);
        if (e.max === Infinity) {
          const loop = this.#state();
          this.#empty[from].push(loop);
          this.#empty[this.#build(e.item, loop)].push(loop);
          return loop;
        }
        return this.#upTo(e.item, e.max - e.min, from);
    }
  }

  /** Exactly `n` times. */
  #times(item: Expr, n: number, from: number): number {
    if (n > 2 * BLOCK) {
      // Blocks of 128 as a rule of their own: a length of a million costs thousands of states, and nodes are shared.
      const block = this.#repetition(item, BLOCK, BLOCK);
      for (let i = 0; i < Math.floor(n / BLOCK); i++) from = this.#callBlock(block, from);
      n %= BLOCK;
    }
    for (let i = 0; i < n; i++) from = this.#build(item, from);
    return from;
  }

  /** Up to `n` times. */
  #upTo(item: Expr, n: number, from: number): number {
    const to = this.#state();
    if (n > 2 * BLOCK) {
      const block = this.#repetition(item, BLOCK, BLOCK), whole = Math.floor(n / BLOCK);
      // Fewer than `whole` blocks and less than one more, or all of them and what is left.
      let at = from;
      const partial = this.#state();
      for (let i = 0; i < whole; i++) {
        this.#empty[at].push(partial);
        at = this.#callBlock(block, at);
      }
      this.#calls[partial].push(this.#repetition(item, 0, BLOCK - 1), to);
      this.#calls[at].push(this.#repetition(item, 0, n % BLOCK), to);
      return to;
    }
    for (let i = 0; i < n; i++) {
      this.#empty[from].push(to);
      const begin = this.#state();
      this.#empty[from].push(begin);
      from = this.#build(item, begin);
    }
    this.#empty[from].push(to);
    return to;
  }

  /** A short repetition as a rule of its own, made once for each item. */
  #repetition(item: Expr, min: number, max: number): number {
    let made = this.#repetitions.get(item);
    if (!made) this.#repetitions.set(item, made = new Map());
    const key = min * 2 * BLOCK + max;
    let index = made.get(key);
    if (index === undefined) made.set(key, index = this.#addRule({ type: "repeat", item, min, max }));
    return index;
  }

  #callBlock(block: number, from: number): number {
    const to = this.#state();
    this.#calls[from].push(block, to);
    return to;
  }

  #start(ruleIndex: number): number {
    let id = this.#startNode.get(ruleIndex);
    if (id === undefined) {
      id = this.#node([this.#ruleStart[ruleIndex]]);
      this.#startNode.set(ruleIndex, id);
    }
    return id;
  }

  /** The node of a set of states and all that empty edges lead to. */
  #node(states: number[]): number {
    const seen = new Set(states);
    for (const s of seen) for (const t of this.#empty[s]) seen.add(t);
    // States with nothing but empty edges say nothing, so sets that differ in them alone are one node.
    const kept = [...seen].filter((s) => this.#bytes[s].length > 0 || this.#calls[s].length > 0 || this.#ends.has(s));
    const set = Int32Array.from(kept).sort();
    this.#work += seen.size;
    if (this.#work > LIMITS.work) refuse("the work of its automaton", `over ${LIMITS.work} steps`, LIMITS.work);
    const key = set.join();
    const known = this.#index.get(key);
    if (known !== undefined) return known;
    const id = this.#nodes.length;
    this.#index.set(key, id);
    this.#sets.push(set);
    this.#next.push(undefined);
    const calls: { start: number; back: number }[] = [];
    // Pushed before its calls are resolved: a rule may call itself.
    this.#nodes.push({
      id,
      final: kept.some((s) => this.#ends.has(s)),
      calls,
      reads: kept.some((s) => this.#bytes[s].length > 0),
    });
    for (const s of set) {
      const edges = this.#calls[s];
      for (let e = 0; e < edges.length; e += 2) {
        calls.push(
          new LazyCall(() => this.#start(edges[e]), () => this.#node([edges[e + 1]])),
        );
      }
    }
    return id;
  }

  /** A rule that comes to itself without reading a byte would never end. */
  #checkLeftRecursion(): void {
    const n = this.#ruleStart.length;
    const nullable = new Uint8Array(n);
    /** Rules that can be entered from the start without a byte; whether the end can be reached so. */
    const look = (index: number): { entered: Set<number>; ends: boolean } => {
      const entered = new Set<number>();
      const seen = new Set([this.#ruleStart[index]]);
      let ends = false;
      for (const s of seen) {
        if (this.#ends.has(s)) ends = true;
        for (const t of this.#empty[s]) seen.add(t);
        const calls = this.#calls[s];
        for (let e = 0; e < calls.length; e += 2) {
          entered.add(calls[e]);
          if (nullable[calls[e]]) seen.add(calls[e + 1]);
        }
      }
      return { entered, ends };
    };
    for (let changed = true; changed;) {
      changed = false;
      // Backwards: rules mostly call later ones, so that one or two rounds do.
      for (let i = n - 1; i >= 0; i--) {
        if (!nullable[i] && look(i).ends) {
          nullable[i] = 1;
          changed = true;
        }
      }
    }
    const state = new Uint8Array(n); // 1: on the path, 2: done
    for (let from = 0; from < n; from++) {
      if (state[from]) continue;
      const path = [{ index: from, rest: [...look(from).entered] }];
      state[from] = 1;
      while (path.length > 0) {
        const top = path[path.length - 1];
        const to = top.rest.pop();
        if (to === undefined) {
          state[top.index] = 2;
          path.pop();
        } else if (state[to] === 1) {
          const name = [...this.#ruleIndex].find(([, index]) => index === to)?.[0] ?? "a repetition";
          throw new TextError(
            "text.grammar_left_recursion",
            `Cannot compile the grammar: rule "${name}" comes to itself without reading a character`,
            { at: { rule: name }, hint: "write the recursion behind what it repeats, or as a repetition" },
          );
        } else if (state[to] === 0) {
          state[to] = 1;
          path.push({ index: to, rest: [...look(to).entered] });
        }
      }
    }
  }
}

/** A call whose nodes are made when asked for. */
class LazyCall {
  #start: number | undefined;
  #back: number | undefined;
  constructor(readonly makeStart: () => number, readonly makeBack: () => number) {}
  get start(): number {
    return this.#start ??= this.makeStart();
  }
  get back(): number {
    return this.#back ??= this.makeBack();
  }
}

/** Small rules without calls and loops, copied into the rules that call them. */
function inlined(rules: ReadonlyMap<string, Expr>): ReadonlyMap<string, Expr> {
  const size = (e: Expr): number => {
    switch (e.type) {
      case "text":
        return e.text.length;
      case "class":
        return 1;
      case "rule":
        return Infinity;
      case "repeat":
        return e.max === Infinity ? Infinity : e.max * size(e.item);
      default:
        return e.items.reduce((n, x) => n + size(x), 1);
    }
  };
  const small = new Map([...rules].filter(([, e]) => size(e) <= INLINE));
  // What holds no such rule stays the same object: repetitions of it are recognized as one.
  const put = (e: Expr): Expr => {
    switch (e.type) {
      case "rule":
        return small.get(e.name) ?? e;
      case "repeat": {
        const item = put(e.item);
        return item === e.item ? e : { ...e, item };
      }
      case "seq":
      case "alt": {
        const items = e.items.map(put);
        return items.every((x, i) => x === e.items[i]) ? e : { ...e, items };
      }
      default:
        return e;
    }
  };
  return new Map([...rules].map(([name, e]) => [name, put(e)]));
}

type ByteRange = readonly [lo: number, hi: number];

/** UTF-8 of a set of characters, as sequences of byte ranges; surrogates have none. */
export function utf8Sequences(ranges: Ranges): ByteRange[][] {
  const out: ByteRange[][] = [];
  const split = (lo: number, hi: number): void => {
    if (lo > hi) return;
    for (const edge of [0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff]) {
      if (lo <= edge && hi > edge) {
        split(lo, edge);
        return split(edge + 1, hi);
      }
    }
    if (lo >= 0xd800 && hi <= 0xdfff) return;
    // Within one length: a range of last bytes must be whole unless all bytes before it are the same.
    for (let shift = 6; shift <= 18 && hi > 0x7f; shift += 6) {
      const mask = (1 << shift) - 1;
      if ((lo & ~mask) !== (hi & ~mask)) {
        if ((lo & mask) !== 0) {
          split(lo, lo | mask);
          return split((lo | mask) + 1, hi);
        }
        if ((hi & mask) !== mask) {
          split(lo, (hi & ~mask) - 1);
          return split(hi & ~mask, hi);
        }
      }
    }
    const a = encode(lo), b = encode(hi);
    out.push(a.map((byte, i) => [byte, b[i]]));
  };
  for (const [lo, hi] of ranges) split(lo, hi);
  return out;
}

function encode(c: number): number[] {
  if (c < 0x80) return [c];
  if (c < 0x800) return [0xc0 | (c >> 6), 0x80 | (c & 63)];
  if (c < 0x10000) return [0xe0 | (c >> 12), 0x80 | ((c >> 6) & 63), 0x80 | (c & 63)];
  return [0xf0 | (c >> 18), 0x80 | ((c >> 12) & 63), 0x80 | ((c >> 6) & 63), 0x80 | (c & 63)];
}
