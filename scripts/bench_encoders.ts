/**
 * How fast rows in memory are encoded, type by type: MB of f32 a second on the host, and on a card where there is one.
 *
 *   deno run -A scripts/bench_encoders.ts [--device cuda:0] [--threads 0] [--mb 256] [--repeat 5] [--types q4_K,iq3_s]
 *                                         [--link GB_A_SECOND]
 *
 * Two floors for a card: the host's threads must bring the rows to it, which takes as long as they need to copy them and to look for
 * NaN (measured, the last line); and the rows must cross the link, whose rate in one direction may be given. Card and host take
 * turns, and their bytes are compared.
 * @module
 */
import { parseArgs } from "node:util";
import { type GgmlType, ggmlType, rowBytes } from "../core/gguf/types.ts";
import { openBackend } from "../ffi/mod.ts";
import { fillWeights } from "../tests/quantize/synthetic.ts";

const { values: options } = parseArgs({
  args: Deno.args,
  options: {
    device: { type: "string", default: "auto" },
    threads: { type: "string", default: "0" },
    mb: { type: "string", default: "256" },
    repeat: { type: "string", default: "5" },
    types: { type: "string" },
    link: { type: "string" },
  },
});

const PLAIN = ["f16", "bf16", "q8_0", "q1_0", "q2_0", "tq1_0", "tq2_0", "mxfp4", "nvfp4"];
const BOTH = ["q4_0", "q4_1", "q5_0", "q5_1", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"];
const SEARCHED = ["iq1_m", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs"];
const WEIGHTED = ["iq1_s", "iq2_xxs", "iq2_xs"];
const N_COLUMN = 4096;

const only = options.types?.split(",");
const repeat = Math.max(1, Number(options.repeat));
const { backend, device } = openBackend(options.device, { threads: Number(options.threads) });
const card = device.kind === "cpu" ? undefined : device.index;
const values = new Float32Array(Math.max(1, Math.round(Number(options.mb) * 1e6 / 4 / N_COLUMN)) * N_COLUMN);
fillWeights(values, 1);
const weights = Float32Array.from({ length: N_COLUMN }, (_, i) => 0.1 + (i * 7919 % 101) / 20);

interface Run {
  readonly dst: Uint8Array;
  readonly rates: number[];
}

/** Encodes the first `n_rows` rows once and notes MB of them a second. */
async function encode(run: Run, type: GgmlType, weighted: boolean, n_rows: number, device: number): Promise<void> {
  const job = {
    srcType: ggmlType("f32"),
    src: new Uint8Array(values.buffer, 0, n_rows * N_COLUMN * 4),
    dstType: type,
    dst: run.dst.subarray(0, n_rows * rowBytes(type, N_COLUMN)),
    n_rows,
    n_per_row: N_COLUMN,
    device,
    ...(weighted ? { weights } : {}),
  };
  const start = performance.now();
  await backend.quantize(job);
  run.rates.push(job.src.length / 1e3 / (performance.now() - start));
}

function median(rates: readonly number[]): number {
  return rates.toSorted((a, b) => a - b)[rates.length >> 1];
}

function spread(rates: readonly number[]): string {
  return `+-${(50 * (Math.max(...rates) - Math.min(...rates)) / median(rates)).toFixed(0)}%`;
}

async function measure(name: string, weighted: boolean): Promise<void> {
  const type = ggmlType(name);
  const n_rows = values.length / N_COLUMN;
  // The host's share is what it does in a reasonable time.
  const few = card === undefined ? n_rows : Math.max(1, Math.min(n_rows, Math.ceil(n_rows / 8)));
  const size = n_rows * rowBytes(type, N_COLUMN);
  const host: Run = { dst: new Uint8Array(size), rates: [] }, other: Run = { dst: new Uint8Array(size), rates: [] };
  for (let i = 0; i <= repeat; i++) {
    await encode(host, type, weighted, few, 0);
    if (card !== undefined) await encode(other, type, weighted, n_rows, card);
    if (i === 0) host.rates.length = other.rates.length = 0; // warms memory and the card
  }
  const rate = (r: number) => r.toFixed(0).padStart(6);
  const cells = [name.padEnd(7), weighted ? "yes" : "no", rate(median(host.rates)), spread(host.rates)];
  if (card !== undefined) {
    const same = few * rowBytes(type, N_COLUMN);
    if (host.dst.subarray(0, same).some((v, i) => v !== other.dst[i])) {
      throw new Error(`${name}: the card's bytes differ`);
    }
    cells.push(
      rate(median(other.rates)),
      spread(other.rates),
      `${(median(other.rates) / median(host.rates)).toFixed(1)}x`,
    );
  }
  console.log(cells.join("\t"));
}

const onCard = card === undefined ? [] : ["card", "spread", "factor"];
console.log(backend.devices.map((d) => `${d.kind}: ${d.name}`).join(", "));
console.log(["type", "imatrix", "host", "spread", ...onCard].join("\t"));
for (const name of [...PLAIN, ...BOTH, ...WEIGHTED, ...SEARCHED]) {
  if (only && !only.includes(name)) continue;
  if (!WEIGHTED.includes(name)) await measure(name, false);
  if (!PLAIN.includes(name)) await measure(name, true);
}
const copied: Run = { dst: new Uint8Array(values.byteLength), rates: [] };
for (let i = 0; i <= repeat; i++) await encode(copied, ggmlType("f32"), false, values.length / N_COLUMN, 0);
console.log(`rows copied and looked at by the host: ${median(copied.rates.slice(1)).toFixed(0)} MB/s`);
if (options.link) console.log(`the card's link: ${(1000 * Number(options.link)).toFixed(0)} MB/s`);
backend[Symbol.dispose]();
