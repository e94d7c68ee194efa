import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../core/errors.ts";
import { placementFor } from "../core/plan/places.ts";
import type { DeviceInfo } from "../core/program/backend.ts";
import { Flags, type FlagValue } from "./command.ts";
import { parseOverrides, parseShares, parseSplit, placementOf, placeOf } from "./place_flags.ts";

const info = (index: number, kind: string, free_bytes = 100): DeviceInfo => ({
  index,
  kind,
  name: `${kind} ${index}`,
  memory_bytes: 2 * free_bytes,
  free_bytes,
  features: [],
});
const HOST = [info(0, "cpu")], CARDS = [...HOST, info(1, "cuda", 300), info(2, "cuda", 100)];
const flags = (given: Record<string, FlagValue>) => new Flags(new Map(Object.entries(given)));
/** Devices of the layers, of what is behind them, and of some weights that lie elsewhere. */
const placed = (given: Record<string, FlagValue>, n_layer = 6, device = 1, devices = CARDS) => {
  const { layers, output, overrides } = placementFor(placeOf(flags(given), devices, device), n_layer, device);
  const of = (name: string) => overrides.find((o) => o.pattern.test(name))?.device;
  return { layers: layers.join(""), output, of };
};

Deno.test("--place names layers of devices; the last number may be left out", () => {
  assert.deepEqual(parseSplit("0:20,1:16"), [{ device: 0, layers: 20 }, { device: 1, layers: 16 }]);
  assert.deepEqual(parseSplit("0:20, 1"), [{ device: 0, layers: 20 }, { device: 1 }]);
  assert.deepEqual(placed({ place: "0:2,1:3,2" }).layers, "001112");
  assert.equal(placed({ place: "0:2,1:4,2:0" }).output, 2);
  for (const text of ["", "nowhere", "0:2,1,2:3", "0:-1,1", "1:", ":3", "0:2;1:4", "cuda:1"]) {
    assert.throws(() => parseSplit(text), { code: "usage.value", message: /Cannot use --place .* such as 0:20,1:16/ });
  }
  assert.throws(() => placed({ place: "0:2,1:3" }), {
    code: "plan.layers",
    message: /as 0:2,1:3: these are 5 layers, it has 6/,
    hint: /leave the last number out/,
  });
  assert.throws(() => placed({ place: "0:2,1:5" }), { code: "plan.layers" });
});

Deno.test("--place auto may spread over card and host, unless somebody says what goes where", () => {
  const open = (given: Record<string, FlagValue>) => placeOf(flags(given), CARDS, 1).spread === true;
  assert.ok(open({}) && open({ place: "auto", "n-gpu-layers": -1 }));
  for (
    const given of [{ place: "card" }, { "n-gpu-layers": -2 }, { "n-cpu-moe": 2 }, { "cpu-moe": true }, {
      "n-gpu-layers": 9,
    }]
  ) {
    assert.ok(!open(given), JSON.stringify(given));
  }
});

Deno.test("--n-gpu-layers counts from the last, the output as one", () => {
  assert.deepEqual({ ...placed({ "n-gpu-layers": 1 }), of: 0 }, { layers: "000000", output: 1, of: 0 });
  assert.deepEqual({ ...placed({ "n-gpu-layers": 3 }), of: 0 }, { layers: "000011", output: 1, of: 0 });
  for (const n of [7, 99]) assert.deepEqual(placed({ "n-gpu-layers": n }).layers, "111111");
  assert.deepEqual({ ...placed({ "n-gpu-layers": 0 }), of: 0 }, { layers: "000000", output: 0, of: 0 });
  assert.equal(placed({ "n-gpu-layers": 3 }, 6, 0, HOST).layers, "000000"); // without a card it says nothing
});

