/**
 * One choice for each tensor, so that the sum of losses is least and the sum of sizes stays within a budget (a knapsack with one choice of
 * each group).
 *
 * First the lower convex hulls: from the smallest choices on, the step that gains most for its bytes, as long as there is room. Where the
 * room ends, that step's gain per byte is a price of bytes, which bounds what any choice can reach. Then the refinement: partial choices
 * are built up tensor by tensor, and those are dropped that another one beats in size and loss, or whose bound is no better than the best
 * known. What is left at the end is the best there is. Where more than `MOST` partial choices are left, the most promising are kept, and
 * the result is not known to be the best.
 * @module
 */

/** What a tensor costs and loses in one of its types. */
export interface Choice {
  /** Its size. */
  readonly cost: number;
  readonly loss: number;
}

/** What was chosen. */
export interface Solution {
  /** For each tensor, which of its choices. */
  readonly picks: readonly number[];
  readonly cost: number;
  readonly loss: number;
  /** No other choice within the budget loses less. */
  readonly isBest: boolean;
}

/** Partial choices that are kept at most. */
const MOST = 20_000;

interface Item extends Choice {
  /** Its place among the tensor's choices. */
  readonly at: number;
}

/** The choices that no other beats in both, from the smallest on. */
function front(choices: readonly Choice[]): Item[] {
  const sorted = choices.map((c, at) => ({ ...c, at })).sort((a, b) => a.cost - b.cost || a.loss - b.loss);
  let least = Infinity;
  return sorted.filter((c) => c.loss < least && ((least = c.loss), true));
}

/** The lower convex hull of a front: gains per cost fall from step to step. */
function hull(items: readonly Item[]): Item[] {
  const out: Item[] = [];
  for (const c of items) {
    while (out.length >= 2) {
      const [a, b] = out.slice(-2);
      if ((a.loss - b.loss) * (c.cost - b.cost) > (b.loss - c.loss) * (b.cost - a.cost)) break;
      out.pop();
    }
    out.push(c);
  }
  return out;
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

/** Hull steps in the order of their gain per cost, as far as the budget goes; and the price where it ends. */
function greedy(fronts: readonly (readonly Item[])[], budget: number): { picks: Item[]; price: number } {
  const steps = fronts.flatMap((items, tensor) => {
    const h = hull(items);
    return h.slice(1).map((to, i) => ({ tensor, to, rate: (h[i].loss - to.loss) / (to.cost - h[i].cost), i }));
  }).sort((a, b) => b.rate - a.rate || a.tensor - b.tensor || a.i - b.i);
  const picks = fronts.map(([first]) => first);
  let room = budget - sum(picks.map((c) => c.cost)), price: number | undefined;
  const stopped = new Set<number>();
  for (const { tensor, to, rate } of steps) {
    const more = to.cost - picks[tensor].cost;
    if (stopped.has(tensor)) continue;
    if (more > room) {
      price ??= rate;
      stopped.add(tensor);
      continue;
    }
    room -= more;
    picks[tensor] = to;
  }
  // Choices that the hull leaves out may still fit.
  for (const [tensor, items] of fronts.entries()) {
    const own = picks[tensor];
    const better = items.filter((c) => c.loss < own.loss && c.cost - own.cost <= room).at(-1);
    if (better === undefined) continue;
    room -= better.cost - own.cost;
    picks[tensor] = better;
  }
  return { picks, price: price ?? 0 };
}

/** Partial choices of the first tensors: parallel lists, from the cheapest on. */
interface Layer {
  readonly cost: Float64Array;
  readonly loss: Float64Array;
  /** The partial choice it goes on from. */
  readonly parent: Int32Array;
  /** Which item of the tensor. */
  readonly item: Int32Array;
}

/**
 * @param tensors The choices of each; none may be empty.
 * @param budget The most that costs may sum up to.
 * @param most Partial choices that are kept at most.
 * @returns undefined where even the smallest choices are too large
 */
export function solveBudget(
  tensors: readonly (readonly Choice[])[],
  budget: number,
  most: number = MOST,
): Solution | undefined {
  const fronts = tensors.map(front);
  if (smallest(tensors) > budget) return undefined;
  const start = greedy(fronts, budget), { price } = start;
  let known = start.picks;
  let upper = sum(known.map((c) => c.loss));
  const priced = (c: Choice) => c.loss + price * c.cost;
  const least = fronts.map((items) => Math.min(...items.map(priced)));
  const floor = sum(least) - price * budget;
  // Rounding must not drop a choice that is as good as the bound says.
  const slack = 1e-12 * (Math.abs(upper) + price * budget);
  const fits = fronts.map((items, i) => items.filter((c) => floor + priced(c) - least[i] < upper + slack));
  // A tensor with one choice left decides nothing; the ones with the most come last, where bounds are sharpest.
  const order = [...fits.keys()].sort((a, b) => fits[a].length - fits[b].length || a - b);
  const restLeast = suffixSums(order.map((i) => least[i])), restCost = suffixSums(order.map((i) => fronts[i][0].cost));
  let isBest = true;
  const layers: Layer[] = [{
    cost: Float64Array.of(0),
    loss: Float64Array.of(0),
    parent: Int32Array.of(-1),
    item: Int32Array.of(-1),
  }];
  for (const [k, i] of order.entries()) {
    const before = layers[k];
    const next: { cost: number; loss: number; parent: number; item: number; bound: number }[] = [];
    for (let parent = 0; parent < before.cost.length; parent++) {
      for (const [item, c] of fits[i].entries()) {
        const cost = before.cost[parent] + c.cost, loss = before.loss[parent] + c.loss;
        const bound = loss + price * cost + restLeast[k + 1] - price * budget;
        if (cost + restCost[k + 1] <= budget && bound < upper + slack) next.push({ cost, loss, parent, item, bound });
      }
    }
    next.sort((a, b) => a.cost - b.cost || a.loss - b.loss);
    let lowest = Infinity;
    let kept = next.filter((s) => s.loss < lowest && ((lowest = s.loss), true));
    if (kept.length > most) {
      isBest = false;
      kept = kept.toSorted((a, b) => a.bound - b.bound).slice(0, most).sort((a, b) => a.cost - b.cost);
    }
    layers.push({
      cost: Float64Array.from(kept, (s) => s.cost),
      loss: Float64Array.from(kept, (s) => s.loss),
      parent: Int32Array.from(kept, (s) => s.parent),
      item: Int32Array.from(kept, (s) => s.item),
    });
  }
  const last = layers[order.length];
  // Of what is left the dearest loses least; none is left where nothing beats what the hulls gave.
  const end = last.loss.length - 1;
  if (end >= 0 && last.loss[end] < upper) {
    const better = [...known];
    for (let k = order.length, at = end; k > 0; at = layers[k].parent[at], k--) {
      better[order[k - 1]] = fits[order[k - 1]][layers[k].item[at]];
    }
    known = better;
    upper = sum(known.map((c) => c.loss));
  }
  return { picks: known.map((c) => c.at), cost: sum(known.map((c) => c.cost)), loss: upper, isBest };
}

/** The least that choices can cost together. */
export function smallest(tensors: readonly (readonly Choice[])[]): number {
  return sum(tensors.map((choices) => Math.min(...choices.map((c) => c.cost))));
}

/** Sums of what follows, itself included. */
function suffixSums(values: readonly number[]): number[] {
  const out = [...values, 0];
  for (let i = values.length - 1; i >= 0; i--) out[i] += out[i + 1];
  return out;
}
