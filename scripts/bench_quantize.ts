/**
 * How fast `bloomery quantize` is, type by type: MB of source a second, whole command, on made-up models. With the reference's
 * command given, both run in turn on the same file with the same number of threads, and the factor is the median of the pairs'.
 *
 *   deno run -A scripts/bench_quantize.ts [--threads 2] [--mb 64] [--fast-mb 512] [--repeat 3] [--types Q4_K_S,IQ3_S]
 *                                         [--sources f32,bf16,f16] [--dir FOLDER] [--device cuda:0]
 *                                         [--peer "llama-quantize"] [--peer-dir FOLDER_AS_THE_PEER_SEES_IT]
 *
 * Types whose encoders search get a file of `--mb`; the others are so fast that the start of a command would be most of the
 * time, and get one of `--fast-mb`. With a folder in memory (a tmpfs) the disk has no part in it.
 *
 * With a card given as `--device`, each row is also encoded there, in turn with the host.
 *
 * Beside each row stands its floor: the rate at which one thread copies that source from the file cache and writes a file of
 * the result's size into the same folder, synced, doing nothing else. A command that uses more threads can be above it.
 * @module
 */
import { parseArgs } from "node:util";
import { writeImatrix } from "../quantize/imatrix.ts";
import { syntheticTensors, writeSynthetic } from "../tests/quantize/synthetic.ts";

const { values: options } = parseArgs({
  args: Deno.args,
  options: {
    threads: { type: "string", default: "2" },
    mb: { type: "string", default: "64" },
    "fast-mb": { type: "string", default: "512" },
    repeat: { type: "string", default: "3" },
    types: { type: "string" },
    sources: { type: "string", default: "f32" },
    dir: { type: "string" },
    device: { type: "string" },
    peer: { type: "string" },
    "peer-dir": { type: "string" },
  },
});

/** What a row is called, how it is asked for, and whether it is measured without and with importance. */
interface Row {
  readonly name: string;
  readonly args?: readonly string[];
  /** The encoder does not search: without importance, or ever. */
  readonly fast?: boolean;
  readonly plain?: boolean;
  readonly weighted?: boolean;
}

const fast = (name: string): Row => ({ name, fast: true, plain: true });
const legacy = (name: string): Row => ({ name, fast: true, plain: true, weighted: true });
const search = (name: string): Row => ({ name, plain: true, weighted: true });
const lattice = (name: string): Row => ({ name, weighted: true });

/** A file type whose default makes each tensor type; NVFP4 has none. */
const ROWS: readonly Row[] = [
  ...["F16", "BF16", "Q8_0"].map(fast),
  ...["Q4_0", "Q4_1", "Q5_0", "Q5_1"].map(legacy),
  ...["TQ1_0", "TQ2_0", "Q1_0", "Q2_0"].map(fast),
  { ...fast("MXFP4"), args: ["MXFP4_MOE"] },
  { ...fast("NVFP4"), args: ["--tensor-type", "weight=nvfp4", "Q8_0"] },
  search("Q2_K"),
  legacy("Q3_K_S"),
  ...["Q4_K_S", "Q5_K_S", "Q6_K"].map(search),
  ...["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"].map(lattice),
  ...["IQ3_S", "IQ4_NL", "IQ4_XS"].map(search),
];

const temporary = options.dir === undefined;
const dir = options.dir ?? Deno.makeTempDirSync();
const peerDir = options["peer-dir"] ?? dir;
const [peerCommand, ...peerPrefix] = options.peer?.split(" ") ?? [];
const repeat = Math.max(1, Number(options.repeat));
const main = new URL("../cli/main.ts", import.meta.url).pathname;
const only = options.types?.toUpperCase().split(",");

function shape(type: string, mb: number) {
  const layer = 7 * 1024 * 1024 * (type === "f32" ? 4 : 2); // bytes
  return { type, n_embd: 1024, n_ff: 1024, n_vocab: 256, n_layer: Math.max(1, Math.round(mb * 1e6 / layer)) };
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[(values.length - 1) >> 1] + sorted[values.length >> 1]) / 2;
}

/** Half of the range, in percent of the median. */
function spread(values: readonly number[]): string {
  return `+-${(50 * (Math.max(...values) - Math.min(...values)) / median(values)).toFixed(0)}%`;
}

const secondsSince = (start: number) => (performance.now() - start) / 1000;

