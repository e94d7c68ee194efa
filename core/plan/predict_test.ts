import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../errors.ts";
import { type Machine, MACHINE_SCHEMA, parseMachine, productRate } from "./machine.ts";
import { heldShare, predict, usage } from "./predict.ts";
import type { ProductWork, Work } from "./work.ts";

const MACHINE: Machine = {
  schema: MACHINE_SCHEMA,
  host: {
    name: "box",
    n_threads: 2,
    bandwidth: 1e10,
    op: 1e-6,
    products: { q8_0: { one: 1e10, many: 1e11 }, f16: { one: 5e9, many: 4e10 } },
  },
  cards: [{
    name: "card",
    bandwidth: 1e12,
    op: 2e-6,
    products: { q8_0: { one: 1e12, many: 1e14 } },
    to_card: 1e10,
    to_host: 1e10,
  }],
  drives: [{ path: "/models", random: 1e9, sequential: 2e9 }],
};

const dense: ProductWork = { name: "w", type: "q8_0", place: "host", bytes: 1e8, macs: 1e8, outputs: false };
const WORK: Work = {
  products: [dense],
  attention: [],
  n_crossing: 0,
  crossing_bytes: 0,
  n_op: { host: 10, card: 0 },
  layers: [],
  pools: [],
};

/** Within rounding. */
function near(got: number, want: number): void {
  assert.ok(Math.abs(got - want) <= 1e-9 * Math.abs(want), `${got}, expected ${want}`);
}

Deno.test("predict() adds up bytes for a token and multiply-adds for a prompt", () => {
  const p = predict(WORK, MACHINE, { n_prompt: 1000, n_ubatch: 400 });
  // 10 ms of bytes and 10 us of ops; 3 passes: 400, 400 and 200 rows at 1e11 / s.
  near(p.decode.tokens_per_second, 1 / (1e8 / 1e10 + 10e-6));
  near(p.prompt.tokens_per_second, 1000 / (1000 * 1e8 / 1e11 + 30e-6));
  assert.equal(p.hit_rate, 1);
  near(predict(WORK, MACHINE, { n_prompt: 800, n_ubatch: 400 }).prompt.tokens_per_second, 800 / (0.8 + 20e-6));
  assert.deepEqual(p.decode.terms.map((t) => [t.what, t.place, t.bytes]), [
    ["products", "host", 1e8],
    ["ops", "host", 0],
  ]);
  // Few rows are bound by bytes: 2 rows cost as one.
  near(predict(WORK, MACHINE, { n_prompt: 2 }).prompt.tokens_per_second, 2 / (1e8 / 1e10 + 10e-6));
});

Deno.test("predict() computes the head for output rows only, and attention by position within its window", () => {
  const head = { ...dense, outputs: true };
  near(
    predict({ ...WORK, products: [head] }, MACHINE, { n_prompt: 500 }).prompt.tokens_per_second,
    500 / (1e-2 + 10e-6),
  );
  const attention = [{ place: "host" as const, macs: 1e4, bytes: 1000, most: Infinity }];
  const work = { ...WORK, products: [], attention, n_op: { host: 1, card: 0 } };
  // After 999 positions a row reads 1000 of them: 1e6 bytes at 1e10, or 1e7 multiply-adds at 4e10.
  near(predict(work, MACHINE, { depth: 999 }).decode.tokens_per_second, 1 / (1e7 / 4e10 + 1e-6));
  const window = { ...work, attention: [{ ...attention[0], most: 100 }] };
  near(predict(window, MACHINE, { depth: 999 }).decode.tokens_per_second, 1 / (1e6 / 4e10 + 1e-6));
});

const routed = (place: "host" | "card" = "host"): Work => ({
  ...WORK,
  products: [{ ...dense, place, bytes: 16e6, macs: 4e6, routed: { layer: 0, n_expert: 16, n_used: 4 } }],
  layers: [["w"]],
});

Deno.test("predict() reads the experts that a token uses, and those that no slot holds from the drive", () => {
  const resident = predict(routed(), MACHINE, { skew: 0 });
  near(resident.decode.tokens_per_second, 1 / (4e6 / 1e10 + 10e-6));
  near(resident.decode.terms[0].bytes, 4e6);
  const pooled = { ...routed(), pools: [{ n_slots: 4, layers: [0] }] };
  const even = predict(pooled, MACHINE, { skew: 0 });
  // Three seats of 16 experts, and one slot for the other 13: a quarter of what is used.
  assert.ok(Math.abs(even.hit_rate - 0.25) < 0.02, `${even.hit_rate}`);
  const [drive] = even.decode.terms.filter((t) => t.what === "drive");
  near(drive.bytes, 4e6 * (1 - even.hit_rate));
  near(drive.seconds, drive.bytes / 1e9 - 0.85 * (4e6 / 1e10 + 10e-6));
  const two = predict(pooled, MACHINE, { skew: 0, n_drive: 2 });
  assert.ok(two.decode.tokens_per_second > 1.7 * even.decode.tokens_per_second);
  const withDense = predict({ ...pooled, products: [...pooled.products, dense] }, MACHINE, { skew: 0 });
  near(withDense.decode.terms.find((t) => t.what === "drive")!.bytes, drive.bytes);
  const rank = new Map([["w", Float64Array.from({ length: 16 }, (_, e) => e < 4 ? 9 : 0)]]);
  const ranked = predict({ ...pooled, pools: [{ n_slots: 8, layers: [0] }] }, MACHINE, { rank });
  assert.equal(ranked.hit_rate, 1);
});

