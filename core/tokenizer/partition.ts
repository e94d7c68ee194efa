/**
 * Finds special tokens in a text, in llama.cpp's order: the longest token first, each leftmost first, in what the
 * earlier ones left over.
 * @module
 */

export interface SpecialToken {
  readonly id: number;
  readonly text: string;
  /** Bytes of the text in UTF-8. */
  readonly bytes: number;
  /** Matched only when special tokens are parsed. */
  readonly isControl: boolean;
  /** Drops whitespace left of a match. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
}

/** Text between special tokens, or the id of one. */
export type Fragment = string | number;

interface Node {
  next: Map<number, Node>;
  token: number; // index into `tokens`, -1 where no token ends
}

export class SpecialPartition {
  private readonly tokens: readonly SpecialToken[];
  private root: Node | undefined;
  private firstUnits: Uint8Array | undefined; // [65536] 1 where some token starts

  constructor(tokens: readonly SpecialToken[]) {
    this.tokens = tokens.filter((token) => token.text.length > 0).sort((a, b) => b.bytes - a.bytes || a.id - b.id);
  }

  /** @param text Without lone surrogates. */
  cut(text: string, parseSpecial: boolean): Fragment[] {
    if (text.length === 0) return [];
    let fragments: Fragment[] = [text];
    for (const index of this.present(text)) {
      const token = this.tokens[index];
      if (token.isControl && !parseSpecial) continue;
      const next: Fragment[] = [];
      for (const fragment of fragments) {
        if (typeof fragment === "number") next.push(fragment);
        else cutOne(fragment, token, next);
      }
      fragments = next;
    }
    return fragments;
  }

  /** Indices of the tokens whose text occurs anywhere in `text`, ascending: the only ones worth a pass of their own. */
  private present(text: string): number[] {
    if (this.tokens.length === 0) return [];
    const root = this.root ??= this.buildTrie();
    const firstUnits = this.firstUnits!;
    const found = new Set<number>();
    for (let i = 0; i < text.length; i++) {
      if (firstUnits[text.charCodeAt(i)] === 0) continue;
      let node: Node | undefined = root;
      for (let j = i; j < text.length; j++) {
        node = node.next.get(text.charCodeAt(j));
        if (node === undefined) break;
        if (node.token >= 0) found.add(node.token);
      }
    }
    return [...found].sort((a, b) => a - b);
  }

  private buildTrie(): Node {
    const root: Node = { next: new Map(), token: -1 };
    this.firstUnits = new Uint8Array(65536);
    this.tokens.forEach(({ text }, index) => {
      this.firstUnits![text.charCodeAt(0)] = 1;
      let node = root;
      for (let i = 0; i < text.length; i++) {
        const unit = text.charCodeAt(i);
        let next = node.next.get(unit);
        if (!next) node.next.set(unit, next = { next: new Map(), token: -1 });
        node = next;
      }
      if (node.token < 0) node.token = index;
    });
    return root;
  }
}

const isSpace = (unit: number) => unit === 0x20 || (unit >= 0x09 && unit <= 0x0d);

/** Cuts `text` at each occurrence of the token. */
function cutOne(text: string, token: SpecialToken, out: Fragment[]): void {
  let start = 0;
  for (let at = text.indexOf(token.text); at >= 0; at = text.indexOf(token.text, start)) {
    let leftEnd = at;
    if (token.lstrip) { while (leftEnd > start && isSpace(text.charCodeAt(leftEnd - 1))) leftEnd--; }
    if (leftEnd > start) out.push(text.slice(start, leftEnd));
    out.push(token.id);
    start = at + token.text.length;
    if (token.rstrip) { while (start < text.length && isSpace(text.charCodeAt(start))) start++; }
  }
  if (start < text.length) out.push(text.slice(start));
}
