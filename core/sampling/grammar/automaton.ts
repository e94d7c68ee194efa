/**
 * Rules to an automaton over bytes: a finite one per rule, whose edges read a byte or call a rule.
 *
 * Deterministic nodes (sets of states) are made when first met, and so are the states of counted repetitions: a grammar
 * costs what is used of it. Call edges stay nondeterministic: the runtime keeps a set of stacks.
 * @module
 */
import { TextError } from "../../errors.ts";
import { complement, type Expr, LIMITS, type Ranges, refuse, type Rules } from "./expr.ts";
import { isPlainByte } from "./vocab_trie.ts";

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
/** Longer repetitions are counted, see `Counted`. */
const COPIES = 4;
/** Repetitions longer than two of these are made of blocks, see `#times`: nodes of one block serve all. */
const BLOCK = 4096;
/** Rules without calls and loops up to this size are copied into their callers, which keeps stacks shallow. */
const INLINE = 64;

/** A repetition: its item's states once, and the copies of them that each count needs, made when first met. */
interface Counted {
  readonly start: number;
  readonly end: number;
  readonly exit: number;
  readonly min: number;
  readonly max: number;
  readonly id: number;
  readonly copies: Map<number, number>;
}

/** What a state is a copy of. */
interface Copy {
  readonly of: Counted;
  readonly count: number;
  readonly state: number;
  /** Its edges are made. */
  made: boolean;
}

/** A node within one repetition: its count, and the states that are the same at other counts. */
export interface CountedNode {
  readonly count: number;
  readonly min: number;
  readonly max: number;
  /** The same text for the nodes that differ in the count alone. */
  readonly key: string;
  /** The node at another count: one that has, like this one, reached the least count or not, and is below the most. */
  at(count: number): number;
}

/** The edges of a state, a stretch of its list, that read every plain character; all lead to `to`. */
interface PlainEdges {
  readonly from: number;
  readonly until: number;
  readonly to: number;
}

/** What stands for itself in a JSON string. */
const PLAIN: Ranges = complement([[0, 0x1f], [0x22, 0x22], [0x5c, 0x5c], [0x7f, 0x7f]]);

export class Automaton {
  // Edges of the nondeterministic states.
  readonly #bytes: number[][] = []; // [lo, hi, to]*
  readonly #empty: number[][] = []; // [to]*
  readonly #calls: number[][] = []; // [rule, to]*
  readonly #ends = new Set<number>();
  readonly #plain = new Map<number, PlainEdges>();
  readonly #copies = new Map<number, Copy>();
  #n_counted = 0;
  /** Nodes that differ in the count alone, by their key and the count. */
  readonly #alike = new Map<string, Map<number, number>>();
  readonly #countedNodes = new Map<number, CountedNode | null>();
  readonly #ruleIndex = new Map<string, number>();
  readonly #ruleStart: number[] = [];
  readonly #rules: ReadonlyMap<string, Expr>;
  readonly #repetitions = new Map<Expr, Map<number, number>>();

  readonly #sets: Int32Array[] = [];
  readonly #nodes: Node[] = [];
  readonly #next: (Int32Array | undefined)[] = [];
  readonly #plainNext: number[] = [];
  readonly #index = new Map<string, number>();
  #work = 0;
  #built = false;
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
    this.#built = true;
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

  /** The one node that all plain characters lead to, -1 where they do not. What rules called here read does not count. */
  plainNext(id: number): number {
    return this.#plainNext[id] ??= this.#plainTarget(this.#sets[id]);
  }

  /** What a node is within a counted repetition; undefined where it is in none, or in several, or at several counts. */
  counted(id: number): CountedNode | undefined {
    let found = this.#countedNodes.get(id);
    if (found === undefined) this.#countedNodes.set(id, found = this.#findCounted(this.#sets[id]) ?? null);
    return found ?? undefined;
  }

