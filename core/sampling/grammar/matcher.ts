/**
 * The tokens that a grammar allows next.
 *
 * The mask of a place is found node by node and kept: what follows a node within its rule does not depend on the
 * stack below it, so the vocabulary is walked once a node, and for a new stack only from the few places where a token
 * runs out of the rule. Within a text in quotes nearly all tokens are allowed; for them there are ready-made masks, and
 * only the few with quotes, backslashes and the like are walked.
 * @module
 */
import { TextError } from "../../errors.ts";
import { Automaton } from "./automaton.ts";
import type { Rules } from "./expr.ts";
import { DEAD, OUTSIDE, Stacks } from "./stacks.ts";
import { isPlainByte, MULTIBYTE, type Trie, type VocabTrie } from "./vocab_trie.ts";

/** A compiled grammar, to be kept: matchers of several answers share what it learns of a vocabulary. */
export class Grammar {
  readonly automaton: Automaton;
  /** Places in the schema, as JSON pointers, of keywords that the grammar does not keep. */
  readonly ignored: readonly string[];
  readonly #views = new WeakMap<VocabTrie, VocabView>();
  #stacks: Stacks;

  /** @throws {TextError} `text.grammar_*` */
  constructor(rules: Rules) {
    this.automaton = new Automaton(rules);
    this.ignored = rules.ignored ?? [];
    this.#stacks = new Stacks(this.automaton);
  }

  /** The numbering of stacks in use; a fresh one once that has grown large. */
  get stacks(): Stacks {
    if (this.#stacks.size > MAX_STACKS) this.#stacks = new Stacks(this.automaton);
    return this.#stacks;
  }

  view(vocab: VocabTrie): VocabView {
    let view = this.#views.get(vocab);
    if (!view) this.#views.set(vocab, view = new VocabView(this.automaton, vocab));
    return view;
  }
}

/** Tokens that may follow a node within its rule, whatever lies below. */
interface Local {
  mask: Uint32Array;
  /** Places in the tries where the rule is left and a token goes on. */
  leaves: { trie: Trie; nodes: number[] }[];
}

/** One grammar against one vocabulary: the masks found so far, the latest of them. */
class VocabView {
  readonly #locals = new Map<string | number, Local>();
  readonly #masks = new Map<number, Uint32Array>();
  #masksOf: Stacks | undefined;
  #stacks: Stacks;

  constructor(readonly automaton: Automaton, readonly vocab: VocabTrie) {
    this.#stacks = new Stacks(automaton);
  }

  /** The tokens that may follow a set of stacks. To be read, not kept. */
  mask(stacks: Stacks, config: number): Uint32Array {
    if (this.#masksOf !== stacks) {
      this.#masks.clear();
      this.#masksOf = stacks;
    }
    let mask = this.#masks.get(config);
    if (!mask) {
      if (this.#masks.size >= MAX_MASKS) this.#masks.clear();
      this.#masks.set(config, mask = this.#find(stacks, config));
    }
    return mask;
  }

  #find(stacks: Stacks, config: number): Uint32Array {
    const mask = new Uint32Array(this.vocab.words);
    const seen = new Set<number>(stacks.config(config).kernel);
    for (const frame of seen) {
      if (frame === OUTSIDE) continue;
      const node = stacks.nodeOf(frame), parent = stacks.parentOf(frame);
      if (this.#ends(node)) seen.add(parent);
      const local = this.#local(node);
      or(mask, local.mask);
      if (parent === OUTSIDE) continue;
      const below = stacks.of([parent]);
      for (const { trie, nodes } of local.leaves) {
        for (const i of nodes) walk(stacks, trie, i + 1, trie.end[i], below, mask);
      }
    }
    return mask;
  }

  /** Whether the rule of a node may end there. */
  #ends(node: number): boolean {
    const stacks = this.#stacks;
    return stacks.config(stacks.of([stacks.frame(node, OUTSIDE)])).ends;
  }

