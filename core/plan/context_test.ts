import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { PlanError } from "../errors.ts";
import type { DeviceInfo } from "../program/backend.ts";
import { chooseContext } from "./context.ts";

const device = (free_bytes: number): DeviceInfo => ({ index: 0, name: "box", kind: "cpu", free_bytes } as DeviceInfo);

/** A plan whose cache takes 10 bytes a token beside 1000 of weights. */
function plan(n_ctx: number, { free_bytes }: DeviceInfo): void {
  if (1000 + 10 * n_ctx > free_bytes) throw new PlanError("plan.does_not_fit", "Cannot place it");
}

Deno.test("chooseContext() takes what the model was trained for where it fits", () => {
  assert.deepEqual(chooseContext(40960, device(1e6), plan), { n_ctx: 40960, reason: "what the model was trained for" });
});

Deno.test("chooseContext() takes the largest multiple of 256 that leaves a tenth of the memory, and says why", () => {
  fc.assert(
    fc.property(fc.integer({ min: 257, max: 1 << 20 }), fc.integer({ min: 6000, max: 1 << 24 }), (train, free) => {
      const { n_ctx, reason } = chooseContext(train, device(free), plan);
      const room = Math.floor((0.9 * free - 1000) / 10);
      if (train <= room) return assert.equal(n_ctx, train);
      assert.equal(n_ctx, Math.floor(room / 256) * 256);
      assert.ok(reason.includes(String(train)) && reason.includes("box"));
    }),
  );
});

Deno.test("chooseContext() leaves the refusal to the plan where nothing fits, and passes other errors on", () => {
  assert.equal(chooseContext(4096, device(0), plan).n_ctx, 256);
  assert.throws(
    () =>
      chooseContext(4096, device(0), () => {
        throw new PlanError("plan.cache_type", "Cannot keep it");
      }),
    { code: "plan.cache_type" },
  );
});
