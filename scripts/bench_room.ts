/**
 * The memory that quantizing takes: a made-up bf16 model, as a GGUF file and as a Hugging Face folder, quantized under `--room`
 * in processes of their own, whose peak is read from the kernel. Everything that is written is removed. Linux only.
 *
 *   deno run -A scripts/bench_room.ts [--gb 6] [--room 512M] [--type Q4_0] [--threads 2] [--dir FOLDER]
 *
 * The limit is the room and 200 MB. Exit code 3 where a peak is beyond it.
 * @module
 */
import { parseArgs } from "node:util";
import { parseSize } from "../cli/size.ts";
import { measurePeak } from "../tests/quantize/peak.ts";
import { writeSynthetic, writeSyntheticFolder } from "../tests/quantize/synthetic.ts";

const { values: options } = parseArgs({
  args: Deno.args,
  options: {
    gb: { type: "string", default: "6" },
    room: { type: "string", default: "512M" },
    type: { type: "string", default: "Q4_0" },
    threads: { type: "string", default: "2" },
    dir: { type: "string" },
  },
});

const limit = parseSize(options.room, "room") + 200e6;
const shape = { n_embd: 4096, n_ff: 12288, n_vocab: 151936, n_head: 32, n_head_kv: 8, type: "bf16" };
const ends = 2 * 2 * shape.n_embd * shape.n_vocab;
const layer = 2 * shape.n_embd * (2.5 * shape.n_embd + 3 * shape.n_ff);
const n_layer = Math.max(1, Math.round((Number(options.gb) * 1e9 - ends) / layer));
const model = { ...shape, n_layer };

const main = new URL("../cli/main.ts", import.meta.url).pathname;
const base = options.dir ?? Deno.makeTempDirSync({ prefix: "room-" });
const dir = `${base}/bloomery-room/`;
const megabytes = (n: number) => (n / 1e6).toFixed(0).padStart(6);
let isWithin = true;

/** Runs one command and prints a row. */
async function row(name: string, args: string[], sourceBytes: number): Promise<void> {
  const peak = await measurePeak(["run", "-A", "--no-check", main, args[0], "--room", options.room, ...args.slice(1)]);
  if (peak.code !== 0) throw new Error(`${name} failed: ${peak.stderr}`);
  isWithin &&= peak.bytes <= limit;
  const rate = sourceBytes / 1e6 / peak.seconds;
  console.log(
    `${name.padEnd(28)} ${megabytes(sourceBytes)} ${megabytes(peak.bytes)} ${megabytes(limit)} ` +
      `${peak.seconds.toFixed(1).padStart(7)} ${rate.toFixed(0).padStart(6)}  ${peak.bytes <= limit ? "ok" : "BEYOND"}`,
  );
}

Deno.mkdirSync(dir, { recursive: true });
try {
  console.log(
    `${Deno.build.arch}, ${navigator.hardwareConcurrency} cores, deno ${Deno.version.deno}, ${n_layer} layers`,
  );
  console.log("command                      source   peak  limit seconds   MB/s");
  const input = dir + "in.gguf";
  const bytes = writeSynthetic(input, model);
  await row(
    `quantize FILE ${options.type}`,
    ["quantize", "--device", "cpu", input, dir + "out.gguf", options.type, options.threads],
    bytes,
  );
  Deno.removeSync(input);
  Deno.removeSync(dir + "out.gguf");
  const folder = dir + "model";
  const tensors = writeSyntheticFolder(folder, model, 6);
  const hf = ["quantize", "--device", "cpu", "--hf", folder, dir + "out.gguf", options.type, options.threads];
  await row(`quantize --hf DIR ${options.type}`, hf, tensors);
  Deno.removeSync(dir + "out.gguf");
  await row("prepare DIR bf16", ["prepare", folder, "-o", dir + "out.gguf", "--outtype", "bf16"], tensors);
} finally {
  Deno.removeSync(options.dir === undefined ? base : dir, { recursive: true });
}
if (!isWithin) Deno.exitCode = 3;
