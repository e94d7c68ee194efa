/**
 * Decode rates of a model whose experts do not fit in memory, beside the floor that the drive sets: its random direct reads, measured
 * in the same run, divided by the bytes a token misses. Routing is uneven (Zipf, exponent 1). Linux only; needs `dd`.
 *
 *   deno run -A scripts/bench_places.ts [--layers 48] [--room 8G] [--tokens 64] [--warm 64] [--file FILE] [--keep]
 *
 * A model of fewer layers than 30B-A3B's 48 gets as much less room, so that the shares stay. Without --file it is written to the
 * temporary folder and removed. Exit code 3 where decoding is below 60 % of the floor.
 * @module
 */
import { parseArgs } from "node:util";
import { parseSize } from "../cli/size.ts";
import { Engine } from "../core/engine/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import { describePlan } from "../core/plan/describe.ts";
import { openBackend } from "../ffi/mod.ts";
import { SHAPES, writeShape } from "./synthetic.ts";

const { values: options } = parseArgs({
  args: Deno.args,
  options: {
    layers: { type: "string", default: "48" },
    room: { type: "string", default: "8G" },
    tokens: { type: "string", default: "64" },
    warm: { type: "string", default: "64" },
    file: { type: "string" },
    keep: { type: "boolean", default: false },
  },
});

const SHAPE = "qwen3-30b-a3b", FULL = SHAPES[SHAPE].n_layer!;
/** Readers at once, and bytes of one read: those of a pool, and of one matrix of an expert. */
const READERS = 8, PIECE = 864 << 10;

/** Bytes a second of direct reads at random places. */
async function driveRate(path: string): Promise<number> {
  const pieces = Math.floor(Deno.statSync(path).size / PIECE), runs = 12, each = 4;
  const start = performance.now();
  await Promise.all(Array.from({ length: READERS }, async () => {
    for (let i = 0; i < runs; i++) {
      const skip = Math.floor(Math.random() * (pieces - each));
      const args = [
        `if=${path}`,
        "of=/dev/null",
        `bs=${PIECE}`,
        `count=${each}`,
        `skip=${skip}`,
        "iflag=direct",
        "status=none",
      ];
      const { success } = await new Deno.Command("dd", { args }).output();
      if (!success) throw new Error("dd cannot read with iflag=direct");
    }
  }));
  return READERS * runs * each * PIECE / (performance.now() - start) * 1000;
}

function resident(): number {
  return 1024 * Number(/VmHWM:\s+(\d+) kB/.exec(Deno.readTextFileSync("/proc/self/status"))![1]);
}

const n_layer = Number(options.layers);
const path = options.file ?? `${Deno.env.get("TMPDIR") ?? "/tmp"}/bench-places-${n_layer}.gguf`;
const hostRoom = Math.round(parseSize(options.room, "room") * n_layer / FULL);
let below = false;
try {
  if (options.file === undefined) {
    console.error(`writing ${path}`);
    writeShape(SHAPE, path, { n_layer, skew: 1 });
  }
  using opened = openBackend("cpu");
  using file = openGguf(path);
  using engine = await Engine.load(file, opened.backend, { n_ctx: 1024, n_out: 8, n_ubatch: 64, hostRoom });
  console.log(describePlan(engine.plan));
  using sequence = engine.createSequence();
  let token = 1;
  const decode = async (n: number) => {
    for (let i = 0; i < n; i++) {
      // A made-up model repeats itself: other tokens keep its routing moving.
      const [out] = await engine.step([{ sequence, tokens: [token], output: "last" }]);
      token = (out.ids[0] + 7919 * i) % engine.n_vocab;
    }
  };
  console.log("when      tok/s  hits %  MB/token  drive MB/s  floor tok/s  of floor  guessed %  unused MB/token");
  for (const when of ["cold", "warm", "again"]) {
    const n = Number(when === "cold" ? options.warm : options.tokens);
    const before = engine.residency!.stats, start = performance.now();
    await decode(n);
    const seconds = (performance.now() - start) / 1000, after = engine.residency!.stats;
    const hits = after.hits - before.hits, misses = after.misses - before.misses;
    // What was read ahead and not used is no part of the floor.
    const unused = (after.unused_bytes - before.unused_bytes) / n;
    const bytes = (after.read_bytes - before.read_bytes) / n - unused,
      drive = await driveRate(path),
      floor = drive / bytes;
    const share = n / seconds / floor;
    if (when === "again") below = share < 0.6;
    console.log(
      [
        when.padEnd(6),
        (n / seconds).toFixed(2).padStart(8),
        (100 * hits / (hits + misses)).toFixed(1).padStart(7),
        (bytes / 1e6).toFixed(1).padStart(9),
        (drive / 1e6).toFixed(0).padStart(11),
        floor.toFixed(2).padStart(12),
        `${(100 * share).toFixed(0)} %`.padStart(9),
        (100 * (after.n_right - before.n_right) / (after.n_needed - before.n_needed)).toFixed(1).padStart(10),
        (unused / 1e6).toFixed(1).padStart(16),
      ].join(" "),
    );
  }
  console.log(`peak memory of the process ${(resident() / 1e9).toFixed(2)} GB, room ${(hostRoom / 1e9).toFixed(2)} GB`);
} finally {
  if (options.file === undefined && !options.keep) Deno.removeSync(path);
}
if (below) Deno.exitCode = 3;
