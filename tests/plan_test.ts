/** Plans from headers alone, for devices that are numbers: what they count, what they refuse and what they propose. */
import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { bindModel } from "../core/arch/model.ts";
import { planEngine } from "../core/engine/planning.ts";
import type { EngineOptions } from "../core/engine/mod.ts";
import type { PlanError } from "../core/errors.ts";
import { openGguf } from "../core/gguf/read.ts";
import { describePlan, shortPlan } from "../core/plan/describe.ts";
import type { DeviceInfo } from "../core/program/backend.ts";
import { FAMILY_MODELS, familyFile } from "./family_models.ts";
import { testFolder } from "./models.ts";
import { writeSynthetic } from "./quantize/synthetic.ts";

const path = `${testFolder()}/plan.gguf`;
writeSynthetic(path, {
  arch: "qwen3moe",
  n_embd: 256,
  n_ff: 256,
  n_layer: 2,
  n_vocab: 1000,
  n_head: 4,
  head_dim: 64,
  n_expert: 64,
  n_expert_used: 4,
  type: "q4_K",
});
using file = openGguf(path);
const model = bindModel(file);

const host = (free_bytes: number): DeviceInfo => ({
  index: 0,
  kind: "cpu",
  name: "box",
  memory_bytes: 2 ** 40,
  free_bytes,
  features: [],
});
const card = (memory_bytes: number): DeviceInfo => ({ ...host(memory_bytes), kind: "cuda", memory_bytes });
const plan = (device: DeviceInfo, options: EngineOptions = {}, of = model) =>
  planEngine(of, { devices: [device], measureProgram: () => 1e6 }, { n_ctx: 1024, ...options });

Deno.test("a plan counts packed weights, experts, caches and scratch, and leaves tables out", () => {
  const whole = plan(host(2 ** 40)).plan;
  // Packed q4_K takes 1184 bytes for 8 rows of 256 values, q6_K as in the file.
  const experts = 2 * 3 * 64 * (256 / 8 * 1184), q = 4 * 2 * 256 / 8 * 1184, head = 1000 / 8 * 1680;
  const small = whole.weights.filter((w) => w.type.name === "f32").length - 2;
  assert.equal(whole.scratch_bytes, 1e6);
  assert.equal(whole.cache_bytes, 1024 * 2 * 2 * 256 * 2);
  assert.equal(whole.table_bytes, 1000 * 210);
  const pages = whole.resident_bytes - experts - q - head;
  assert.ok(pages > small * 4096 && pages < (small + 12) * 4096 + 2 * 4 * 256 * 64, `${pages}`);
  assert.equal(whole.total_bytes, whole.resident_bytes + whole.cache_bytes + 1e6);
  assert.match(describePlan(whole), /tables .* not counted: 1 q6_K/);
});

Deno.test("every room gives a plan that fits it, with more slots in more room, or a refusal with every term", () => {
  const whole = plan(host(2 ** 40)).plan.total_bytes;
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2 * whole }), fc.integer({ min: 0, max: whole }), (room, more) => {
      const slots = (hostRoom: number): number => {
        try {
          const { plan: p } = plan(host(2 ** 40), { hostRoom });
          assert.ok(p.total_bytes <= hostRoom);
          for (const pool of p.pools) assert.ok(pool.n_slots >= 4 && pool.n_slots <= 128);
          return p.pools.length === 0 ? 128 : p.pools.reduce((n, pool) => n + pool.n_slots, 0);
        } catch (error) {
          const { code, at } = error as PlanError;
          assert.equal(code, "plan.does_not_fit");
          const terms = ["weight_bytes", "pool_bytes", "cache_bytes", "scratch_bytes"];
          assert.equal(at.total_bytes, terms.reduce((n, term) => n + Number(at[term]), 0));
          assert.ok(Number(at.total_bytes) > hostRoom);
          return 0;
        }
      };
      assert.ok(slots(room) <= slots(room + more));
    }),
    { numRuns: 60 },
  );
});

/** The refusal of a plan. */
function refused(run: () => unknown): PlanError {
  try {
    run();
  } catch (error) {
    assert.equal((error as PlanError).code, "plan.does_not_fit");
    return error as PlanError;
  }
  return assert.fail("it fits");
}

