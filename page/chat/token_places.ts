/**
 * Where the tokens of an answer stand in its text, so that the answer can go on from another token.
 * @module
 */
import type { Message, Rival } from "./types.ts";

/** What an answer begins with that goes on from another token. */
export interface Prefill {
  content: string;
  reasoning: string;
}

/** Bytes as a string of as many characters, in which one can search. */
const binary = (bytes: Iterable<number>) => Array.from(bytes, (b) => String.fromCharCode(b)).join("");
const binaryOf = (text: string) => binary(new TextEncoder().encode(text));
const fatal = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** Tokens that end turns and the like: as a text they would be read as what they stand for. */
const CONTROL = /^<[|｜][^]*[|｜]>$|^<\/?s>$|^<\w+_of_\w+>$/;

/** The text of whole characters; undefined where the last one is not complete. */
function textOf(bytes: string): string | undefined {
  try {
    return fatal.decode(Uint8Array.from(bytes, (c) => c.charCodeAt(0)));
  } catch {
    return undefined;
  }
}

/** Tokens of a message in its bytes. */
export class TokenPlaces {
  readonly #offsets: number[] = [];
  readonly #all: string;
  /** Where reasoning and content begin in the bytes, -1 where they do not stand there. */
  readonly #reasoningFrom: number;
  readonly #contentFrom: number;
  readonly #reasoning: string;

  constructor(message: Pick<Message, "content" | "reasoning" | "tokens">) {
    let all = "";
    for (const { bytes } of message.tokens ?? []) {
      this.#offsets.push(all.length);
      all += binary(bytes);
    }
    this.#all = all;
    const content = binaryOf(message.content), reasoning = binaryOf(message.reasoning);
    this.#reasoning = message.reasoning;
    // Tags stand between them: the content is the last, the reasoning the first.
    this.#contentFrom = content === "" ? -1 : all.lastIndexOf(content);
    this.#reasoningFrom = reasoning === "" ? -1 : all.indexOf(reasoning);
  }

  /**
   * The answer up to a token, with `rival` in its place; undefined for a token that is a tag or a part of one, and for a rival that
   * is no text.
   */
  prefill(i: number, rival: Rival): Prefill | undefined {
    const at = this.#offsets[i], next = binary(rival.bytes);
    if (at === undefined || next === "" || CONTROL.test(tokenText(rival))) return undefined;
    const from = this.#contentFrom, start = this.#reasoningFrom;
    if (from >= 0 && at >= from) {
      const content = textOf(this.#all.slice(from, at) + next);
      return content === undefined ? undefined : { content, reasoning: this.#reasoning };
    }
    if (start < 0 || at < start || at >= start + binaryOf(this.#reasoning).length) return undefined;
    const reasoning = textOf(this.#all.slice(start, at) + next);
    return reasoning === undefined ? undefined : { content: "", reasoning };
  }
}

/** A token's text for display: what cannot be seen is spelled out. */
export function tokenText({ bytes }: Pick<Rival, "bytes">): string {
  return new TextDecoder().decode(Uint8Array.from(bytes));
}
