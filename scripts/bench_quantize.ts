/**
 * How fast `bloomery quantize` is, type by type: MB of source a second, whole command, on a made-up f32 model. With the reference's
 * command given, both run in turn, on the same file, with the same number of threads.
 *
 *   deno run -A scripts/bench_quantize.ts [--threads 2] [--mb 64] [--repeat 3] [--types Q4_K_S,IQ3_S] [--dir FOLDER]
 *                                         [--peer "llama-quantize"] [--peer-dir FOLDER_AS_THE_PEER_SEES_IT]
 *
 * The floor is the same command with COPY to the size of the source: reading, checking and writing without encoding.
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
    repeat: { type: "string", default: "3" },
    types: { type: "string" },
    dir: { type: "string" },
    peer: { type: "string" },
    "peer-dir": { type: "string" },
  },
});

/** File types whose default makes each tensor type, and whether each is measured without and with importance (its search). */
const ROWS: readonly (readonly [fileType: string, plain: boolean, weighted: boolean])[] = [
  ["F16", true, false],
  ["BF16", true, false],
  ["Q8_0", true, false],
  ["Q4_0", true, true],
  ["Q4_1", true, true],
  ["Q5_0", true, true],
  ["Q5_1", true, true],
  ["Q2_K", true, true],
  ["Q3_K_S", true, true],
  ["Q4_K_S", true, true],
  ["Q5_K_S", true, true],
  ["Q6_K", true, true],
  ["IQ1_S", false, true],
  ["IQ1_M", false, true],
  ["IQ2_XXS", false, true],
  ["IQ2_XS", false, true],
  ["IQ2_M", false, true],
  ["IQ3_XXS", false, true],
  ["IQ3_S", true, true],
  ["IQ4_NL", true, true],
  ["IQ4_XS", true, true],
  ["TQ1_0", true, false],
  ["TQ2_0", true, false],
  ["Q1_0", true, false],
  ["Q2_0", true, false],
];

const dir = options.dir ?? Deno.makeTempDirSync();
const peerDir = options["peer-dir"] ?? dir;
const repeat = Math.max(1, Number(options.repeat));
const main = new URL("../cli/main.ts", import.meta.url).pathname;
const only = options.types?.toUpperCase().split(",");

const layer = 4 * 1024 * 1024 + 3 * 3072 * 1024; // parameters
/** Encoders without a search are so fast that a command's start would be most of the time: they get a file eight times as large. */
const FAST = new Set(["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0"]);
const models = [1, 8].map((times) => ({
  n_embd: 1024,
  n_ff: 3072,
  n_vocab: 256,
  n_layer: Math.max(1, Math.round(Number(options.mb) * 1e6 / 4 / layer)) * times,
}));
models.forEach((model, i) => writeSynthetic(`${dir}/in${i}.gguf`, model));
const sums = new Map(
  syntheticTensors(models[1]).map(({ name, ne }) => [
    name,
    { sums: Float32Array.from({ length: ne[0] }, (_, i) => 0.1 + (i * 7919 % 101) / 20), counts: Float32Array.of(1) },
  ]),
);
writeImatrix(
  { path: "", format: "gguf", datasets: ["made up"], n_chunks: 1, chunk_size: 512, sums },
  `${dir}/imatrix.gguf`,
);
const megabytes = models.map((_, i) => Deno.statSync(`${dir}/in${i}.gguf`).size / 1e6);
const sizeFor = (type: string, weighted: boolean) => FAST.has(type) && !weighted || type === "COPY" ? 1 : 0;

/** Seconds of one run. */
async function seconds(command: string, args: string[]): Promise<number> {
  const start = performance.now();
  const { code, stderr } = await new Deno.Command(command, { args, stdout: "null", stderr: "piped" }).output();
  if (code !== 0) throw new Error(`${command} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
  return (performance.now() - start) / 1000;
}

function median(times: number[]): number {
  return times.toSorted((a, b) => a - b)[times.length >> 1];
}

function quantizeArgs(folder: string, type: string, weighted: boolean): string[] {
  const imatrix = weighted ? ["--imatrix", `${folder}/imatrix.gguf`] : [];
  return [
    ...imatrix,
    "--pure",
    `${folder}/in${sizeFor(type, weighted)}.gguf`,
    `${folder}/out.gguf`,
    type,
    options.threads,
  ];
}

const ours = (type: string, weighted: boolean) =>
  seconds(Deno.execPath(), ["run", "-A", "--no-check", main, "quantize", "-q", ...quantizeArgs(dir, type, weighted)]);
const [peerCommand, ...peerPrefix] = options.peer?.split(" ") ?? [];
/** The peer does not wait for the disk; bloomery does before the file gets its name, so the wait is part of both times. */
async function peer(type: string, weighted: boolean): Promise<number> {
  const time = await seconds(peerCommand, [...peerPrefix, ...quantizeArgs(peerDir, type, weighted)]);
  const start = performance.now();
  using file = Deno.openSync(`${dir}/out.gguf`, { write: true });
  file.syncSync();
  return time + (performance.now() - start) / 1000;
}

const rate = (time: number, size: number) => (megabytes[size] / time).toFixed(1).padStart(8);
const spread = (times: number[]) =>
  `+-${(100 * (Math.max(...times) - Math.min(...times)) / 2 / median(times)).toFixed(0)}%`;

await ours("COPY", false); // warms the file cache and the compiler's
const floor = median(await repeated(() => ours("COPY", false)));
console.log(
  `${
    megabytes.map((mb) => mb.toFixed(1)).join(" and ")
  } MB of f32, ${options.threads} threads, median of ${repeat}; MB of source a second`,
);
console.log(`floor (read, check and write a copy): ${rate(floor, 1)}`);
console.log(
  ["type", "importance", "bloomery", "spread", ...(peerCommand ? ["peer", "spread", "factor"] : [])].join("\t"),
);

async function repeated(run: () => Promise<number>): Promise<number[]> {
  const times = [];
  for (let i = 0; i < repeat; i++) times.push(await run());
  return times;
}

for (const [type, plain, weighted] of ROWS) {
  if (only && !only.includes(type)) continue;
  for (const importance of [...(plain ? [false] : []), ...(weighted ? [true] : [])]) {
    const mine: number[] = [], theirs: number[] = [];
    const size = sizeFor(type, importance);
    for (let i = 0; i < repeat; i++) {
      mine.push(await ours(type, importance));
      if (peerCommand) theirs.push(await peer(type, importance));
    }
    const cells = [type, importance ? "yes" : "no", rate(median(mine), size), spread(mine)];
    if (peerCommand) {
      cells.push(rate(median(theirs), size), spread(theirs), `${(median(theirs) / median(mine)).toFixed(2)}x`);
    }
    console.log(cells.join("\t"));
  }
}
for (const name of ["in0.gguf", "in1.gguf", "out.gguf", "imatrix.gguf"]) Deno.removeSync(`${dir}/${name}`);
