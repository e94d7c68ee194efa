import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { EngineError } from "../errors.ts";
import { PageList, PagePool } from "./pages.ts";
import { type KeptPoint, Sequence, type SequenceOwner } from "./sequence.ts";

const SIZE = 4, WINDOW = 6;
const KINDS = [{ window: 0, state: false }, { window: WINDOW, state: false }, { window: 0, state: true }];

function owner(pools: readonly PagePool[]): { owner: SequenceOwner; kept: Set<KeptPoint> } {
  const kept = new Set<KeptPoint>();
  return {
    kept,
    owner: {
      lists: () => KINDS.map((kind, i) => new PageList(pools[i], kind)),
      kept: (p) => kept.add(p),
      dropped: (p) => kept.delete(p),
    },
  };
}

/** A sequence, its kept points, and what appends tokens to it. */
function sequenceOn(pools: readonly PagePool[]) {
  const { owner: o, kept } = owner(pools);
  const s = new Sequence(o);
  const append = (n: number): void => {
    for (const l of s.lists) l.append(n);
    s.push(new Array(n).fill(7), 0, n);
    for (const l of s.lists) l.settle();
  };
  return { s, kept, append };
}

Deno.test("a windowed list gives back what no later position can reach, and says how far it can be cut", () => {
  const pool = new PagePool(8, SIZE);
  const list = new PageList(pool, { window: WINDOW, state: false });
  list.append(20);
  list.settle();
  // The row at position 20 reads positions 15 to 20.
  assert.deepEqual(list.ids.map((id) => id >= 0), [false, false, false, true, true]);
  assert.equal(pool.n_free, 6);
  assert.equal(list.reaches(17), true);
  assert.equal(list.reaches(16), false);
  assert.equal(list.reaches(0), true);
  list.truncate(17);
  assert.equal(list.length, 17);
  // The row at position 21 reads positions 16 to 21: a page less.
  list.append(4);
  list.settle();
  assert.deepEqual(list.ids.map((id) => id >= 0), [false, false, false, false, true, true]);
  list.truncate(0);
  assert.equal(pool.n_free, 8);
});

Deno.test("Sequence.truncate goes back to the nearest kept point where a state stops it", () => {
  const pools = KINDS.map((k) => new PagePool(40, k.state ? 1 : SIZE));
  const { s, kept, append } = sequenceOn(pools);
  append(9);
  s.keep();
  append(5);
  assert.equal(s.rewindable, false);
  assert.equal(s.reach(12), 9);
  assert.equal(s.truncate(14), 14);
  assert.equal(s.truncate(12), 9);
  assert.equal(s.length, 9);
  assert.equal(s.truncate(9), 9);
  assert.equal(s.truncate(8), 0);
  assert.equal(kept.size, 0);
  s.dispose();
  assert.deepEqual(pools.map((p) => p.n_free), [40, 40, 40]);
});

Deno.test("a kept point outlives what comes back to it, and the oldest goes when there are too many", () => {
  const pools = KINDS.map((k) => new PagePool(80, k.state ? 1 : SIZE));
  const { s, kept, append } = sequenceOn(pools);
  append(9);
  s.keep();
  for (const n of [9, 11, 9]) {
    append(5);
    assert.equal(s.reach(n), 9);
    assert.equal(s.truncate(n), 9);
    assert.equal(kept.size, 1);
  }
  for (let i = 0; i < 3; i++) {
    append(4);
    s.keep();
  }
  assert.deepEqual([...kept].map((k) => k.length), [9, 13, 17, 21]);
  append(4);
  s.keep();
  assert.deepEqual([...kept].map((k) => k.length), [13, 17, 21, 25]);
  assert.throws(() => s.truncate(26), /truncate to 26 of 25/);
  assert.throws(() => s.truncate(-1), /truncate to -1 of 25/);
  s.dispose();
});

Deno.test("a sequence of plain caches alone can be cut anywhere", () => {
  const pool = new PagePool(8, SIZE);
  const of = (...kinds: { window: number; state: boolean }[]) =>
    new Sequence({ lists: () => kinds.map((kind) => new PageList(pool, kind)), kept: () => {}, dropped: () => {} });
  assert.equal(of(KINDS[0]).rewindable, true);
  assert.equal(of(KINDS[0], KINDS[1]).rewindable, false);
  assert.equal(of(KINDS[2]).rewindable, false);
});

Deno.test("a list wants a page for the copy of a shared page that it writes into, and for none that is full", () => {
  const pool = new PagePool(8, SIZE), list = new PageList(pool, KINDS[0]);
  list.append(6);
  const fork = list.fork();
  assert.deepEqual([list.wanted(1), list.wanted(2), list.wanted(3)], [1, 1, 2]);
  fork.truncate(0);
  assert.deepEqual([list.wanted(1), list.wanted(2), list.wanted(3)], [0, 0, 1]);
  list.append(2);
  const full = list.fork();
  assert.equal(list.wanted(1), 1);
  full.truncate(0);
  const state = new PageList(new PagePool(8, 1), KINDS[2]);
  assert.equal(state.wanted(5), 1);
  state.append(5);
  assert.equal(state.wanted(5), 0);
  state.fork();
  assert.equal(state.wanted(5), 1);
});

