import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../../core/errors.ts";
import { floats, testCheckpoint, type TestTensors, withFolder, writeCheckpoint } from "./_testing.ts";
import { openPrepared } from "./mod.ts";

const KINDS = ["llama", "mixtral", "qwen2moe", "qwen3", "qwen3moe"] as const;

const odd = fc.oneof(
  fc.constantFrom(null, 0, 1, -1, 3, 7, 1.5, 2 ** 31, 2 ** 53, "", "x", true, [], {}, [1], { a: 1 }),
  fc.integer({ min: 0, max: 300 }),
);

/** A checkpoint opens, or is refused with an error of ours. */
function opens(dir: string): boolean {
  try {
    openPrepared(dir).close();
    return true;
  } catch (error) {
    if (error instanceof BloomeryError) return false;
    throw error;
  }
}

Deno.test("openPrepared() answers any configuration with a plan or a refusal of its own", () =>
  withFolder((dir) => {
    for (const kind of KINDS) {
      const made = testCheckpoint(kind);
      writeCheckpoint(`${dir}${kind}`, made);
      const fields = [...Object.keys(made.config), "quantization_config", "text_config", "rope_parameters", "head_dim"];
      fc.assert(
        fc.property(fc.array(fc.tuple(fc.constantFrom(...fields), odd), { minLength: 1, maxLength: 3 }), (changes) => {
          const config = { ...made.config, ...Object.fromEntries(changes) };
          Deno.writeTextFileSync(`${dir}${kind}/config.json`, JSON.stringify(config));
          opens(`${dir}${kind}`);
        }),
        { numRuns: 40 },
      );
    }
  }));

Deno.test("openPrepared() answers any set of tensors with a plan or a refusal of its own", () =>
  withFolder((dir) => {
    const names = ["weight", "weight_scale", "weight_scale_inv", "weight_packed", "scale", "qweight", "bias"];
    const dtypes: readonly [string, number][] = [["F32", 4], ["BF16", 2], ["F8_E4M3", 1], ["U8", 1], ["I32", 4]];
    const change = fc.record({
      tensor: fc.nat(),
      name: fc.constantFrom(...names),
      dtype: fc.constantFrom(...dtypes),
      shape: fc.array(fc.integer({ min: 1, max: 64 }), { maxLength: 3 }),
    });
    let n = 0;
    for (const kind of KINDS) {
      const made = testCheckpoint(kind);
      const known = Object.keys(made.tensors);
      fc.assert(
        fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), (changes) => {
          const tensors: TestTensors = { ...made.tensors };
          for (const { tensor, name, dtype: [dtype, size], shape } of changes) {
            const base = known[tensor % known.length].replace(/\.weight$/, "");
            const bytes = size * shape.reduce((a, b) => a * b, 1);
            tensors[`${base}.${name}`] = { dtype, shape, data: new Uint8Array(bytes) };
          }
          writeCheckpoint(`${dir}t`, { ...made, tensors, shards: 1 });
          if (opens(`${dir}t`)) n++;
        }),
        { numRuns: 20 },
      );
    }
    assert.ok(n >= 0);
    assert.equal(floats("a", [2]).data.length, 4);
  }));