Deno.test("--tensor-split and several devices share layers out, by free memory where nobody says", () => {
  assert.equal(placed({ device: "cuda:0,cuda:1" }, 8).layers, "11111112");
  assert.equal(placed({ "tensor-split": "1,1" }).layers, "111122");
  assert.equal(placed({ "tensor-split": "1/3", "n-gpu-layers": 5 }).layers, "001222");
  assert.equal(placed({ "tensor-split": "0,1" }).layers, "222222");
  assert.equal(placed({ "tensor-split": "1,1", "split-mode": "none" }).layers, "111111");
  for (const text of ["1,2,3", "0", "a,b", "-1,2", ""]) {
    assert.throws(() => parseShares(text, CARDS.slice(1)), { code: "usage.value", hint: /--device cuda:0,cuda:1/ });
  }
  fc.assert(
    fc.property(fc.nat(60), fc.nat(70), fc.array(fc.nat(9), { minLength: 1, maxLength: 2 }), (n_layer, ngl, shares) => {
      if (n_layer === 0 || shares.every((s) => s === 0)) return;
      const { layers, output } = placed({ "tensor-split": shares.join(","), "n-gpu-layers": ngl }, n_layer);
      assert.equal(layers.length, n_layer);
      assert.equal([...layers].filter((d) => d !== "0").length, Math.max(0, Math.min(ngl - 1, n_layer)));
      assert.equal(output === 0, ngl === 0);
      assert.equal([...layers].sort().join(""), layers); // devices follow each other
    }),
  );
});

Deno.test("--n-cpu-moe, --cpu-moe, --n-cpu-ffn and --override-tensor put weights elsewhere", () => {
  const moe = placed({ "n-cpu-moe": 2 });
  assert.equal(moe.layers, "111111");
  for (
    const name of ["ffn_gate_exps.weight", "ffn_down_exps.bias", "ffn_gate_up_exps.weight", "ffn_up_chexps.weight"]
  ) {
    assert.equal(moe.of(`blk.1.${name}`), 0, name);
    assert.equal(moe.of(`blk.2.${name}`), undefined, name);
    assert.equal(moe.of(`blk.11.${name}`), undefined, name);
    assert.equal(placed({ "cpu-moe": true }).of(`blk.5.${name}`), 0, name);
  }
  for (const name of ["ffn_gate_shexp.weight", "ffn_gate_inp.weight", "exp_probs_b.bias", "ffn_norm.weight"]) {
    assert.equal(placed({ "cpu-moe": true }).of(`blk.1.${name}`), undefined, name);
  }
  const ffn = placed({ "n-cpu-ffn": 1 });
  assert.deepEqual(
    ["ffn_up", "ffn_down", "ffn_gate", "ffn_norm", "ffn_up_exps", "attn_q"].map((n) => ffn.of(`blk.0.${n}.weight`)),
    [
      ...[0, 0, 0],
      ...[undefined, undefined, undefined],
    ],
  );
  assert.equal(ffn.of("blk.1.ffn_up.weight"), undefined);
  // What is named comes before what is counted.
  const both = placed({ "cpu-moe": true, "override-tensor": ["blk\\.3\\..*exps=CUDA1", "output=cpu"] });
  assert.equal(both.of("blk.3.ffn_up_exps.weight"), 2);
  assert.equal(both.of("blk.4.ffn_up_exps.weight"), 0);
  assert.equal(both.of("output.weight"), 0);
});

Deno.test("--override-tensor refuses what is no expression or no device of this machine", () => {
  const logical = [...HOST, info(1, "cpu")];
  assert.deepEqual(parseOverrides(["a=b=CPU1"], logical), [{ pattern: /a=b/, device: 1 }]);
  for (const text of ["exps", "=CPU", "exps=CUDA2", "exps=1"]) {
    assert.throws(() => parseOverrides([text], CARDS), {
      code: "usage.value",
      message: /Cannot use --override-tensor .* with one of CPU, CUDA0, CUDA1/,
    });
  }
  assert.throws(() => parseOverrides(["(=CPU"], HOST), {
    code: "usage.value",
    message: /a regular expression before the =/,
  });
  fc.assert(fc.property(fc.string(), (text) => {
    try {
      parseOverrides([text], CARDS);
    } catch (error) {
      assert.ok(error instanceof BloomeryError);
    }
  }));
});

Deno.test("--split-mode row is refused with what to use", async () => {
  await assert.rejects(placementOf(flags({ "split-mode": "row" })), {
    code: "usage.value",
    hint: /--split-mode layer/,
  });
  assert.equal((await placementOf(flags({ "card-room": "2G" }))).cardRoom, 2e9);
});
