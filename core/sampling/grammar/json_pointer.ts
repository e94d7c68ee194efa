/**
 * References within a JSON document, as `$ref` writes them: `#/$defs/a~1b`.
 * @module
 */

/** The value that a reference points to; undefined when it points to nothing, or outside the document. */
export function atPointer(document: unknown, ref: string): unknown {
  if (!ref.startsWith("#")) return undefined;
  let here = document;
  for (const part of ref.slice(1).split("/").filter((p) => p !== "")) {
    const key = percentDecoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof here !== "object" || here === null || !Object.hasOwn(here, key)) return undefined;
    here = (here as Record<string, unknown>)[key];
  }
  return here;
}

/** A member's name as a part of a reference. */
export const pointerPart = (name: string): string => name.replaceAll("~", "~0").replaceAll("/", "~1");

function percentDecoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a stray per cent sign stands for itself
  }
}
