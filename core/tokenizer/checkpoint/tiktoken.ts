/**
 * Reads a tiktoken vocabulary (`tiktoken.model`): lines of base64 bytes and a rank. The rank is the token's id, and what
 * merges a token is made by follows from the ranks: joining the lowest-ranked pair again and again, below the token's
 * own rank, leaves the two parts it is made of.
 * @module
 */

import { TextError } from "../../errors.ts";
import { mappedText } from "../pieces.ts";

export interface TiktokenModel {
  /** Token texts in mapped form, by rank; holes are undefined. */
  readonly texts: readonly (string | undefined)[];
  readonly merges: readonly string[];
}

/** @throws {TextError} `text.tiktoken` naming the line that is no token. */
export function readTiktoken(bytes: Uint8Array, file: string): TiktokenModel {
  const ranks = new Map<string, number>(); // by bytes as Latin-1 text
  const texts: (string | undefined)[] = [];
  const lines = new TextDecoder().decode(bytes).split("\n");
  lines.forEach((line, i) => {
    if (line.trim() === "") return;
    const [base64, digits, ...rest] = line.trim().split(/\s+/);
    const rank = /^\d{1,8}$/.test(digits ?? "") ? Number(digits) : -1;
    let token: string | undefined;
    try {
      token = atob(base64);
    } catch {
      token = undefined;
    }
    if (rank < 0 || token === undefined || token === "" || rest.length > 0) {
      throw new TextError(
        "text.tiktoken",
        `Cannot read ${file}: line ${i + 1} is ${JSON.stringify(line.slice(0, 60))}, expected base64 bytes and a rank`,
        { at: { file, line: i + 1 } },
      );
    }
    ranks.set(token, rank);
    texts[rank] = mapped(token);
  });
  const merges: string[] = [];
  for (const [token, rank] of ranks) {
    if (token.length === 1) continue;
    const parts = partsBelow(ranks, token, rank);
    if (parts.length === 2) merges.push(`${mapped(parts[0])} ${mapped(parts[1])}`);
  }
  return { texts, merges };
}

function mapped(token: string): string {
  return mappedText(Uint8Array.from(token, (c) => c.charCodeAt(0)));
}

/** What is left of a token after all merges of a rank below `limit`. */
function partsBelow(ranks: ReadonlyMap<string, number>, token: string, limit: number): string[] {
  const parts = [...token];
  while (parts.length > 1) {
    let best = -1;
    let bestRank = limit;
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = ranks.get(parts[i] + parts[i + 1]);
      if (rank !== undefined && rank < bestRank) {
        best = i;
        bestRank = rank;
      }
    }
    if (best < 0) break;
    parts.splice(best, 2, parts[best] + parts[best + 1]);
  }
  return parts;
}
