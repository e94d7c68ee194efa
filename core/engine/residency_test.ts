import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { Seats } from "./residency.ts";

const seatedOf = (s: Seats) => s.seated.flatMap((list, g) => [...list].flatMap((v, e) => v === 1 ? [`${g}.${e}`] : []));

Deno.test("Seats.start seats the highest counts, ties by layer and number, and nobody without a count", () => {
  const seats = new Seats([4, 4], 4); // three seats
  seats.start([[5, 0, 9, 0], [0, 5, 1, 0]]);
  assert.deepEqual(seatedOf(seats), ["0.0", "0.2", "1.1"]);
  seats.start([undefined, [0, 0, 1, 0]]);
  assert.deepEqual(seatedOf(seats), ["1.2"]);
  assert.equal(seats.n_seated, 1);
});

Deno.test("Seats.adapt seats what is used, and changes seats only for a clear gain", () => {
  const seats = new Seats([8], 4);
  seats.count(0, [9, 9, 9, 1, 0, 0, 0, 0], 1);
  assert.deepEqual([...seats.adapt()], [0]);
  assert.deepEqual(seatedOf(seats), ["0.0", "0.1", "0.2"]);
  seats.count(0, [0, 0, 0, 9, 0, 0, 0, 0], 1); // 9.98 beside 8.82: no clear gain
  assert.equal(seats.adapt().size, 0);
  seats.count(0, [0, 0, 0, 9, 0, 0, 0, 0], 1);
  seats.adapt();
  assert.deepEqual(seatedOf(seats), ["0.0", "0.1", "0.3"]);
});

Deno.test("Seats is a function of the history of counts, and never has more seats than it may", () => {
  const history = fc.array(fc.array(fc.nat(20), { minLength: 6, maxLength: 6 }), { maxLength: 40 });
  fc.assert(fc.property(history, fc.integer({ min: 1, max: 14 }), (counts, n_slots) => {
    const run = () => {
      const seats = new Seats([6, 6], n_slots);
      counts.forEach((rows, i) => {
        seats.count(i % 2, rows, 1);
        seats.adapt();
        assert.equal(seatedOf(seats).length, seats.n_seated);
        assert.ok(seats.n_seated <= seats.capacity);
      });
      return seatedOf(seats);
    };
    assert.deepEqual(run(), run());
  }));
});

/** Share of choices that are in memory when the slots hold the seated and, of others, what was used last, as the library keeps them. */
function hitRate(n_slots: number, seats: Seats | undefined): number {
  const n_expert = 32, n_layer = 4, n_used = 3;
  const order = Array.from(
    { length: n_layer },
    (_, g) => Array.from({ length: n_expert }, (_, e) => (e * 7 + g * 5) % n_expert),
  );
  const weights = order[0].map((_, i) => 1 / (i + 1)), total = weights.reduce((a, b) => a + b);
  let state = 1;
  const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  const held = new Map<string, true>();
  let hits = 0, all = 0;
  for (let step = 0; step < 1200; step++) {
    const counts = order.map(() => new Array(n_expert).fill(0));
    for (let g = 0; g < n_layer; g++) {
      const chosen = new Set<number>();
      while (chosen.size < n_used) {
        let at = random() * total, i = 0;
        while (at > weights[i]) at -= weights[i++];
        chosen.add(order[g][i]);
      }
      for (const e of chosen) {
        const key = `${g}.${e}`;
        counts[g][e]++;
        if (step >= 600) all++, hits += held.has(key) ? 1 : 0;
        held.delete(key);
        held.set(key, true);
        if (held.size <= n_slots) continue;
        const leaves = [...held.keys()].find((k) => {
          const [g, e] = k.split(".").map(Number);
          return seats?.seated[g][e] !== 1;
        });
        held.delete(leaves ?? [...held.keys()][0]);
      }
    }
    counts.forEach((rows, g) => seats?.count(g, rows, 1));
    if (step % 4 === 3) seats?.adapt();
  }
  return hits / all;
}

Deno.test("seats hold more of an uneven routing than what was used last", () => {
  for (const n_slots of [24, 48]) {
    const recent = hitRate(n_slots, undefined), seated = hitRate(n_slots, new Seats([32, 32, 32, 32], n_slots));
    assert.ok(seated > recent + 0.03, `${n_slots} slots: ${seated} with seats, ${recent} without`);
  }
});