Deno.test("a refusal proposes the largest context that fits, and that fits", () => {
  const hostRoom = 6e6;
  const error = refused(() => plan(host(2 ** 40), { n_ctx: 32768, hostRoom }));
  assert.match(
    error.message,
    /weights .* \+ the smallest pool of experts .*4 slots.* \+ cache .*32768 tokens.* \+ scratch .* --host-room leaves 5\.7 MiB/,
  );
  const n_ctx = Number(/--ctx-size (\d+)/.exec(error.hint!)![1]);
  plan(host(2 ** 40), { n_ctx, hostRoom });
  refused(() => plan(host(2 ** 40), { n_ctx: n_ctx + 256, hostRoom }));
});

Deno.test("a refusal of a room proposes the least room, and that fits", () => {
  const error = refused(() => plan(host(2 ** 40), { n_ctx: 256, hostRoom: 1e6 }));
  const hostRoom = Number(/--host-room (\d+)/.exec(error.hint!)![1]);
  plan(host(2 ** 40), { n_ctx: 256, hostRoom });
  refused(() => plan(host(2 ** 40), { n_ctx: 256, hostRoom: hostRoom - 1 }));
});

Deno.test("a card has no pools yet: it is refused with every term", () => {
  const error = refused(() => plan(card(1e6)));
  assert.match(error.message, /weights .* \+ cache .* \+ scratch .* = .*, free are/);
  assert.ok(!error.message.includes("pool"));
});

Deno.test("tables whose rows are known before a step stay on the host where a card runs the model", () => {
  const large = card(2 ** 40),
    name = Object.keys(FAMILY_MODELS).find((n) => "engram.head_count" in FAMILY_MODELS[n].keys)!;
  const { weights, table_bytes } = plan(large, { n_ctx: 256 }, bindModel(familyFile(name))).plan;
  const tables = weights.filter((w) => w.form === "table");
  assert.ok(tables.length > 0 && tables.every((w) => w.name.includes("engram")), tables.map((w) => w.name).join());
  assert.equal(table_bytes, tables.reduce((n, w) => n + w.bytes, 0));
  // A table of rows alone that would fill more than a quarter of a card.
  const embedding = model.weights.find((w) => w.name === "token_embd.weight")!;
  assert.equal(plan(large).plan.table_bytes, 0);
  const bytes = 210 * embedding.ne[1];
  const tight = { ...card(4 * bytes - 4), free_bytes: 2 ** 40 };
  assert.equal(plan(tight).plan.table_bytes, bytes);
});

Deno.test("a context that nobody asked for leaves room to the experts", () => {
  const planned = plan(host(2 ** 40), { hostRoom: 9e6 }, model);
  assert.equal(planned.n_ctx, 1024);
  const { n_ctx, plan: p, contextReason } = planEngine(
    model,
    { devices: [host(40e6)], measureProgram: () => 1e6 },
    {},
  );
  assert.ok(n_ctx >= 4096 && p.pools.length === 0, `${n_ctx}: ${shortPlan(p)}`);
  assert.ok(contextReason!.includes("--ctx-size"));
});

Deno.test("a model that a card cannot hold is spread: its trunk and the experts that fit, the rest on the host", () => {
  const box = { ...host(2 ** 40), name: "box" };
  const spread = (room: number, options: EngineOptions = {}) => {
    const gpu = { ...card(room), index: 1, name: "card" };
    return planEngine(model, { devices: [box, gpu], measureProgram: (_, device) => device === 0 ? 1e6 : undefined }, {
      n_ctx: 1024,
      device: 1,
      place: { spread: true },
      ...options,
    }).plan;
  };
  const whole = spread(2 ** 40);
  assert.deepEqual(whole.devices.map((d) => d.device.name), ["card"]);
  assert.equal(whole.moved_bytes, 0);
  let before = 0;
  const seen = new Set<string>();
  for (let room = 1e6; room < 1.3 * whole.total_bytes; room += whole.total_bytes / 25) {
    const p = spread(Math.floor(room)), [first] = p.devices, on = p.devices.find((d) => d.device.name === "card");
    const taken = on?.total_bytes ?? 0;
    assert.ok(taken <= 0.9 * room && taken >= before, `${taken} of ${room}`);
    assert.equal(first.device.name === "box", taken < whole.total_bytes);
    before = taken;
    // One layer's experts are many times its trunk: they leave the card first.
    const trunk = p.placement.layers.filter((d) => d === 1).length;
    const experts = p.weights.filter((w) => w.device === 1 && /exps/.test(w.name)).length / 3;
    assert.ok(experts === 0 || trunk === 2, `${experts} layers' experts, ${trunk} of the trunk`);
    seen.add(`${trunk} ${experts}`);
    if (p.devices.length > 1) {
      assert.match(describePlan(p), /0: box .*\nlayers .*\n[^]*1: card .*\nlayers [^]*values cross between devices/);
      assert.match(shortPlan(p), /on box \(device 0\); .* on card \(device 1\)$/);
    }
  }
  assert.deepEqual([...seen].sort(), ["0 0", "1 0", "2 0", "2 1", "2 2"]);
  assert.ok(spread(2 ** 40, { cardRoom: 5e6 }).devices.every((d) => d.device.name === "box" || d.total_bytes <= 5e6));
});

