/**
 * Rates of the tokenizers: MB of UTF-8 a second for each vocabulary of a folder, ours and, where named, a peer's in the same run.
 *
 *   deno run -A scripts/bench_tokenizer.ts --vocab DIR --text FILE [--text FILE ...] [--rounds 5]
 *     [--peer COMMAND --work DIR [--peer-work DIR]]
 *
 * One round of ours is a tokenizer opened anew that encodes all texts once, in order: nothing is remembered from the
 * round before. `open` is reading the file, making the tokenizer and encoding one letter.
 *
 * `--peer COMMAND` is run as `COMMAND -m VOCAB -f TEXT --ids --log-disable`, with the texts and with one letter; its rate
 * is from the difference of the two. Vocabulary and texts are copied into `--work`, which the peer sees as `--peer-work`.
 * Rounds alternate, so that both meet the same machine.
 * @module
 */
import { openGguf } from "../core/gguf/read.ts";
import { tokenizerFromGguf } from "../core/tokenizer/mod.ts";

function flags(name: string): string[] {
  return Deno.args.flatMap((arg, i) => arg === `--${name}` && Deno.args[i + 1] !== undefined ? [Deno.args[i + 1]] : []);
}

const [vocabDir] = flags("vocab");
const textFiles = flags("text");
const rounds = Number(flags("rounds")[0] ?? 5);
const [peer] = flags("peer");
const [work] = flags("work");
const peerWork = flags("peer-work")[0] ?? work;
if (vocabDir === undefined || textFiles.length === 0 || !(rounds >= 1) || (peer !== undefined && work === undefined)) {
  console.error("bench_tokenizer: wants --vocab DIR and --text FILE; with --peer COMMAND also --work DIR");
  Deno.exit(2);
}

const text = textFiles.map((path) => Deno.readTextFileSync(path)).join("\n");
const megabytes = new TextEncoder().encode(text).length / 1e6;

interface Sample {
  open_ms: number;
  ms: number;
}

function ours(path: string): Sample {
  const start = performance.now();
  using file = openGguf(path);
  const tokenizer = tokenizerFromGguf(file.metadata);
  tokenizer.encode("a");
  const opened = performance.now();
  tokenizer.encode(text);
  return { open_ms: opened - start, ms: performance.now() - opened };
}

function peerMs(file: string): number {
  const [program, ...args] = peer.split(" ");
  const start = performance.now();
  const { code, stderr } = new Deno.Command(program, {
    args: [...args, "-m", `${peerWork}/vocab.gguf`, "-f", `${peerWork}/${file}`, "--ids", "--log-disable"],
    stdout: "piped",
    stderr: "piped",
  }).outputSync();
  if (code !== 0) {
    console.error(`bench_tokenizer: ${peer} ended with ${code}: ${new TextDecoder().decode(stderr).slice(-500)}`);
    Deno.exit(1);
  }
  return performance.now() - start;
}

function theirs(): Sample {
  const open_ms = peerMs("letter.txt");
  return { open_ms, ms: Math.max(peerMs("text.txt") - open_ms, 0.1) };
}

function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

if (peer !== undefined) {
  Deno.mkdirSync(work, { recursive: true });
  Deno.writeTextFileSync(`${work}/text.txt`, text);
  Deno.writeTextFileSync(`${work}/letter.txt`, "a");
}
console.log(`# ${megabytes.toFixed(3)} MB of text, median of ${rounds} rounds; deno ${Deno.version.deno}`);
console.log(["vocabulary", "n_vocab", "open ms", "MB/s", ...(peer ? ["peer MB/s", "ratio"] : [])].join("\t"));
for (const { name } of [...Deno.readDirSync(vocabDir)].sort((a, b) => a.name < b.name ? -1 : 1)) {
  if (!name.endsWith(".gguf")) continue;
  const path = `${vocabDir}/${name}`;
  if (peer !== undefined) Deno.copyFileSync(path, `${work}/vocab.gguf`);
  for (let i = 0; i < 3; i++) ours(path); // warms the compiler up
  const mine: Sample[] = [];
  const other: Sample[] = [];
  for (let round = 0; round < rounds; round++) {
    mine.push(ours(path));
    if (peer !== undefined) other.push(theirs());
  }
  using file = openGguf(path);
  const rate = megabytes / median(mine.map(({ ms }) => ms)) * 1000;
  const peerRate = megabytes / median(other.map(({ ms }) => ms)) * 1000;
  console.log([
    name.replace(".gguf", ""),
    tokenizerFromGguf(file.metadata).n_vocab,
    median(mine.map(({ open_ms }) => open_ms)).toFixed(0),
    rate.toFixed(2),
    ...(peer ? [peerRate.toFixed(2), (rate / peerRate).toFixed(1)] : []),
  ].join("\t"));
}
