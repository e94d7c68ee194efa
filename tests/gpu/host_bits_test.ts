/** Products with quantized weights on a card: the bits of the host, for every type, however many rows share a step. */
import assert from "node:assert/strict";
import { openBackend, type OpenedBackend } from "../../ffi/mod.ts";
import { KIND } from "../../core/program/program.ts";
import { NMSE, normal, type OpCase, random } from "../ops/case.ts";
import { opCases } from "../ops/cases/mod.ts";
import { WEIGHT_TYPES } from "../ops/cases/matrices.ts";
import { seed } from "../ops/register.ts";
import {
  alone,
  assertSame,
  CaseData,
  CaseRun,
  mostRows,
  pieces,
  type Schedule,
  singles,
  together,
} from "../ops/run.ts";
import { hasCard } from "./card.ts";

const QUANTIZED = WEIGHT_TYPES.filter((t) => t.block > 1);

let opened: OpenedBackend | undefined;
const open = () => opened ??= openBackend("cuda");

/** Whether a case's ops are products with quantized weights, and the rows that they read. */
function isQuantized(c: OpCase): boolean {
  const { ops, tensors, weights } = new CaseData(c, 1, open().backend).builder(1, 0).op.finish();
  const products = ops.filter((op) => op.op === "MUL_MAT" || op.op === "MUL_MAT_ID");
  return products.length > 0 && products.length + ops.filter((op) => op.op === "GET_ROWS").length === ops.length &&
    products.every((op) => {
      const w = tensors[op.src[0]];
      return w.kind === KIND.WEIGHT && weights[w.ref].type.block > 1;
    });
}

/** Sums over several spans of superblocks, more rows than any kernel's tile, features that fill no tile. */
function longCases(type: string, block: number): OpCase[] {
  const w = { type, fill: normal(0.1) };
  const n_in = 9 * 256 + (block < 256 ? block : 0), rows = 300;
  const ids = (next: () => number) => {
    const first = Math.floor(next() * 3);
    return [first, (first + 1 + Math.floor(next() * 2)) % 3];
  };
  return [{
    name: `MUL_MAT ${type} [${n_in}, 150] x ${rows}`,
    sequences: [rows],
    nmse: NMSE.quantized,
    build: (b) => b.out("y", b.op.mul_mat(b.weight("w", [n_in, 150], w), b.act("x", [n_in]))),
  }, {
    name: `MUL_MAT_ID ${type} [${n_in}, 19, 3] x ${rows}`,
    sequences: [rows],
    nmse: NMSE.quantized,
    build(b) {
      b.out("y", b.op.mul_mat_id(b.weight("w", [n_in, 19, 3], w), b.act("x", [n_in]), b.rowsOf("ids", [2], ids)));
    },
  }];
}

async function sameBits(c: OpCase, schedules: Record<string, Schedule>): Promise<void> {
  const { backend, device } = open();
  const host = backend.devices.find((d) => d.kind === "cpu");
  assert.ok(host, "a card's library has the host as a device");
  const data = new CaseData(c, seed, backend);
  const outputs = async (device: number, schedule: Schedule) => {
    using run = await CaseRun.open(data, backend, device, mostRows(schedule), seed);
    return await run.run(schedule);
  };
  const want = await outputs(host.index, together(c, 512));
  for (const [what, schedule] of Object.entries(schedules)) {
    assertSame(c, await outputs(device.index, schedule), want, `host and card with BLOOMERY_SEED=${seed}, ${what}`);
  }
}

Deno.test({
  name: "cuda: op cases of quantized products have the host's bits",
  ignore: !hasCard(),
  sanitizeResources: false,
  async fn(t) {
    let n = 0;
    for (const c of opCases("test").filter(isQuantized)) {
      const cut = pieces(c, 9, random(seed, c.name));
      await t.step({
        name: c.name,
        sanitizeResources: false,
        fn: () => sameBits(c, { "all rows": together(c, 512), "one row a step": singles(c), pieces: cut }),
      });
      n++;
    }
    assert.ok(n >= 5 * QUANTIZED.length, `${n} cases of ${QUANTIZED.length} types`);
  },
});

for (const type of QUANTIZED) {
  Deno.test({
    name: `cuda: long products of ${type.name} have the host's bits`,
    ignore: !hasCard(),
    sanitizeResources: false,
    async fn() {
      for (const c of longCases(type.name, type.block)) {
        await sameBits(c, {
          "all rows": together(c, 512),
          "tens of rows a step": pieces(c, 60, random(seed, c.name)),
          "a few rows a step": alone({ ...c, sequences: [24] }, 1).concat(alone(c, 8).slice(3)),
        });
      }
    },
  });
}
