/**
 * `deno task bench`: rates of models of real shapes on this machine beside their floors, and beside a peer's in the same run.
 *
 *   deno task bench [--shape qwen3-0.6b] [--device cpu] [--threads N] [--prompt 512] [--gen 64] [--rounds 3] [--peer "llama-bench …"]
 *   deno task bench -m model.gguf …
 *
 * `--peer COMMAND` is run as `COMMAND -m FILE -p P -n N -t T -r 1 -o json`; `--peer-model PATH` is FILE as it sees it. Ours and the
 * peer's runs alternate, so that both meet the same machine. Synthetic models are kept in build/synthetic.
 * @module
 */
import { SHAPES, writeShape } from "./synthetic.ts";

const root = new URL("../", import.meta.url).pathname;

function flag(name: string): string | undefined {
  const i = Deno.args.findIndex((a) => a === `--${name}` || (name.length === 1 && a === `-${name}`));
  return i < 0 ? undefined : Deno.args[i + 1];
}

function median(values: number[]): number {
  const s = [...values].sort((a, b) => a - b);
  return s.length === 0 ? NaN : s.length % 2 ? s[s.length >> 1] : (s[s.length / 2 - 1] + s[s.length / 2]) / 2;
}

const device = flag("device") ?? "cpu";
const threads = flag("threads") ?? String(navigator.hardwareConcurrency);
const prompt = flag("prompt") ?? "512", gen = flag("gen") ?? "64";
const rounds = Number(flag("rounds") ?? 3);
const peer = flag("peer");

function modelPath(): string {
  const given = flag("m");
  if (given) return given;
  const shape = flag("shape") ?? "qwen3-0.6b";
  if (!SHAPES[shape]) {
    console.error(`bench: no shape "${shape}": expected one of ${Object.keys(SHAPES).join(", ")}`);
    Deno.exit(2);
  }
  const path = `${root}build/synthetic/${shape}.gguf`;
  Deno.mkdirSync(`${root}build/synthetic`, { recursive: true });
  try {
    Deno.statSync(path);
  } catch {
    writeShape(shape, path);
  }
  return path;
}

interface Ours {
  device: string;
  load_ms: number;
  weight_bytes: number;
  bytes_per_token: number;
  bandwidth: number | null;
  peak_memory_bytes: number;
  results: { name: string; median: number; n_decode: number }[];
}

function runOurs(path: string): Ours {
  const out = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-A",
      "cli/main.ts",
      "bench",
      "-m",
      path,
      "--device",
      device,
      "-t",
      threads,
      "-p",
      prompt,
      "-n",
      gen,
      "-r",
      "1",
      "--json",
      "--quiet",
      ...(flag("bandwidth") ? ["--bandwidth", flag("bandwidth")!] : []),
    ],
    cwd: root,
    stderr: "inherit",
  }).outputSync();
  if (!out.success) Deno.exit(out.code);
  return JSON.parse(new TextDecoder().decode(out.stdout));
}

function runPeer(path: string): Map<string, number> {
  const [command, ...args] = peer!.split(" ");
  const out = new Deno.Command(command, {
    args: [...args, "-m", flag("peer-model") ?? path, "-p", prompt, "-n", gen, "-t", threads, "-r", "1", "-o", "json"],
    stderr: "null",
  }).outputSync();
  if (!out.success) {
    console.error(`bench: the peer failed: ${peer}`);
    Deno.exit(1);
  }
  const rows = JSON.parse(new TextDecoder().decode(out.stdout)) as {
    n_prompt: number;
    n_gen: number;
    avg_ts: number;
  }[];
  return new Map(rows.map((r) => [r.n_prompt > 0 ? `pp${r.n_prompt}` : `tg${r.n_gen}`, r.avg_ts]));
}

const path = modelPath();
const ours = new Map<string, number[]>(), theirs = new Map<string, number[]>();
let last: Ours | undefined;
for (let i = 0; i < rounds; i++) {
  last = runOurs(path);
  for (const r of last.results) ours.set(r.name, [...ours.get(r.name) ?? [], r.median]);
  if (peer) { for (const [name, rate] of runPeer(path)) theirs.set(name, [...theirs.get(name) ?? [], rate]); }
}
const r = last!;
const gb = (n: number) => `${(n / 1e9).toFixed(2)} GB`;
console.log(
  `${path.split("/").at(-1)} on ${r.device}, ${threads} threads: weights ${gb(r.weight_bytes)}, ${
    gb(r.bytes_per_token)
  } a token, ` +
    `load ${r.load_ms.toFixed(0)} ms, peak memory ${gb(r.peak_memory_bytes)}` +
    (r.bandwidth ? `, bandwidth ${gb(r.bandwidth)}/s` : ""),
);
console.log(`| case | tok/s | floor | of floor |${peer ? " peer | ratio |" : ""}`);
console.log(`| --- | --- | --- | --- |${peer ? " --- | --- |" : ""}`);
for (const { name, n_decode } of r.results) {
  const rate = median(ours.get(name)!);
  const floor = n_decode > 0 && r.bandwidth ? r.bandwidth / r.bytes_per_token : undefined;
  const cells = [name, rate.toFixed(1), floor?.toFixed(0) ?? "-", floor ? `${(rate / floor * 100).toFixed(0)} %` : "-"];
  const other = median(theirs.get(name) ?? []);
  if (peer) cells.push(other.toFixed(1), `${(rate / other).toFixed(2)} x`);
  console.log(`| ${cells.join(" | ")} |`);
}
