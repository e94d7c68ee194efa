/**
 * Writes the op cases of tests/ops as files that `csrc/tests/replay.cpp` runs without Deno: under sanitizers, and on a card under
 * memcheck. What each step gives comes from the reference backend. `csrc/tests/replay.h` describes the format.
 *
 *   deno run -A scripts/dump_op_cases.ts [FOLDER (build/op_cases)]
 *
 * Cases of more than `MAX_BYTES` are left out: they repeat an op at a size that only speed needs.
 * @module
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Backend, CacheSpec, StepInput, TensorSpec } from "../core/program/backend.ts";
import { encodeProgram } from "../core/program/encode.ts";
import type { Program } from "../core/program/program.ts";
import { openReferenceBackend } from "../core/program/reference.ts";
import { openNativeBackend, stepWords } from "../ffi/backend.ts";
import { opCases } from "../tests/ops/cases/mod.ts";
import { CaseData, CaseRun, together } from "../tests/ops/run.ts";

const MAGIC = 0x434f4c42, VERSION = 1;
const MAX_BYTES = 1 << 21;
const SEED = 1;

interface Step {
  readonly input: StepInput;
  readonly outputs: readonly (Float32Array | Int32Array)[];
}

/** What a case asked a backend for. */
interface Recording {
  readonly weights: TensorSpec[];
  readonly caches: CacheSpec[];
  program?: Program;
  readonly steps: Step[];
}

/** A backend that notes what it is asked for. */
function recorder(backend: Backend, to: Recording): Backend {
  return {
    ...backend,
    devices: backend.devices,
    loadTensor: (spec) => {
      to.weights.push(spec);
      return backend.loadTensor(spec);
    },
    createCache: (spec) => {
      to.caches.push(spec);
      return backend.createCache(spec);
    },
    createProgram: (program, weights, caches) => {
      to.program = program;
      const handle = backend.createProgram(program, weights, caches);
      return {
        scratchBytes: handle.scratchBytes,
        step: async (input, wanted) => {
          const out = await handle.step(input, wanted);
          to.steps.push({ input, outputs: program.outputs.map((o) => out[o.name].slice()) });
          return out;
        },
        [Symbol.dispose]: () => handle[Symbol.dispose](),
      };
    },
  };
}

/** Words and bytes, one after the other, each part filled up to whole words. */
class Writer {
  readonly #parts: Uint8Array[] = [];

  words(...values: number[]): void {
    this.bytes(new Uint8Array(Uint32Array.from(values).buffer));
  }

  bytes(data: ArrayBufferView): void {
    const bytes = new Uint8Array(Math.ceil(data.byteLength / 4) * 4);
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    this.#parts.push(bytes);
  }

  sized(data: ArrayBufferView): void {
    this.words(data.byteLength);
    this.bytes(data);
  }

  end(): Uint8Array {
    const out = new Uint8Array(this.#parts.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const p of this.#parts) {
      out.set(p, at);
      at += p.length;
    }
    return out;
  }
}

function encode(name: string, nmse: number, asked: Recording, given: Recording): Uint8Array {
  const w = new Writer(), program = asked.program!;
  w.words(MAGIC, VERSION);
  w.sized(new TextEncoder().encode(name));
  w.bytes(Float32Array.of(nmse));
  w.words(asked.weights.length, asked.caches.length, program.outputs.length, asked.steps.length);
  for (const t of asked.weights) {
    w.words(t.type.id, ...[0, 1, 2, 3].map((i) => t.ne[i] ?? 1), t.uses);
    if (!("data" in t.source)) throw new Error("a case's weights are in memory");
    w.sized(t.source.data);
  }
  for (const c of asked.caches) {
    w.words(c.page_size, c.n_pages, c.streams.length);
    for (const s of c.streams) w.words(s.type.id, s.ne, s.ratio);
  }
  w.sized(encodeProgram(program));
  program.outputs.forEach((o) => w.words(program.tensors[o.tensor].type.name === "i32" ? 1 : 0));
  asked.steps.forEach((step, i) => {
    // The first step leaves NaN everywhere; what it gives says nothing.
    w.words(i === 0 ? 0 : 1);
    w.sized(stepWords(step.input));
    for (const values of given.steps[i].outputs) w.sized(values);
  });
  return w.end();
}

const folder = Deno.args[0] ?? join(fileURLToPath(new URL("..", import.meta.url)), "build", "op_cases");
Deno.mkdirSync(folder, { recursive: true });
for (const e of Deno.readDirSync(folder)) if (e.name.endsWith(".case")) Deno.removeSync(join(folder, e.name));
using native = openNativeBackend("cpu");
const reference = openReferenceBackend();
let written = 0, left = 0, total = 0;
for (const c of opCases("test")) {
  const rows = c.sequences.reduce((a, b) => a + b, 0), n_tok = c.n_tok ?? Math.min(rows, 512);
  const data = new CaseData(c, SEED, native);
  const record = async (backend: Backend): Promise<Recording> => {
    const to: Recording = { weights: [], caches: [], steps: [] };
    using run = await CaseRun.open(data, recorder(backend, to), 0, n_tok, SEED);
    await run.run(together(c, n_tok));
    return to;
  };
  const bytes = encode(c.name, c.nmse, await record(native), await record(reference));
  if (bytes.length > MAX_BYTES) {
    left++;
    continue;
  }
  written++;
  total += bytes.length;
  Deno.writeFileSync(join(folder, `${String(written).padStart(4, "0")}.case`), bytes);
}
console.error(`op cases: ${written} in ${folder}, ${(total / 2 ** 20).toFixed(1)} MiB; ${left} too large`);
