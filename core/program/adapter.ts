/**
 * What a program has to know of low-rank adapters: how their tensors are named beside a model's, and how strong they are.
 * @module
 */

/** An adapter as programs see it. */
export interface AdapterShape {
  /** The product of A and B is divided by their rank and multiplied by this; 0: neither. */
  readonly alpha: number;
}

/** The name of an adapter's matrix A or B for a weight of the model. */
export function adapterTensor(adapter: number, weight: string, part: "a" | "b"): string {
  return `adapter.${adapter}.${weight}.${part}`;
}

/** What one unit of a sequence's scale is worth for matrices of a rank. */
export function adapterFactor({ alpha }: AdapterShape, rank: number): number {
  return alpha === 0 ? 1 : alpha / rank;
}

/** Whether two sequences have the same of each adapter. */
export function sameAdapters(a: readonly number[], b: readonly number[]): boolean {
  for (let i = Math.max(a.length, b.length) - 1; i >= 0; i--) if ((a[i] ?? 0) !== (b[i] ?? 0)) return false;
  return true;
}