Deno.test("predict() counts what passes between a card and the host's experts", () => {
  // Two layers of experts, one of them on the card, and a dense product on the host.
  const onCard = { ...routed("card").products[0], name: "c", routed: { layer: 1, n_expert: 16, n_used: 4 } };
  const products = [...routed().products, onCard, { ...dense, name: "d" }];
  const mixed: Work = {
    ...routed(),
    products,
    layers: [["w"], ["c"]],
    n_op: { host: 1, card: 5 },
    n_crossing: 2,
    crossing_bytes: 8000,
  };
  const terms = predict(mixed, MACHINE, { skew: 0 }).decode.terms.filter((t) => t.what === "crossings");
  near(terms[0].seconds, 2 * 15e-6 + 8000 / 1e10);
  assert.equal(predict({ ...mixed, n_crossing: 0 }, MACHINE).decode.terms.some((t) => t.what === "crossings"), false);
  for (
    const [what, work] of [["cards", { ...WORK, n_op: { host: 0, card: 1 } }], ["drives", {
      ...routed(),
      pools: [{ n_slots: 4, layers: [0] }],
    }]] as const
  ) {
    assert.throws(() => predict(work, { ...MACHINE, [what]: [] }), { code: "plan.machine" });
  }
});

Deno.test("usage() is a probability for each expert, and their sum is what a row uses", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 64 }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.double({ min: 0, max: 3, noNaN: true }),
      (n, share, skew) => {
        const used = Math.max(1, Math.floor(n * share)), p = usage(n, used, (e) => (e + 1) ** -skew);
        assert.ok(p.every((v) => v >= 0 && v <= 1));
        assert.ok(Math.abs(p.reduce((a, b) => a + b, 0) - used) < 1e-6 * used, `${p}`);
        for (let e = 1; e < n; e++) assert.ok(p[e] <= p[e - 1]);
      },
    ),
  );
  assert.deepEqual([...usage(4, 2, (e) => e === 0 ? 1 : 0)], [0.5, 0.5, 0.5, 0.5]);
});

Deno.test("heldShare() fills the slots and no more, the most used first", () => {
  fc.assert(
    fc.property(
      fc.array(fc.double({ min: 0.001, max: 1, noNaN: true }), { minLength: 1, maxLength: 40 }),
      fc.integer({ min: 1, max: 50 }),
      (list, n_slots) => {
        const p = Float64Array.from(list), held = heldShare(p, n_slots), sum = held.reduce((a, b) => a + b, 0);
        assert.ok(held.every((h) => h >= 0 && h <= 1));
        assert.ok(Math.abs(sum - Math.min(p.length, n_slots)) < 1e-6 * n_slots, `${sum} of ${n_slots}`);
        p.forEach((a, i) => p.forEach((b, j) => assert.ok(a <= b || held[i] >= held[j] - 1e-12)));
      },
    ),
  );
});

Deno.test("a faster machine is never predicted to be slower", () => {
  const work = {
    ...routed(),
    attention: [{ place: "host" as const, macs: 100, bytes: 100, most: Infinity }],
    pools: [{ n_slots: 6, layers: [0] }],
  };
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 4 }), fc.double({ min: 1, max: 10, noNaN: true }), (which, faster) => {
      const { host, drives } = MACHINE;
      const q8_0 = {
        one: host.products.q8_0.one * (which === 0 ? faster : 1),
        many: host.products.q8_0.many * (which === 1 ? faster : 1),
      };
      const better: Machine = {
        ...MACHINE,
        host: {
          ...host,
          bandwidth: host.bandwidth * (which === 2 ? faster : 1),
          op: host.op / (which === 3 ? faster : 1),
          products: { ...host.products, q8_0 },
        },
        drives: [{ ...drives[0], random: drives[0].random * (which === 4 ? faster : 1) }],
      };
      const a = predict(work, MACHINE, { depth: 500 }), b = predict(work, better, { depth: 500 });
      for (const rate of ["decode", "prompt"] as const) {
        assert.ok(b[rate].tokens_per_second >= a[rate].tokens_per_second * (1 - 1e-9), rate);
      }
    }),
  );
});

Deno.test("parseMachine() gives back what was written, and refuses the rest by field", () => {
  const text = JSON.stringify(MACHINE);
  assert.deepEqual(parseMachine("m.json", text), MACHINE);
  const refused = (edit: (m: any) => void, message: RegExp) => {
    const m = JSON.parse(text);
    edit(m);
    assert.throws(() => parseMachine("m.json", JSON.stringify(m)), { code: "format.machine", message });
  };
  refused((m) => m.schema = "other", /schema is "other", expected "bloomery\.machine\/1"$/);
  refused((m) => delete m.host.op, /host\.op is no number above 0$/);
  refused((m) => m.host.products = {}, /host\.products is empty$/);
  refused((m) => m.cards[0].products.q8_0.one = -1, /cards\[0\]\.products\.q8_0\.one is no number above 0$/);
  refused((m) => m.drives = 3, /drives is no list$/);
  refused((m) => m.host = [], /host is no object$/);
  assert.throws(() => parseMachine("m.json", "{"), { code: "format.machine" });
  fc.assert(fc.property(fc.json(), fc.constantFrom("schema", "host", "cards", "drives"), (json, key) => {
    for (const document of [json, JSON.stringify({ ...MACHINE, [key]: JSON.parse(json) })]) {
      try {
        parseMachine("m.json", document);
      } catch (error) {
        assert.ok(error instanceof BloomeryError && error.code === "format.machine", String(error));
      }
    }
  }));
});

Deno.test("productRate() takes the slowest measured type for one that was not", () => {
  assert.deepEqual(productRate(MACHINE.host, "f16"), { one: 5e9, many: 4e10 });
  assert.deepEqual(productRate(MACHINE.host, "iq1_s"), { one: 5e9, many: 4e10 });
});