  #local(node: number): Local {
    const alike = this.#alike(node), key = alike ?? node;
    let local = this.#locals.get(key);
    if (!local) {
      if (this.#locals.size >= MAX_MASKS) this.#locals.clear();
      if (this.#stacks.size > MAX_STACKS) this.#stacks = new Stacks(this.automaton);
      this.#locals.set(key, local = this.#findLocal(node, alike !== undefined));
    }
    return local;
  }

  /** The same for nodes of one repetition that differ in a count whose bounds no token reaches. */
  #alike(node: number): string | undefined {
    const c = this.automaton.counted(node), far = this.vocab.reach + 1;
    if (c === undefined || c.max - c.count <= far) return undefined;
    if (c.count >= c.min) return `${c.key} above`;
    return c.min - c.count > far ? `${c.key} below` : undefined;
  }

  #findLocal(node: number, alike: boolean): Local {
    const { vocab } = this, longest = vocab.plainUpTo.length - 1;
    const local: Local = { mask: new Uint32Array(vocab.words), leaves: [] };
    const run = this.#plainRun(node, longest);
    if (run === undefined) {
      this.#walk(node, vocab.special, local);
      const exceptions = this.#exceptions(node);
      const few = exceptions && vocab.containing(exceptions);
      this.#walk(node, few ? few.trie : vocab.plain, local);
      if (few) {
        const all = vocab.allPlain;
        for (let w = 0; w < all.length; w++) local.mask[w] |= all[w] & ~few.mask[w];
      }
      return local;
    }
    or(local.mask, vocab.plainUpTo[run.n]);
    if (!run.simple) this.#walk(node, vocab.special, local);
    else if (alike || this.automaton.plainNext(node) === node) this.#walk(node, vocab.rests, local);
    else {
      let at = node, from = 0; // the node behind `from` characters, and how far such a step goes
      let step = this.#plainStep(node);
      for (const { n, trie } of vocab.restsBehind) {
        if (n > run.n) break;
        for (; n > from + step!.most; step = this.#plainStep(at)) {
          at = step!.to(step!.most);
          from += step!.most;
        }
        this.#walk(n === from ? at : step!.to(n - from), trie, local);
      }
    }
    return local;
  }

  #walk(node: number, trie: Trie, local: Local): void {
    const stacks = this.#stacks, nodes: number[] = [];
    walk(stacks, trie, 0, trie.length, stacks.of([stacks.frame(node, OUTSIDE)]), local.mask, nodes);
    if (nodes.length > 0) local.leaves.push({ trie, nodes });
  }

  /**
   * The most plain characters that may follow a node, any of them, and no plain token of more; undefined where it is not
   * that simple.
   *
   * @returns `simple` where the rule neither ends on the way nor calls another.
   */
  #plainRun(start: number, longest: number): { n: number; simple: boolean } | undefined {
    const a = this.automaton;
    let node = start;
    for (let n = 0; n < longest;) {
      const { calls, final } = a.node(node), simple = calls.length === 0 && !final;
      const next = this.#plainStep(node);
      // Longer tokens are out only where nothing plain is read here, nor behind the rule.
      if (next === undefined) {
        return n > 0 && simple && this.#readsNothingPlain(node) ? { n, simple: true } : undefined;
      }
      // Where it may go on elsewhere too, the run must reach the longest token here.
      if (!simple) return this.#runs(node, longest - n) ? { n: longest, simple: false } : undefined;
      node = next.to(Math.min(next.most, longest - n));
      n += next.most;
    }
    return { n: longest, simple: true };
  }

  #runs(node: number, length: number): boolean {
    for (let n = 0; n < length;) {
      const next = this.#plainStep(node);
      if (next === undefined) return false;
      node = next.to(Math.min(next.most, length - n));
      n += next.most;
    }
    return true;
  }

  /** How plain characters go on: one, or up to `most` at once where all the nodes between are alike. */
  #plainStep(node: number): { most: number; to: (n: number) => number } | undefined {
    const a = this.automaton, next = a.plainNext(node);
    if (next < 0) return undefined;
    if (next === node) return { most: Infinity, to: () => node };
    const c = a.counted(node);
    const most = c === undefined ? 0 : (c.count < c.min ? c.min : c.max) - 1 - c.count;
    if (c === undefined || most < 1 || next !== c.at(c.count + 1)) return { most: 1, to: () => next };
    return { most, to: (n) => c.at(c.count + n) };
  }

  #readsNothingPlain(node: number): boolean {
    for (let b = 0; b < 256; b++) {
      if ((b >= 0x80 || isPlainByte(b)) && this.automaton.next(node, b) >= 0) return false;
    }
    return true;
  }

  /** The few ASCII characters without which any plain text may follow; undefined where they are not few. */
  #exceptions(node: number): number[] | undefined {
    const stacks = this.#stacks, other: number[] = [];
    const start = stacks.of([stacks.frame(node, OUTSIDE)]), loop = stacks.step(start, 0x61);
    if (loop === DEAD) return undefined;
    for (let b = 0x20; b < 0x7f; b++) {
      const back = stacks.step(start, b) === loop && stacks.step(loop, b) === loop;
      if (isPlainByte(b) && !back && other.push(b) > MAX_EXCEPTIONS) return undefined;
    }
    return takesBeyondAscii(stacks, start, loop) && takesBeyondAscii(stacks, loop, loop) ? other : undefined;
  }
}