/** Seconds of one run. */
async function seconds(command: string, args: string[]): Promise<number> {
  const start = performance.now();
  const { code, stderr } = await new Deno.Command(command, { args, stdout: "null", stderr: "piped" }).output();
  if (code !== 0) throw new Error(`${command} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
  return secondsSince(start);
}

function quantizeArgs(folder: string, input: string, row: Row, weighted: boolean): string[] {
  const [fileType, ...flags] = (row.args ?? [row.name]).toReversed();
  const imatrix = weighted ? ["--imatrix", `${folder}/imatrix.gguf`] : [];
  const before = [...imatrix, "--pure", ...flags.toReversed()];
  return [...before, `${folder}/${input}`, `${folder}/out.gguf`, fileType, options.threads];
}

const ours = (input: string, row: Row, weighted: boolean, device = "cpu") =>
  seconds(Deno.execPath(), [
    ...["run", "-A", "--no-check", main, "quantize", "-q", "--overwrite", "--device", device],
    ...quantizeArgs(dir, input, row, weighted),
  ]);

/** The peer does not wait for the disk; bloomery does before the file gets its name, so the wait is part of both times. */
async function peer(input: string, row: Row, weighted: boolean): Promise<number> {
  const time = await seconds(peerCommand, [...peerPrefix, ...quantizeArgs(peerDir, input, row, weighted)]);
  const start = performance.now();
  using file = Deno.openSync(`${dir}/out.gguf`, { write: true });
  file.syncSync();
  return time + secondsSince(start);
}

/** Seconds to read a file from the file cache, and to write `bytes` beside it and sync them. */
function floor(input: string, bytes: number): { read: number; write: number } {
  const buffer = new Uint8Array(2 ** 20).fill(1);
  let start = performance.now();
  using from = Deno.openSync(`${dir}/${input}`);
  while (from.readSync(buffer) !== null) { /* all of it */ }
  const read = secondsSince(start);
  start = performance.now();
  using to = Deno.openSync(`${dir}/floor.gguf`, { write: true, create: true, truncate: true });
  for (let done = 0; done < bytes;) done += to.writeSync(buffer.subarray(0, Math.min(buffer.length, bytes - done)));
  to.syncSync();
  return { read, write: secondsSince(start) };
}

async function measure(source: string, row: Row, weighted: boolean): Promise<void> {
  const input = `${source}-${row.fast && !weighted ? "fast" : "search"}.gguf`;
  const megabytes = Deno.statSync(`${dir}/${input}`).size / 1e6;
  const mine: number[] = [], card: number[] = [], theirs: number[] = [], floors: number[] = [];
  let outBytes = 0;
  for (let i = 0; i < repeat; i++) {
    const runs = [
      async () => void mine.push(await ours(input, row, weighted)),
      async () => void (options.device && card.push(await ours(input, row, weighted, options.device))),
      async () => void (peerCommand && theirs.push(await peer(input, row, weighted))),
    ];
    for (const run of i % 2 === 0 ? runs : runs.toReversed()) await run(); // who is first has no advantage
    outBytes = Deno.statSync(`${dir}/out.gguf`).size;
    const { read, write } = floor(input, outBytes);
    floors.push(read + write);
  }
  const rate = (times: readonly number[]) => (megabytes / median(times)).toFixed(1).padStart(7);
  const cells = [
    source,
    row.name.padEnd(7),
    weighted ? "yes" : "no",
    megabytes.toFixed(0),
    (outBytes / 1e6).toFixed(0),
  ];
  cells.push(rate(mine), spread(mine));
  if (options.device) {
    const factors = card.map((time, i) => mine[i] / time);
    cells.push(rate(card), spread(card), `${median(factors).toFixed(2)}x`, spread(factors));
  }
  if (peerCommand) {
    const factors = theirs.map((time, i) => time / mine[i]);
    cells.push(rate(theirs), spread(theirs), `${median(factors).toFixed(2)}x`, spread(factors));
  }
  console.log([...cells, rate(floors)].join("\t"));
}

function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

const load = () => Deno.loadavg().map((n) => n.toFixed(1)).join(" ");
console.log(`${options.threads} threads, median of ${repeat}, MB of source a second; load ${load()}`);
const peerColumns = peerCommand ? ["peer", "spread", "factor", "spread"] : [];
const cardColumns = options.device ? [options.device, "spread", "factor", "spread"] : [];
console.log(
  ["source", "type", "imatrix", "MB in", "MB out", "bloomery", "spread", ...cardColumns, ...peerColumns, "floor"].join(
    "\t",
  ),
);
const made = ["out.gguf", "floor.gguf", "imatrix.gguf"];
try {
  for (const source of options.sources.split(",")) {
    const small = shape(source, Number(options.mb)), large = shape(source, Number(options["fast-mb"]));
    const inputs = [`${source}-search.gguf`, `${source}-fast.gguf`];
    made.push(...inputs);
    for (const [i, model] of [small, large].entries()) {
      const path = `${dir}/${inputs[i]}`;
      if (source !== "f16") {
        writeSynthetic(path, model);
        continue;
      }
      writeSynthetic(`${dir}/out.gguf`, { ...model, type: "bf16" });
      const args = ["quantize", "-q", "--pure", `${dir}/out.gguf`, path, "F16"];
      await seconds(Deno.execPath(), ["run", "-A", "--no-check", main, ...args]);
    }
    const sums = new Map(
      syntheticTensors(small.n_layer > large.n_layer ? small : large).map(({ name, ne }) => [
        name,
        {
          sums: Float32Array.from({ length: ne[0] }, (_, i) => 0.1 + (i * 7919 % 101) / 20),
          counts: Float32Array.of(1),
        },
      ]),
    );
    const imatrix = { path: "", format: "gguf" as const, datasets: ["made up"], n_chunks: 1, chunk_size: 512, sums };
    writeImatrix(imatrix, `${dir}/imatrix.gguf`);
    await ours(inputs[0], ROWS[0], false); // warms the compiler's cache
    for (const row of ROWS) {
      if ((only && !only.includes(row.name)) || row.name.toLowerCase() === source) continue;
      if (row.plain) await measure(source, row, false);
      if (row.weighted) await measure(source, row, true);
    }
    for (const name of inputs) Deno.removeSync(`${dir}/${name}`);
  }
  console.log(`load ${load()}`);
} finally {
  made.forEach((name) => removeIfThere(`${dir}/${name}`));
  if (temporary) Deno.removeSync(dir, { recursive: true });
}
