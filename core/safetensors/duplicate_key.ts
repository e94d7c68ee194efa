/**
 * Finds a key that an object of a JSON text holds twice. JSON.parse accepts it silently, and two readers may take
 * different values of the pair.
 * @module
 */

/**
 * The first duplicate key at any depth, or undefined.
 * @param json A text that JSON.parse accepts.
 */
export function duplicateKey(json: string): string | undefined {
  // One set of keys per open object; undefined for an open array.
  const open: (Set<string> | undefined)[] = [];
  const token = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]]/gs;
  const colon = /\s*:/y;
  for (let m = token.exec(json); m !== null; m = token.exec(json)) {
    const [text] = m;
    if (text === "{") open.push(new Set());
    else if (text === "[") open.push(undefined);
    else if (text === "}" || text === "]") open.pop();
    else {
      const keys = open.at(-1);
      colon.lastIndex = token.lastIndex;
      if (keys === undefined || !colon.test(json)) continue;
      const key = text.includes("\\") ? JSON.parse(text) as string : text.slice(1, -1);
      if (keys.has(key)) return key;
      keys.add(key);
    }
  }
  return undefined;
}
