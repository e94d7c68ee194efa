import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { UsageError } from "../core/errors.ts";
import { parseRecipe, typeName } from "./recipe.ts";
import { planSteps, recipeFiles } from "./steps.ts";

const RECIPE = {
  name: "m",
  source: "checkpoint",
  out: "out",
  prepare: { outtype: "bf16", chat_template: "t.jinja" },
  imatrix: { file: "/abs/im.gguf" },
  quantize: ["Q8_0", { type: "IQ2_M", name: "small", tensor_types: ["attn_v=q4_K"], imatrix: true }],
  splice: [{ name: "mixed", base: "small", donor: "Q8_0", take: ["output.weight"] }],
  eval: { texts: ["en.txt"], max_kl: 0.5 },
  upload: { hub: "owner/m-GGUF" },
};
const parse = (more: Record<string, unknown> = {}) => parseRecipe(JSON.stringify({ ...RECIPE, ...more }), "a/r.json");
const options = { follow: false, direct: false, device: "cpu", threads: 0 };

Deno.test("parseRecipe() gives a recipe whose paths lead from its folder, with defaults", () => {
  const r = parse();
  assert.deepEqual([r.source, r.out, r.prepare.chat_template], ["a/checkpoint", "a/out", "a/t.jinja"]);
  assert.deepEqual(r.imatrix, { file: "/abs/im.gguf" });
  assert.deepEqual(r.eval, { texts: ["a/en.txt"], prompts: [], window: 512, skip: 0, max_kl: 0.5 });
  assert.deepEqual(r.quantize.map(typeName), ["Q8_0", "small"]);
  assert.equal(r.direct, false);
});

Deno.test("parseRecipe() names the field that is wrong", () => {
  const cases: [Record<string, unknown>, string][] = [
    [{ name: undefined }, "name"],
    [{ name: "a/b" }, "name"],
    [{ extra: 1 }, "extra"],
    [{ quantize: [] }, "quantize"],
    [{ quantize: ["Q8_0", { type: 3 }] }, "quantize[1].type"],
    [{ quantize: ["Q8_0", { type: "Q4_0", pur: true }] }, "quantize[1].pur"],
    [{ quantize: [{ type: "Q4_0", tensor_types: "x" }] }, "quantize[0].tensor_types"],
    [{ quantize: ["Q8_0", "Q8_0"], splice: [] }, "quantize[1]"],
    [{ quantize: [{ type: "Q8_0", imatrix: true }], splice: [], imatrix: undefined }, "quantize[0].imatrix"],
    [{ prepare: { outtype: "q4_0" } }, "prepare.outtype"],
    [{ imatrix: { file: "a", texts: ["b"] } }, "imatrix.texts"],
    [{ imatrix: { texts: [] } }, "imatrix.texts"],
    [{ splice: [{ name: "x", base: "small", donor: "Q4_0", take: ["a"] }] }, "splice[0].donor"],
    [{ splice: [{ name: "small", base: "small", donor: "Q8_0", take: ["a"] }] }, "splice[0].name"],
    [{ eval: { window: 1, texts: ["a"] } }, "eval.window"],
    [{ eval: {} }, "eval.texts"],
    [{ upload: { hub: "none" } }, "upload.hub"],
    [{ upload: { command: [] } }, "upload.command"],
    [{ source: "m.gguf", direct: true }, "direct"],
    [{ out: "checkpoint/out" }, "out"],
    [{ out: "checkpoint" }, "out"],
    [{ quantize: ["Q8_0", { budget: "3bpw" }], splice: [] }, "quantize[1].budget"],
    [{ quantize: [{ budget: "3bpw", pure: true }], splice: [] }, "quantize[0].pure"],
    [{ measure: { texts: [] } }, "measure.texts"],
    [{ measure: { by: "error", texts: ["a"] } }, "measure.texts"],
    [{ measure: { by: "guess", texts: ["a"] } }, "measure.by"],
    [{ measure: { texts: ["a"] }, direct: true }, "measure"],
  ];
  for (const [more, field] of cases) {
    assert.throws(() => parse(more), (e) => {
      assert.ok(e instanceof UsageError && e.code === "usage.recipe", String(e));
      assert.equal(e.at.field, field, `${JSON.stringify(more)}: ${e.message}`);
      return e.message.includes(`field "${field}"`);
    });
  }
  assert.throws(() => parseRecipe("{", "r.json"), { code: "usage.recipe" });
});

