import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../../core/errors.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import { measureDifference, type MeasureFile, parseMeasure, writeMeasure } from "./measure_file.ts";

const FILE: MeasureFile = {
  job: {
    model: "m.gguf",
    model_key: "ab",
    by: "kl",
    imatrix: null,
    imatrix_key: null,
    over: { texts: ["t"], n_windows: 2, bos: false, tokens: "cd" },
  },
  tensors: [{
    name: "a.weight",
    ne: [256, 2],
    losses: [
      { type: ggmlType("q4_K"), bytes: 288, loss: 1 / 3, se: 1e-9 },
      { type: ggmlType("q8_0"), bytes: 544, loss: 0, se: null },
    ],
  }],
};

function textOf(file: MeasureFile): string {
  const path = Deno.makeTempFileSync();
  writeMeasure(file, path);
  const text = Deno.readTextFileSync(path);
  Deno.removeSync(path);
  return text;
}

Deno.test("parseMeasure() keeps what writeMeasure() wrote", () => {
  assert.deepEqual(parseMeasure(textOf(FILE), "f"), FILE);
});

Deno.test("parseMeasure() names the field of what is wrong", () => {
  const wrong = (change: (o: any) => void) => {
    const o = JSON.parse(textOf(FILE));
    change(o);
    try {
      parseMeasure(JSON.stringify(o), "f");
    } catch (error) {
      assert.ok(error instanceof BloomeryError && error.code === "quantize.measure_file");
      return error.at.field;
    }
    assert.fail("it was read");
  };
  assert.deepEqual([
    wrong((o) => o.schema = "bloomery.measure/2"),
    wrong((o) => o.job.by = "guess"),
    wrong((o) => o.job.imatrix = 1),
    wrong((o) => delete o.job.model_key),
    wrong((o) => o.job.over.tokens = { a: 1 }),
    wrong((o) => o.tensors[0].ne = [0]),
    wrong((o) => o.tensors[0].losses[0].type = "q4_X"),
    wrong((o) => o.tensors[0].losses[1].loss = -1e-9),
    wrong((o) => o.tensors[0].losses[1].se = "0"),
    wrong((o) => o.tensors[0].losses[1].bytes = 0.5),
    wrong((o) => o.tensors[0].losses[1].type = "q4_K"),
    wrong((o) => o.tensors.push(o.tensors[0])),
  ], [
    "schema",
    "job.by",
    "job.imatrix",
    "job.model_key",
    "job.over.tokens",
    "tensors[0].ne[0]",
    "tensors[0].losses[0].type",
    "tensors[0].losses[1].loss",
    "tensors[0].losses[1].se",
    "tensors[0].losses[1].bytes",
    "tensors[0].losses",
    "tensors",
  ]);
});

Deno.test("parseMeasure() takes the smallest counts, and no infinity", () => {
  const text = textOf(FILE);
  assert.deepEqual(parseMeasure(text.replace("[256,2]", "[1,1]"), "f").tensors[0].ne, [1, 1]);
  const infinite = text.replace('"loss":0,', '"loss":1e999,');
  assert.throws(
    () => parseMeasure(infinite, "f"),
    (e) => e instanceof BloomeryError && /losses\[1\].loss/.test(e.message),
  );
});

Deno.test("parseMeasure() reads or refuses whatever it is given", () => {
  const bytes = new TextEncoder().encode(textOf(FILE));
  const read = (text: string) => {
    try {
      parseMeasure(text, "f");
    } catch (error) {
      assert.ok(error instanceof BloomeryError, String(error));
    }
  };
  fc.assert(fc.property(fc.json(), read));
  fc.assert(
    fc.property(fc.nat(bytes.length - 1), fc.nat(255), fc.nat(bytes.length), (at, value, end) => {
      const damaged = bytes.slice(0, Math.max(at + 1, end));
      damaged[at] = value;
      read(new TextDecoder().decode(damaged));
    }),
  );
});

Deno.test("measureDifference() lets names differ, and nothing else", () => {
  const { job } = FILE;
  assert.equal(
    measureDifference(job, { ...job, model: "n", imatrix: "i", over: { ...job.over, texts: ["u"] } }),
    undefined,
  );
  assert.match(measureDifference(job, { ...job, model_key: "x" })!, /^model_key was ab, now it is x/);
  assert.match(measureDifference(job, { ...job, imatrix_key: "x" })!, /^imatrix_key was none, now it is x/);
  assert.match(measureDifference(job, { ...job, by: "error" })!, /^by was kl/);
  assert.match(measureDifference(job, { ...job, over: { ...job.over, bos: true } })!, /^bos was false, now it is true/);
  assert.match(measureDifference(job, { ...job, over: { rows: 1 } })!, /was|now/);
});