Deno.test("every device of a split has its part of all terms, and a refusal names the one that is too small", () => {
  const gpu = { ...card(2 ** 30), index: 1, name: "card" }, whole = plan(host(2 ** 40)).plan;
  const split = (cardRoom?: number) =>
    planEngine(model, { devices: [host(2 ** 40), gpu], measureProgram: () => 1e6 }, {
      n_ctx: 1024,
      place: { split: [{ device: 0, layers: 1 }, { device: 1 }] },
      ...(cardRoom === undefined ? {} : { cardRoom }),
    }).plan;
  const p = split();
  assert.equal(p.cache_bytes, whole.cache_bytes);
  for (const d of p.devices) {
    assert.equal(d.cache_bytes, whole.cache_bytes / 2);
    assert.equal(d.total_bytes, d.resident_bytes + d.pool_bytes + d.cache_bytes + d.scratch_bytes);
  }
  assert.equal(p.total_bytes, p.devices[0].total_bytes + p.devices[1].total_bytes);
  assert.equal(p.moved_bytes, 4 * 256); // one row between the layers
  const routed = planEngine(model, { devices: [host(2 ** 40), gpu], measureProgram: () => 1e6 }, {
    n_ctx: 1024,
    device: 1,
    place: { hostExperts: 2 },
  }).plan;
  assert.equal(routed.moved_bytes, 2 * 4 * (2 * 256 + 2 * 4)); // a row there and back, ids and weights of the experts of a token
  assert.throws(() => split(4e6), (e) => {
    const { code, message, at, hint } = e as PlanError;
    assert.match(hint!, /^use --place 0:2,1:0, which fits, or /);
    assert.equal(code, "plan.does_not_fit");
    assert.match(
      message,
      /on card \(device 1\): weights .* \+ cache .* \+ scratch .* = .*, --card-room leaves 3\.8 MiB$/,
    );
    assert.equal((at as Record<string, unknown>).device, "card");
    return true;
  });
  assert.throws(() => planEngine(model, { devices: [host(1)], measureProgram: () => 1 }, { device: 3 }), {
    code: "usage.device",
    message: /device 3: there are 0 box/,
  });
});

Deno.test("a refusal proposes the nearest placement that fits, and that fits", () => {
  const box = host(2 ** 40), whole = plan(box).plan.total_bytes;
  const devices = [box, { ...card(2 ** 40), index: 1, name: "card" }];
  const on = (place: NonNullable<EngineOptions["place"]>, cardRoom: number) =>
    planEngine(model, { devices, measureProgram: () => 1e5 }, { n_ctx: 1024, device: 1, place, cardRoom }).plan;
  const hintOf = (place: NonNullable<EngineOptions["place"]>, cardRoom: number): string => {
    try {
      on(place, cardRoom);
    } catch (error) {
      assert.equal((error as PlanError).code, "plan.does_not_fit");
      return (error as PlanError).hint!;
    }
    return assert.fail("it fits");
  };
  // Experts first: those of one layer, then of both; then layers.
  assert.match(hintOf({}, 0.7 * whole), /^use --n-cpu-moe 1, which fits, or/);
  assert.match(hintOf({}, 0.3 * whole), /^use --n-cpu-moe 2, which fits, or/);
  assert.match(hintOf({ hostExperts: 1 }, 0.3 * whole), /^use --n-cpu-moe 2, which fits, or/);
  const trunk = on({ hostExperts: 2 }, Infinity).devices[1].total_bytes;
  const last = { layers: 9, devices: [{ device: 1, share: 1 }] };
  assert.match(hintOf({ hostExperts: 2 }, trunk - 1), /^use --n-gpu-layers 2, which fits, or/);
  assert.match(hintOf({ hostExperts: 2, last }, trunk - 1), /^use --n-gpu-layers 2, which fits, or/);
  assert.ok(on({ hostExperts: 2, last: { ...last, layers: 2 } }, trunk - 1).devices[1].total_bytes < trunk);
  // What does not help is not proposed.
  assert.doesNotMatch(hintOf({}, 10), /--n-cpu-moe|--place/);
});
