/**
 * Families that are announced and that nobody outside can check: no code, tensor list or reference output of theirs is public.
 * @module
 */

export interface Unpublished {
  readonly family: string;
  /** Found in a GGUF architecture or a class or model type of config.json, whatever the exact spelling turns out to be. */
  readonly name: RegExp;
  /** What would have to be known. */
  readonly missing: string;
}

export const UNPUBLISHED: readonly Unpublished[] = [
  {
    family: "Mistral Large 4",
    name: /mistral[-_ ]?large[-_ ]?4/i,
    missing: "how its layers share latents, what its indexer reads and the form of its scalable softmax",
  },
  {
    family: "Raon-1",
    name: /\braon/i,
    missing: "its linear attention, its router and the order of its layers",
  },
];

/** Why a family of this name is refused, as the end of a message; undefined for others. */
export function unpublished(name: string): string | undefined {
  const found = UNPUBLISHED.find((u) => u.name.test(name));
  return found && `this is ${found.family}, and nothing public says ${found.missing}`;
}