  #findCounted(set: Int32Array): CountedNode | undefined {
    let first: Copy | undefined;
    const outside: number[] = [], inside: number[] = [];
    for (const state of set) {
      const copy = this.#copies.get(state);
      if (copy === undefined) {
        outside.push(state);
        continue;
      }
      first ??= copy;
      if (copy.of !== first.of || copy.count !== first.count) return undefined;
      inside.push(copy.state);
    }
    if (first === undefined) return undefined;
    const { of, count } = first;
    inside.sort((a, b) => a - b);
    const key = `${of.id} ${inside} ${outside}`;
    let nodes = this.#alike.get(key);
    if (nodes === undefined) this.#alike.set(key, nodes = new Map());
    const at = (n: number): number => {
      let node = nodes.get(n);
      if (node === undefined) {
        nodes.set(n, node = this.#node([...outside, ...inside.map((state) => this.#copy(of, n, state))]));
      }
      return node;
    };
    return { count, min: of.min, max: of.max, key, at };
  }

  #plainTarget(set: Int32Array): number {
    const targets: number[] = [];
    for (const state of set) {
      const plain = this.#plain.get(state), edges = this.#bytes[state];
      if (plain !== undefined) targets.push(plain.to);
      for (let e = 0; e < edges.length; e += 3) {
        if (plain !== undefined && e >= plain.from && e < plain.until) continue;
        if (edges[e + 1] >= 0x80) return -1;
        for (let b = edges[e]; b <= edges[e + 1]; b++) if (isPlainByte(b)) return -1;
      }
    }
    return targets.length === 0 ? -1 : this.#node(targets);
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
    const limit = this.#built ? LIMITS.copies : LIMITS.states;
    if (this.#bytes.length >= limit) refuse("the number of states", `over ${limit}`, limit);
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
        const edges = this.#bytes[from].length;
        for (const sequence of utf8Sequences(e.ranges)) {
          let at = from;
          sequence.forEach(([lo, hi], i) => {
            const next = i === sequence.length - 1 ? to : this.#state();
            this.#bytes[at].push(lo, hi, next);
            at = next;
          });
        }
        // Where a state reads two such classes only the first is known; the other's edges make the node look like any.
        if (!this.#plain.has(from) && covers(e.ranges, PLAIN)) {
          this.#plain.set(from, { from: edges, until: this.#bytes[from].length, to });
        }
        return to;
      }
      case "without":
        return this.#without(new TextEncoder().encode(e.marker), from);
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

  /**
   * Any text without a marker: states of how much of the marker was just read (Knuth, Morris and Pratt's), each with how
   * a character goes on.
   */
  #without(marker: Uint8Array, from: number): number {
    const to = this.#state();
    const states = new Map<string, number>();
    const pending: [read: number, rest: string][] = [];
    const of = (read: number, rest: string): number => {
      const key = `${read} ${rest}`;
      let state = states.get(key);
      if (state === undefined) {
        states.set(key, state = this.#state());
        pending.push([read, rest]);
        if (rest === "") this.#empty[state].push(to);
      }
      return state;
    };
    /** The most of the marker that a text ends with, after `read` bytes of it and one more. */
    const matched = (read: number, byte: number): number => {
      for (let n = Math.min(read + 1, marker.length); n > 0; n--) {
        if (marker[n - 1] === byte && marker.subarray(0, n - 1).every((b, i) => b === marker[read - n + 1 + i])) {
          return n;
        }
      }
      return 0;
    };
    this.#empty[from].push(of(0, ""));
    for (let p = 0; p < pending.length; p++) {
      const [read, rest] = pending[p], state = states.get(`${read} ${rest}`)!;
      for (const [lo, hi, next] of UTF8[rest]) {
        for (let b = lo; b <= hi;) {
          const n = matched(read, b);
          let until = b;
          while (until < hi && matched(read, until + 1) === n) until++;
          if (n < marker.length) this.#bytes[state].push(b, until, of(n, next));
          b = until + 1;
        }
      }
    }
    return to;
  }

