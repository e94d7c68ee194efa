/** Checkpoints of encoders: files as llama.cpp's converter writes them, and vectors of the released code. */
import assert from "node:assert/strict";
import { openBackend } from "../ffi/mod.ts";
import { Embedder, normalized } from "../serve/embedder.ts";
import { withEngine } from "./logits_checks.ts";
import { repoDir } from "./shared.ts";
import { ENCODERS, testEncoder } from "../quantize/prepare/_encoders.ts";
import { sha256, withFolder, writeCheckpoint } from "../quantize/prepare/_testing.ts";
import { prepare } from "../quantize/prepare/mod.ts";

const read = (name: string) => JSON.parse(Deno.readTextFileSync(`${repoDir}tests/goldens/prepare/${name}.json`));
const { sums }: { sums: Record<string, string> } = read("encoders");
const { ids, models }: { ids: number[]; models: Record<string, number[]> } = read("vectors");

for (const name of ENCODERS) {
  Deno.test(`prepare() writes a ${name} checkpoint as llama.cpp's converter does, to the byte`, () =>
    withFolder(async (dir) => {
      const folder = dir + name; // the name is written into the file
      writeCheckpoint(folder, testEncoder(name));
      await prepare(folder, `${dir}o.gguf`, { outtype: "f32" });
      assert.equal(await sha256(`${dir}o.gguf`), sums[name]);
      const want = models[name];
      if (want === undefined) return;
      using opened = openBackend("cpu");
      await withEngine(
        `${dir}o.gguf`,
        opened.backend,
        { n_ctx: 64, cacheTypeK: "f32", cacheTypeV: "f32" },
        async (e) => {
          const pooling = e.n_rank > 0 ? "rank" : "mean";
          const [[got]] = await new Embedder(e, { pooling, n_seq: 1 }).embed([Int32Array.from(ids)]);
          const size = (v: Float32Array) => normalized(v, pooling === "rank" ? -1 : 2);
          const expected = size(Float32Array.from(want));
          const worst = size(got).reduce((most, x, i) => Math.max(most, Math.abs(x - expected[i])), 0);
          // GELU by tanh, as llama.cpp takes it, where the release has the error function.
          assert.ok(worst <= 1.5e-4, `a number differs by ${worst}`);
        },
      );
    }));
}

const refused: readonly [
  what: string,
  name: string,
  change: Record<string, unknown>,
  files: Record<string, unknown>,
  RegExp,
][] = [
  ["pooling that files have no number for", "tiny-bert", {}, {
    "1_Pooling/config.json": { pooling_mode_max_tokens: true },
  }, /1_Pooling\/config.json: it pools neither/],
  ["positions of a Nomic model that is not known", "tiny-nomic-bert", { n_positions: 4096 }, {}, /"n_positions".*4096/],
  ["norms before the sublayers", "tiny-nomic-bert", { prenorm: true }, {}, /"prenorm".*expected false/],
  ["another activation", "tiny-nomic-bert", { activation_function: "geglu" }, {}, /"activation_function".*swiglu/],
  [
    "another pooling before a head",
    "tiny-modern-bert",
    { classifier_pooling: "max" },
    {},
    /"classifier_pooling".*mean or cls/,
  ],
];
for (const [what, name, change, files, text] of refused) {
  Deno.test(`prepare() refuses ${what} by name`, () =>
    withFolder(async (dir) => {
      const { config, ...rest } = testEncoder(name);
      writeCheckpoint(dir + name, { ...rest, config: { ...config, ...change }, files: { ...rest.files, ...files } });
      await assert.rejects(prepare(dir + name, `${dir}o.gguf`, { outtype: "f32" }), (e: Error & { code?: string }) => {
        assert.equal(e.code, "model.config");
        assert.match(e.message, text);
        return true;
      });
    }));
}

Deno.test("positions of XLM-R begin behind the padding token's", () =>
  withFolder(async (dir) => {
    const { config, ...rest } = testEncoder("tiny-bert");
    const xlm = { ...config, architectures: ["XLMRobertaModel"], pad_token_id: 1 };
    writeCheckpoint(`${dir}xlm`, { ...rest, config: xlm });
    await prepare(`${dir}xlm`, `${dir}o.gguf`, { outtype: "f32" });
    using opened = openBackend("cpu");
    await withEngine(`${dir}o.gguf`, opened.backend, {}, (engine) => {
      assert.equal(engine.spec.n_ctx_train, 126);
      return Promise.resolve();
    });
  }));
