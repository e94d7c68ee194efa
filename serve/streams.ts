/**
 * Small tools for async iterators.
 * @module
 */

/**
 * The items of several sources as they come, each with its source's number. The first error ends all; leaving early
 * closes all.
 */
export async function* merge<T>(sources: AsyncIterator<T>[]): AsyncGenerator<[number, T], void, void> {
  type Turn = { i: number; result: IteratorResult<T> };
  const next = (i: number): Promise<Turn> => sources[i].next().then((result) => ({ i, result }));
  const pending = new Map(sources.map((_, i) => [i, next(i)]));
  try {
    while (pending.size > 0) {
      const { i, result } = await Promise.race(pending.values());
      if (result.done) {
        pending.delete(i);
        continue;
      }
      pending.set(i, next(i));
      yield [i, result.value];
    }
  } finally {
    for (const [i, turn] of pending) {
      turn.catch(() => {}); // its error is reported already, or nobody listens any more
      sources[i].return?.()?.catch(() => {});
    }
  }
}
