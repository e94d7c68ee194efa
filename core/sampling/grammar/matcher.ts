/**
 * The tokens that a grammar allows next.
 *
 * The mask of a place is found node by node and kept: what follows a node within its rule does not depend on the
 * stack below it, so the vocabulary is walked once a node, and for a new stack only from the few places where a token
 * runs out of the rule. Within a text in quotes nearly all tokens are allowed; they are ready-made masks by length.
 * @module
 */
import { TextError } from "../../errors.ts";
import { Automaton } from "./automaton.ts";
import type { Rules } from "./expr.ts";
import { DEAD, OUTSIDE, Stacks } from "./stacks.ts";
import { MULTIBYTE, type Trie, type VocabTrie } from "./vocab_trie.ts";

/** A compiled grammar, to be kept: matchers of several answers share what it learns of a vocabulary. */
export class Grammar {
  readonly automaton: Automaton;
  readonly #views = new WeakMap<VocabTrie, VocabView>();

  /** @throws {TextError} `text.grammar_*` */
  constructor(rules: Rules) {
    this.automaton = new Automaton(rules);
  }

  view(vocab: VocabTrie): VocabView {
    let view = this.#views.get(vocab);
    if (!view) this.#views.set(vocab, view = new VocabView(this.automaton, vocab));
    return view;
  }
}

/** What follows a node within its rule, whatever lies below. */
interface Local {
  mask: Uint32Array;
  /** Places in the tries where the rule is left and a token goes on: [trie, node]. */
  leaves: [Trie, number][];
  /** The rule may end at once. */
  ends: boolean;
}

/** Nodes of one automaton against one vocabulary. */
class VocabView {
  readonly #locals = new Map<number, Local>();
  readonly #stacks: Stacks;
  readonly #runs = new Map<number, number>();

  constructor(readonly automaton: Automaton, readonly vocab: VocabTrie) {
    this.#stacks = new Stacks(automaton);
  }

  local(node: number): Local {
    let local = this.#locals.get(node);
    if (!local) this.#locals.set(node, local = this.#walk(node));
    return local;
  }

  #walk(node: number): Local {
    const { vocab } = this;
    const stacks = this.#stacks;
    const frame = stacks.frame(node, OUTSIDE);
    const mask = new Uint32Array(vocab.words);
    const leaves: [Trie, number][] = [];
    const start = stacks.of([frame]);
    const visit = (trie: Trie) => {
      walk(stacks, trie, 0, trie.length, start, (i, config) => {
        vocab.mark(trie, i, mask);
        if (stacks.config(config).ends && trie.end[i] > i + 1) leaves.push([trie, i]);
      });
    };
    for (const c of vocab.plain) {
      if (this.#plainRun(node, c.most)) { for (let w = 0; w < mask.length; w++) mask[w] |= c.mask[w]; }
      else visit(c.trie);
    }
    visit(vocab.special);
    return { mask, leaves, ends: stacks.config(start).ends };
  }

  /** Whether a node may be followed by any `length` plain characters. */
  #plainRun(node: number, length: number): boolean {
    for (let n = 0; n < length; n++) {
      const next = this.#plainNext(node);
      if (next < 0) return false;
      if (next === node) return true;
      node = next;
    }
    return true;
  }

  /** The one node that all plain characters lead to, -1 where they do not. */
  #plainNext(node: number): number {
    const known = this.#runs.get(node);
    if (known !== undefined) return known;
    const a = this.automaton;
    const all = (id: number, lo: number, hi: number): number => {
      let to = -1;
      for (let b = lo; b <= hi; b++) {
        if (b === 0x22 || b === 0x5c || b === 0x7f) continue;
        const next = a.next(id, b);
        if (next < 0 || (to >= 0 && next !== to)) return -1;
        to = next;
      }
      return to;
    };
    /** The node behind `left` more bytes of a character, whichever they are. */
    const tail = (id: number, from: number, until: number, left: number): number => {
      const next = all(id, from, until);
      return next < 0 || left === 1 ? next : tail(next, 0x80, 0xbf, left - 1);
    };
    const target = (): number => {
      const to = all(node, 0x20, 0x7e);
      if (to < 0) return -1;
      for (const [lo, hi, second, secondEnd, length] of MULTIBYTE) {
        let checked = -1; // the leads of a row mostly go one way
        for (let lead = lo; lead <= hi; lead++) {
          const at = a.next(node, lead);
          if (at < 0) return -1;
          if (at === checked) continue;
          if (tail(at, second, secondEnd, length - 1) !== to) return -1;
          checked = at;
        }
      }
      return to;
    };
    const to = target();
    this.#runs.set(node, to);
    return to;
  }
}