const MAX_EXCEPTIONS = 4;

/** Whether every character beyond ASCII leads from one set to another. */
function takesBeyondAscii(stacks: Stacks, from: number, to: number): boolean {
  const tail = (at: number, lo: number, hi: number, left: number): boolean => {
    let checked = -2;
    for (let b = lo; b <= hi; b++) {
      const next = stacks.step(at, b);
      if (next === checked) continue;
      if (next === DEAD || (left === 1 ? next !== to : !tail(next, 0x80, 0xbf, left - 1))) return false;
      checked = next;
    }
    return true;
  };
  return MULTIBYTE.every(([lo, hi, second, secondEnd, length]) => {
    let checked = -2;
    for (let b = lo; b <= hi; b++) {
      const next = stacks.step(from, b);
      if (next === checked) continue;
      if (next === DEAD || !tail(next, second, secondEnd, length - 1)) return false;
      checked = next;
    }
    return true;
  });
}

function or(mask: Uint32Array, more: Uint32Array): void {
  for (let w = 0; w < mask.length; w++) mask[w] |= more[w];
}

/** Configurations before each depth of the walk under way; there is one at a time. */
const path = new Int32Array(1024);

/**
 * Walks part of a trie as far as the grammar goes along, and marks the tokens met.
 * @param leaves Gets the nodes where the grammar ends and a token goes on.
 */
function walk(
  stacks: Stacks,
  trie: Trie,
  from: number,
  until: number,
  start: number,
  mask: Uint32Array,
  leaves?: number[],
): void {
  if (from >= until) return;
  const { byte, depth, end, first, ids } = trie;
  const base = depth[from];
  const plain = trie.plain;
  path[0] = start;
  for (let i = from; i < until;) {
    const d = depth[i] - base;
    const next = stacks.step(path[d], byte[i]);
    if (next === DEAD) {
      i = end[i];
      continue;
    }
    // Where whatever follows is allowed, the tokens of the subtree are.
    const whole = plain && end[i] > i + 1 && stacks.takesPlain(next);
    const last = first[whole ? end[i] : i + 1];
    for (let t = first[i]; t < last; t++) mask[ids[t] >>> 5] |= 1 << (ids[t] & 31);
    if (whole) {
      i = end[i];
      continue;
    }
    path[d + 1] = next;
    if (leaves !== undefined && end[i] > i + 1 && stacks.config(next).ends) leaves.push(i);
    i++;
  }
}

