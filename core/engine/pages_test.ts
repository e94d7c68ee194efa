import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { EngineError } from "../errors.ts";
import { PageList, PagePool } from "./pages.ts";

Deno.test("PageList takes pages as tokens arrive and gives them back", () => {
  const pool = new PagePool(4, 8);
  const list = new PageList(pool);
  assert.deepEqual(list.append(8), []);
  assert.equal(list.ids.length, 1);
  list.append(1);
  assert.equal(list.ids.length, 2);
  list.truncate(8);
  assert.equal(list.ids.length, 1);
  list.truncate(0);
  assert.equal(pool.n_free, 4);
});

Deno.test("PageList.append refuses what the pool cannot give and takes nothing", () => {
  const pool = new PagePool(2, 8);
  const list = new PageList(pool);
  list.append(3);
  assert.throws(() => list.append(20), (e) => e instanceof EngineError && e.code === "engine.no_pages");
  assert.equal(list.length, 3);
  assert.equal(pool.n_free, 1);
});

Deno.test("a fork shares pages and copies the partly filled one when it writes", () => {
  const pool = new PagePool(8, 8);
  const parent = new PageList(pool);
  parent.append(12);
  const child = parent.fork();
  assert.deepEqual(child.ids, parent.ids);
  assert.equal(pool.n_free, 6);
  const last = parent.ids[1];
  assert.deepEqual(child.append(1), [{ src: last, dst: child.ids[1] }]);
  assert.notEqual(child.ids[1], last);
  assert.deepEqual(parent.append(1), []);
});

Deno.test("any history of forks, appends and truncations keeps every page's owners apart", () => {
  const action = fc.record({
    which: fc.nat(5),
    kind: fc.constantFrom("append", "truncate", "fork", "drop"),
    n: fc.nat(20),
  });
  fc.assert(fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
    const size = 4;
    const pool = new PagePool(40, size);
    /** What each page's slots hold: a stamp per token, written through the lists. */
    const memory = new Map<number, number[]>();
    const lists: { list: PageList; tokens: number[] }[] = [{ list: new PageList(pool), tokens: [] }];
    let stamp = 0;
    for (const a of actions) {
      const item = lists[a.which % lists.length];
      if (a.kind === "append") {
        let copies;
        try {
          copies = item.list.append(a.n);
        } catch (e) {
          assert.ok(e instanceof EngineError);
          continue;
        }
        for (const { src, dst } of copies) memory.set(dst, [...memory.get(src) ?? []]);
        for (let i = 0; i < a.n; i++) {
          const at = item.tokens.length;
          const page = item.list.ids[Math.floor(at / size)];
          if (!memory.has(page)) memory.set(page, []);
          memory.get(page)![at % size] = stamp;
          item.tokens.push(stamp++);
        }
      } else if (a.kind === "truncate") {
        const n = Math.min(a.n, item.list.length);
        item.list.truncate(n);
        item.tokens.length = n;
      } else if (a.kind === "fork" && lists.length < 6) {
        lists.push({ list: item.list.fork(), tokens: [...item.tokens] });
      } else if (a.kind === "drop") {
        item.list.truncate(0);
        item.tokens.length = 0;
      }
      for (const { list, tokens } of lists) {
        const seen = tokens.map((_, i) => memory.get(list.ids[Math.floor(i / size)])![i % size]);
        assert.deepEqual(seen, tokens);
      }
    }
    for (const { list } of lists) list.truncate(0);
    assert.equal(pool.n_free, 40);
  }));
});