/** Walks part of a trie as far as the grammar goes along; `visit` sees every node reached. */
function walk(
  stacks: Stacks,
  trie: Trie,
  from: number,
  until: number,
  start: number,
  visit: (node: number, config: number) => void,
): void {
  if (from >= until) return;
  const base = trie.depth[from];
  const path: number[] = [start]; // configuration before each depth
  for (let i = from; i < until;) {
    const d = trie.depth[i] - base;
    const next = stacks.step(path[d], trie.byte[i]);
    if (next === DEAD) {
      i = trie.end[i];
      continue;
    }
    path[d + 1] = next;
    visit(i, next);
    i++;
  }
}

/** Follows one text through a grammar. */
export class GrammarMatcher {
  readonly #grammar: Grammar;
  readonly #vocab: VocabTrie;
  #stacks: Stacks;
  #config: number;
  readonly #masks = new Map<number, Uint32Array>();

  constructor(grammar: Grammar, vocab: VocabTrie) {
    this.#grammar = grammar;
    this.#vocab = vocab;
    this.#stacks = new Stacks(grammar.automaton);
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

  /** Goes on by a text's bytes; false, and nothing changed, where the grammar does not allow them. */
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
    let mask = this.#masks.get(this.#config);
    if (!mask) {
      if (this.#masks.size >= MAX_MASKS) this.#masks.clear();
      this.#masks.set(this.#config, mask = this.#mask());
    }
    return mask;
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
    for (let w = 0; w < mask.length; w++) {
      const bits = mask[w], base = w << 5;
      if (bits === 0) logits.fill(-Infinity, base, Math.min(base + 32, logits.length));
      else {
        any = true;
        if (bits !== -1) {
          for (let i = 0; i < 32 && base + i < logits.length; i++) {
            if (!((bits >>> i) & 1)) logits[base + i] = -Infinity;
          }
        }
      }
    }
    if (logits.length > mask.length << 5) logits.fill(-Infinity, mask.length << 5);
    for (const [id, logit] of kept) logits[id] = logit;
    if (!any) {
      throw new TextError("text.no_candidate", "Cannot go on: no token of the vocabulary fits the grammar here", {
        hint: "the grammar asks for bytes that the vocabulary cannot write",
      });
    }
  }

  #mask(): Uint32Array {
    const stacks = this.#stacks, view = this.#grammar.view(this.#vocab), vocab = this.#vocab;
    const mask = new Uint32Array(vocab.words);
    const seen = new Set<number>(stacks.config(this.#config).kernel);
    for (const frame of seen) {
      if (frame === OUTSIDE) continue;
      const local = view.local(stacks.nodeOf(frame)), parent = stacks.parentOf(frame);
      for (let w = 0; w < mask.length; w++) mask[w] |= local.mask[w];
      if (local.ends) seen.add(parent);
      if (parent === OUTSIDE || local.leaves.length === 0) continue;
      const below = stacks.of([parent]);
      for (const [trie, i] of local.leaves) {
        walk(stacks, trie, i + 1, trie.end[i], below, (j) => vocab.mark(trie, j, mask));
      }
    }
    return mask;
  }

  /** Starts the numbering of stacks afresh, with those in use. */
  #compact(): void {
    const old = this.#stacks, fresh = new Stacks(this.#grammar.automaton);
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
    this.#masks.clear();
  }
}

/** Masks kept by a matcher: 19 KB each for 150,000 tokens. */
const MAX_MASKS = 128;
/** Configurations and frames before a matcher forgets those it no longer needs. */
const MAX_STACKS = 200_000;