Deno.test("parseRecipe() gives a recipe that has steps, or an error of usage, whatever the JSON", () => {
  const paths = [
    "name",
    "source",
    "quantize",
    "quantize.0",
    "quantize.1",
    "quantize.1.type",
    "splice.0.base",
    "eval",
    "imatrix",
    "upload",
    "card",
  ];
  const values = fc.oneof(fc.jsonValue(), fc.constantFrom("Q4_0", "", [], {}, null, { file: "x" }, { command: ["x"] }));
  fc.assert(
    fc.property(fc.constantFrom(...paths), values, (path, value) => {
      const recipe = structuredClone(RECIPE) as any, keys = path.split(".");
      let place = recipe;
      for (const key of keys.slice(0, -1)) place = place[key];
      place[keys.at(-1)!] = value;
      try {
        assert.ok(planSteps(parseRecipe(JSON.stringify(recipe), "r.json"), options).length > 0);
      } catch (e) {
        assert.ok(e instanceof UsageError && e.code === "usage.recipe", String(e));
      }
    }),
    { numRuns: 500 },
  );
});

Deno.test("planSteps() orders steps after those they read from, and says every word", () => {
  const steps = planSteps(parse(), { ...options, room: "64M", follow: true });
  assert.deepEqual(steps.map((s) => s.id), [
    "prepare",
    "quantize Q8_0",
    "quantize small",
    "splice mixed",
    "eval Q8_0",
    "eval small",
    "eval mixed",
    "manifest",
    "upload",
  ]);
  const made = new Set<string>();
  for (const { inputs, outputs } of steps) {
    for (const path of inputs.filter((p) => p.startsWith("a/out/"))) assert.ok(made.has(path), path);
    for (const path of outputs) made.add(path);
  }
  const words = (id: string) => steps.find((s) => s.id === id)!.argv!.join(" ");
  assert.match(
    words("prepare"),
    /^prepare a\/checkpoint -o a\/out\/m\.gguf --outtype bf16 .*--resume .*--follow --room 64M$/,
  );
  assert.match(
    words("quantize small"),
    /out\/m\.gguf a\/out\/m-small\.gguf IQ2_M --tensor-type attn_v=q4_K --imatrix \/abs\/im\.gguf/,
  );
  assert.match(
    words("eval mixed"),
    /-m a\/out\/m-mixed\.gguf --against a\/out\/m\.gguf --file a\/en\.txt --window 512/,
  );
});

Deno.test("planSteps() measures what budgets need, with the importance that they are encoded with", () => {
  const measured = { texts: ["t.txt"], chunks: 8, types: ["q4_K", "q6_K"] };
  const r = parse({
    measure: measured,
    quantize: [{ budget: "3.2bpw" }, { budget: "24GiB", name: "large" }],
    splice: [],
  });
  assert.deepEqual(r.quantize.map(typeName), ["3.2bpw", "large"]);
  const steps = planSteps(r, options);
  assert.deepEqual(steps.slice(0, 4).map((s) => s.id), ["prepare", "measure", "quantize 3.2bpw", "quantize large"]);
  assert.equal(
    steps[1].argv!.join(" "),
    "measure -m a/out/m.gguf --file a/t.txt -o a/out/m.measure.json --by kl --types q4_K,q6_K --chunks 8 " +
      "--imatrix /abs/im.gguf --device cpu",
  );
  assert.deepEqual(steps[1].inputs, ["a/out/m.gguf", "a/t.txt", "/abs/im.gguf"]);
  assert.match(
    steps[3].argv!.join(" "),
    /^quantize a\/out\/m\.gguf a\/out\/m-large\.gguf --budget 24GiB --measure a\/out\/m\.measure\.json --imatrix /,
  );
  assert.deepEqual(steps[2].inputs, ["a/out/m.gguf", "/abs/im.gguf", "a/out/m.measure.json"]);
  const given = planSteps(parse({ measure: { file: "l.json" }, quantize: [{ budget: "3bpw" }], splice: [] }), options);
  assert.deepEqual(given.map((s) => s.kind), ["prepare", "quantize", "eval", "manifest", "upload"]);
  assert.match(given[1].argv!.join(" "), /--measure a\/l\.json/);
});

Deno.test("planSteps() with direct needs no GGUF file of the source: the checkpoint is the original", () => {
  const r = parse(), steps = planSteps(r, { ...options, direct: true });
  const words = (id: string) => steps.find((s) => s.id === id)!.argv!.join(" ");
  assert.equal(steps[0].id, "quantize Q8_0");
  assert.match(words("quantize Q8_0"), /^quantize --hf a\/checkpoint --outtype bf16 .*a\/out\/m-Q8_0\.gguf Q8_0/);
  assert.match(words("eval Q8_0"), /--against a\/checkpoint /);
  assert.equal(recipeFiles(r, true).original, "a/checkpoint");
});