Deno.test("any history of appends, guesses, cuts, forks and kept points leaves every sequence what its own tokens wrote", () => {
  const action = fc.record({
    which: fc.nat(5),
    kind: fc.constantFrom("append", "append", "guess", "truncate", "fork", "keep", "drop"),
    n: fc.nat(12),
  });
  fc.assert(
    fc.property(fc.array(action, { maxLength: 80 }), (actions) => {
      const pools = KINDS.map((k) => new PagePool(60, k.state ? 1 : SIZE));
      const { owner: o, kept } = owner(pools);
      /** What the pages hold: a stamp per token slot, and all stamps of a sequence in its state. */
      const memory = KINDS.map(() => new Map<number, number[]>());
      const all = [{ s: new Sequence(o), stamps: [] as number[] }];
      let next = 0;
      for (const a of actions) {
        const item = all[a.which % all.length], { s } = item;
        if (a.kind === "append" || a.kind === "guess") {
          const before = s.length;
          if (a.kind === "guess") s.mark();
          const fresh = Array.from({ length: a.n }, () => next++);
          if (s.lists.some((l, c) => l.wanted(a.n) > pools[c].n_free)) {
            if (a.kind === "guess") assert.equal(s.rewind(before), before);
            continue;
          }
          s.lists.forEach((l, c) => {
            for (const { src, dst } of l.append(a.n)) memory[c].set(dst, [...memory[c].get(src)!]);
            if (a.n === 0) return;
            if (KINDS[c].state) {
              const before = item.stamps.length === 0 ? [] : memory[c].get(l.ids[0])!;
              memory[c].set(l.ids[0], [...before, ...fresh]);
              return;
            }
            fresh.forEach((stamp, i) => {
              const at = item.stamps.length + i, page = l.ids[Math.floor(at / SIZE)];
              if (at % SIZE === 0 || !memory[c].has(page)) memory[c].set(page, []);
              memory[c].get(page)![at % SIZE] = stamp;
            });
          });
          s.push(fresh, 0, a.n);
          item.stamps.push(...fresh);
          for (const l of s.lists) l.settle(s.marked);
          if (a.kind === "guess") {
            // A state goes back to the mark, unless all guesses stay.
            const n = before + a.n - a.n % 3, got = s.rewind(n);
            assert.equal(got, n === s.tokens.length ? n : before);
            item.stamps.length = got;
          }
        } else if (a.kind === "truncate") {
          const to = Math.min(a.n, s.length), reach = s.reach(to), got = s.truncate(to);
          assert.equal(got, reach);
          assert.ok(got <= to);
          item.stamps.length = got;
        } else if (a.kind === "fork" && all.length < 6) all.push({ s: s.fork(), stamps: [...item.stamps] });
        else if (a.kind === "keep") s.keep();
        else if (a.kind === "drop") {
          s.dispose();
          all[a.which % all.length] = { s: new Sequence(o), stamps: [] };
        }
        for (const { s, stamps } of all) {
          assert.deepEqual([...s.tokens], stamps);
          s.lists.forEach((l, c) => {
            if (KINDS[c].state) {
              if (stamps.length > 0) assert.deepEqual(memory[c].get(l.ids[0]), stamps);
              return;
            }
            const first = KINDS[c].window === 0 ? 0 : Math.max(0, stamps.length - WINDOW + 1);
            for (let i = first; i < stamps.length; i++) {
              assert.equal(memory[c].get(l.ids[Math.floor(i / SIZE)])![i % SIZE], stamps[i]);
            }
          });
        }
      }
      for (const { s } of all) s.dispose();
      assert.equal(kept.size, 0);
      for (const p of pools) assert.equal(p.n_free, 60);
    }),
    { numRuns: 300 },
  );
});

Deno.test("a step that would take pages a pool lacks is refused by name", () => {
  const pool = new PagePool(1, 1);
  const a = new PageList(pool, { window: 0, state: true });
  a.append(1);
  const b = a.fork();
  assert.equal(b.wanted(1), 1);
  assert.throws(() => b.append(1), (e) => e instanceof EngineError && e.code === "engine.no_pages");
});

Deno.test("Sequence.rewind keeps right guesses where every cache can be cut, and goes back to the mark where one cannot", () => {
  for (const [kinds, want] of [[KINDS.slice(0, 2), 12], [KINDS, 10]] as const) {
    const pools = kinds.map((k) => new PagePool(20, k.state ? 1 : SIZE));
    const lists = () => kinds.map((kind, i) => new PageList(pools[i], kind));
    const s = new Sequence({ lists, kept: () => {}, dropped: () => {} });
    const append = (n: number) => {
      for (const l of s.lists) l.append(n);
      s.push(new Array(n).fill(7), 0, n);
      for (const l of s.lists) l.settle(s.marked);
    };
    append(10);
    assert.throws(() => s.rewind(10), /marked at undefined/);
    s.mark();
    assert.equal(s.marked, 10);
    append(9);
    assert.throws(() => s.rewind(9), /rewind to 9 of 19/);
    assert.equal(s.rewind(12), want);
    assert.equal(s.marked, undefined);
    s.mark();
    append(4);
    assert.equal(s.rewind(want + 4), want + 4);
    s.mark();
    append(1);
    s.truncate(0);
    assert.deepEqual(pools.map((p) => p.n_free), pools.map(() => 20), "the mark's pages came back");
    append(3);
    s.mark();
    s.dispose();
    assert.deepEqual(pools.map((p) => p.n_free), pools.map(() => 20));
  }
});