  /** Exactly `n` times. */
  #times(item: Expr, n: number, from: number): number {
    if (n > 2 * BLOCK) {
      // Blocks as a rule of their own: a length of a million costs thousands of states, and nodes are shared.
      const block = this.#repetition(item, BLOCK, BLOCK);
      for (let i = 0; i < Math.floor(n / BLOCK); i++) from = this.#callBlock(block, from);
      n %= BLOCK;
    }
    if (n > COPIES) return this.#counted(item, n, n, from);
    for (let i = 0; i < n; i++) from = this.#build(item, from);
    return from;
  }

  #counted(item: Expr, min: number, max: number, from: number): number {
    const start = this.#state(), end = this.#build(item, start), exit = this.#state();
    const counted: Counted = { start, end, exit, min, max, id: this.#n_counted++, copies: new Map() };
    this.#empty[from].push(this.#copy(counted, 0, start));
    if (min === 0) this.#empty[from].push(exit);
    return exit;
  }

  /** The copy of an item's state for the count of items before it. */
  #copy(of: Counted, count: number, state: number): number {
    const key = count * 2 ** 24 + state;
    let copy = of.copies.get(key);
    if (copy === undefined) {
      of.copies.set(key, copy = this.#state());
      this.#copies.set(copy, { of, count, state, made: false });
    }
    return copy;
  }

  /** Makes a state's edges, if it is a copy that waits for them. */
  #expand(id: number): void {
    const copy = this.#copies.get(id);
    if (copy === undefined || copy.made) return;
    copy.made = true;
    const { of, count, state } = copy;
    this.#expand(state); // may be a copy itself
    const put = (to: number) => this.#copy(of, count, to);
    const bytes = this.#bytes[state], calls = this.#calls[state];
    for (let e = 0; e < bytes.length; e += 3) this.#bytes[id].push(bytes[e], bytes[e + 1], put(bytes[e + 2]));
    for (let e = 0; e < calls.length; e += 2) this.#calls[id].push(calls[e], put(calls[e + 1]));
    for (const to of this.#empty[state]) this.#empty[id].push(put(to));
    const plain = this.#plain.get(state);
    if (plain !== undefined) this.#plain.set(id, { ...plain, to: put(plain.to) });
    if (state !== of.end) return;
    if (count + 1 < of.max) this.#empty[id].push(this.#copy(of, count + 1, of.start));
    if (count + 1 >= of.min) this.#empty[id].push(of.exit);
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
    if (n > COPIES) {
      this.#empty[this.#counted(item, 0, n, from)].push(to);
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
    // Nearly always it is one state that was seen before.
    if (states.length === 1) {
      const known = this.#ofState.get(states[0]);
      if (known !== undefined) return known;
      const made = this.#nodeOf(states);
      this.#ofState.set(states[0], made);
      return made;
    }
    return this.#nodeOf(states);
  }

  readonly #ofState = new Map<number, number>();

  #nodeOf(states: number[]): number {
    const seen = new Set(states);
    for (const s of seen) {
      this.#expand(s);
      for (const t of this.#empty[s]) seen.add(t);
    }
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
        this.#expand(s);
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
            `Cannot compile the grammar: rule "${name}" calls itself before it reads a character`,
            { at: { rule: name }, hint: "put the recursive call behind a character, or write a repetition" },
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
      case "without":
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

/** UTF-8: what bytes may follow within a character, by what is left of it, and what is left then. */
const UTF8: Record<string, readonly (readonly [lo: number, hi: number, rest: string])[]> = {
  "": [
    [0x00, 0x7f, ""],
    [0xc2, 0xdf, "1"],
    [0xe0, 0xe0, "e0"],
    [0xe1, 0xec, "2"],
    [0xed, 0xed, "ed"],
    [0xee, 0xef, "2"],
    [0xf0, 0xf0, "f0"],
    [0xf1, 0xf3, "3"],
    [0xf4, 0xf4, "f4"],
  ],
  "1": [[0x80, 0xbf, ""]],
  "2": [[0x80, 0xbf, "1"]],
  "3": [[0x80, 0xbf, "2"]],
  e0: [[0xa0, 0xbf, "1"]],
  ed: [[0x80, 0x9f, "1"]],
  f0: [[0x90, 0xbf, "2"]],
  f4: [[0x80, 0x8f, "2"]],
};

/** Whether sorted ranges have all that others have. */
const covers = (ranges: Ranges, wanted: Ranges): boolean =>
  wanted.every(([lo, hi]) => ranges.some(([from, to]) => from <= lo && hi <= to));

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