/** Follows one text through a grammar. */
export class GrammarMatcher {
  readonly #grammar: Grammar;
  readonly #view: VocabView;
  #stacks: Stacks;
  #config: number;

  constructor(grammar: Grammar, vocab: VocabTrie) {
    this.#grammar = grammar;
    this.#view = grammar.view(vocab);
    this.#stacks = grammar.stacks;
    this.#config = this.#stacks.of([this.#stacks.frame(grammar.automaton.root, OUTSIDE)]);
  }

  /** The text so far is complete: it may end here. */
  get done(): boolean {
    return this.#stacks.config(this.#config).ends;
  }

  /** Nothing but the end may follow. */
  get finished(): boolean {
    const c = this.#stacks.config(this.#config);
    return c.ends && c.active.length === 0;
  }

  /** Takes the bytes of a text. Returns false and changes nothing if the grammar does not allow them. */
  accept(bytes: Uint8Array): boolean {
    const config = this.#follow(bytes);
    if (config === DEAD) return false;
    this.#config = config;
    if (this.#stacks.size > MAX_STACKS) this.#compact();
    return true;
  }

  /** Whether the bytes may follow; for one token cheaper than a mask. */
  fits(bytes: Uint8Array): boolean {
    return this.#follow(bytes) !== DEAD;
  }

  #follow(bytes: Uint8Array): number {
    let config = this.#config;
    for (const b of bytes) {
      config = this.#stacks.step(config, b);
      if (config === DEAD) break;
    }
    return config;
  }

  /** The tokens that may follow, a bit each: id i is bit `i & 31` of word `i >> 5`. To be read, not kept. */
  allowed(): Uint32Array {
    return this.#view.mask(this.#stacks, this.#config);
  }

  /**
   * Forbids in a row of logits what may not follow.
   * @param ends Ids that end the text: allowed where it is complete.
   * @throws {TextError} `text.no_candidate` where nothing may follow.
   */
  apply(logits: Float32Array, ends: Iterable<number> = []): void {
    const mask = this.allowed();
    const kept = this.done ? [...ends].map((id) => [id, logits[id]] as const) : [];
    let any = kept.length > 0;
    for (let w = 0; w < mask.length;) {
      if (mask[w] === 0) {
        const from = w;
        while (w < mask.length && mask[w] === 0) w++;
        logits.fill(-Infinity, from << 5, w << 5);
        continue;
      }
      any = true;
      const base = w << 5;
      for (let out = ~mask[w++]; out !== 0; out &= out - 1) {
        const id = base + 31 - Math.clz32(out & -out);
        if (id < logits.length) logits[id] = -Infinity;
      }
    }
    if (logits.length > mask.length << 5) logits.fill(-Infinity, mask.length << 5);
    for (const [id, logit] of kept) logits[id] = logit;
    if (!any) {
      throw new TextError("text.no_candidate", "Cannot continue: no token of the vocabulary fits the grammar here", {
        hint: "the grammar asks for bytes that the vocabulary cannot write",
      });
    }
  }

  /** Goes over to a fresh numbering of stacks. */
  #compact(): void {
    const old = this.#stacks, fresh = this.#grammar.stacks;
    const moved = new Map<number, number>([[OUTSIDE, OUTSIDE]]);
    const move = (frame: number): number => {
      const chain: number[] = [];
      let at = frame;
      for (; !moved.has(at); at = old.parentOf(at)) chain.push(at);
      let to = moved.get(at)!;
      for (const f of chain.reverse()) {
        to = fresh.frame(old.nodeOf(f), to);
        moved.set(f, to);
      }
      return to;
    };
    const kernel = Array.from(old.config(this.#config).kernel, move);
    this.#stacks = fresh;
    this.#config = fresh.of(kernel);
  }
}

/** Masks kept for a grammar: 19 KB each for 150,000 tokens. */
const MAX_MASKS = 256;
/** Configurations and frames in one numbering: about 1.2 KB each where they are stepped from. */
const MAX_STACKS = 40_000;
