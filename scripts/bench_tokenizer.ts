/**
 * Rates of the tokenizers: MB of UTF-8 a second of processor time for each vocabulary of a folder, ours and, where named, a
 * peer's in the same run; and how long a vocabulary takes to open.
 *
 *   deno run -A scripts/bench_tokenizer.ts --vocab DIR --text FILE [--text FILE ...] [--rounds 5] [--synthetic 250000]
 *     [--peer COMMAND --work DIR [--peer-work DIR]]
 *
 * `open ms`: wall time in a fresh process from the call that opens the file to the ids of a first line of text; `cpu ms`
 * is the processor time of it, all threads together.
 *
 * `MB/s`: each round of ours encodes each text with a tokenizer opened anew, so nothing is remembered from the round
 * before; the compiler is warm. Processor time counts all threads, collector and compiler included, so that a busy
 * machine does not decide. The rates are of all texts together; a column for each text follows, with its ratio to the
 * peer's rate, or its rate.
 *
 * `--peer COMMAND` is run as `COMMAND -m VOCAB -f TEXT --ids --log-disable`, with each text and with one letter; its rate
 * is from the difference of the two, so that opening does not count. It gets each text five times over, or opening would
 * drown the difference (it remembers no words). Vocabulary and texts are copied into `--work`, which the peer sees as
 * `--peer-work`. Rounds alternate, and every number is the least of them. `--synthetic N` adds a made byte-level
 * vocabulary of N tokens with two merges a token.
 * @module
 */
import process from "node:process";
import { GgufWriter } from "../core/gguf/write.ts";
import { ggufValue, Metadata } from "../core/gguf/metadata.ts";
import { openGguf } from "../core/gguf/read.ts";
import { BYTE_TO_CODE_POINT } from "../core/tokenizer/byte_map.ts";
import { tokenizerFromGguf } from "../core/tokenizer/mod.ts";

const PEER_REPEATS = 5;
const FIRST_LINE = "Hello, w\u00f6rld! \u4f60\u597d 12345\n";

function flags(name: string): string[] {
  return Deno.args.flatMap((arg, i) => arg === `--${name}` && Deno.args[i + 1] !== undefined ? [Deno.args[i + 1]] : []);
}

/** What a fresh process is started for. */
function printOpenTime(path: string): void {
  const before = process.cpuUsage();
  const start = performance.now();
  using file = openGguf(path);
  tokenizerFromGguf(file.metadata).encode(FIRST_LINE);
  const wall = performance.now() - start;
  console.log(wall, sinceMs(before));
}

/** Processor time in ms since then. */
function sinceMs(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** Each column's least value. */
function least(rows: readonly (readonly number[])[]): number[] {
  return rows.length === 0 ? [] : rows[0].map((_, i) => Math.min(...rows.map((row) => row[i])));
}

/** Wall and processor time in ms. */
function openMs(path: string): number[] {
  const args = ["run", "-A", "--no-check", import.meta.filename!, "--open", path];
  const { stdout, success } = new Deno.Command(Deno.execPath(), { args, stderr: "inherit" }).outputSync();
  if (!success) throw new Error(`the tokenizer of ${path} does not open`);
  return new TextDecoder().decode(stdout).trim().split(" ").map(Number);
}

interface Text {
  readonly name: string;
  readonly text: string;
  readonly megabytes: number;
}

/** Processor time in ms of encoding each text. */
function ours(path: string, texts: readonly Text[]): number[] {
  using file = openGguf(path);
  return texts.map(({ text }) => {
    const tokenizer = tokenizerFromGguf(file.metadata);
    tokenizer.encode(FIRST_LINE);
    const before = process.cpuUsage();
    tokenizer.encode(text);
    return sinceMs(before);
  });
}

class Peer {
  constructor(readonly command: string, readonly work: string, readonly seen: string, texts: readonly Text[]) {
    Deno.mkdirSync(work, { recursive: true });
    texts.forEach(({ text }, i) => Deno.writeTextFileSync(`${work}/text${i}.txt`, `${text}\n`.repeat(PEER_REPEATS)));
    Deno.writeTextFileSync(`${work}/letter.txt`, "a");
  }

  take(vocabulary: string): void {
    Deno.copyFileSync(vocabulary, `${this.work}/vocab.gguf`);
  }

  /** Processor time in ms of one run; the shell says what its child took. */
  private run(file: string): number {
    const args = ["-m", `${this.seen}/vocab.gguf`, "-f", `${this.seen}/${file}`, "--ids", "--log-disable"];
    const { code, stdout, stderr } = new Deno.Command("bash", {
      args: ["-c", `"$@" > /dev/null || exit 1; times`, "bash", ...this.command.split(" "), ...args],
    }).outputSync();
    const child = new TextDecoder().decode(stdout).trim().split("\n")[1] ?? "";
    const times = [...child.matchAll(/(\d+)m([\d.]+)s/g)].map(([, m, s]) => Number(m) * 60_000 + Number(s) * 1000);
    if (code !== 0 || times.length !== 2) {
      throw new Error(`${this.command} failed: ${new TextDecoder().decode(stderr).slice(-500)}`);
    }
    return times[0] + times[1];
  }

  /** Of one letter, then of each text. */
  encode(texts: readonly Text[]): number[] {
    return [this.run("letter.txt"), ...texts.map((_, i) => this.run(`text${i}.txt`))];
  }
}

/** A byte-level vocabulary of `n` tokens, each made of two earlier ones, and as many merges again that are never met. */
function writeSynthetic(path: string, n: number): void {
  let state = 1;
  const random = (below: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 8) % below;
  };
  const tokens = Array.from(BYTE_TO_CODE_POINT, (cp) => String.fromCharCode(cp));
  const known = new Set(tokens);
  const merges: string[] = [];
  while (tokens.length < n) {
    const left = tokens[random(Math.min(tokens.length, 5000))];
    const right = tokens[random(tokens.length)];
    if (left.length + right.length > 16 || known.has(left + right)) continue;
    known.add(left + right);
    tokens.push(left + right);
    merges.push(`${left} ${right}`, `${right} ${left}`);
  }
  const metadata = new Metadata(path, [
    ["general.architecture", ggufValue.str("llama")],
    ["tokenizer.ggml.model", ggufValue.str("gpt2")],
    ["tokenizer.ggml.pre", ggufValue.str("qwen2")],
    ["tokenizer.ggml.tokens", ggufValue.strs(tokens)],
    ["tokenizer.ggml.token_type", ggufValue.i32s(tokens.map(() => 1))],
    ["tokenizer.ggml.merges", ggufValue.strs(merges)],
  ]);
  using writer = GgufWriter.create({ path, metadata, tensors: [] });
  writer.finish();
}

function main(): void {
  const [vocabDir] = flags("vocab");
  const textFiles = flags("text");
  const rounds = Number(flags("rounds")[0] ?? 5);
  const [command] = flags("peer");
  const [work] = flags("work");
  if (vocabDir === undefined || textFiles.length === 0 || !(rounds >= 1) || (command && work === undefined)) {
    console.error("bench_tokenizer: wants --vocab DIR and --text FILE; with --peer COMMAND also --work DIR");
    Deno.exitCode = 2;
    return;
  }
  const texts = textFiles.map((path): Text => {
    const text = Deno.readTextFileSync(path);
    const megabytes = new TextEncoder().encode(text).length / 1e6;
    return { name: path.split("/").pop()!.replace(/\.\w+$/, ""), text, megabytes };
  });
  const peer = command ? new Peer(command, work, flags("peer-work")[0] ?? work, texts) : undefined;
  const paths = [...Deno.readDirSync(vocabDir)].map(({ name }) => name).filter((name) => name.endsWith(".gguf")).sort()
    .map((name) => `${vocabDir}/${name}`);
  const n_synthetic = Number(flags("synthetic")[0] ?? 0);
  const made = n_synthetic > 0 ? Deno.makeTempDirSync() : undefined;
  try {
    if (made !== undefined) {
      paths.push(`${made}/synthetic.gguf`);
      writeSynthetic(paths[paths.length - 1], n_synthetic);
    }
    measure(paths, texts, rounds, peer);
  } finally {
    if (made !== undefined) Deno.removeSync(made, { recursive: true });
  }
}

function measure(paths: readonly string[], texts: readonly Text[], rounds: number, peer: Peer | undefined): void {
  const sizes = texts.map(({ name, megabytes }) => `${name} ${megabytes.toFixed(2)}`).join(", ");
  console.log(`# MB of text: ${sizes}; least processor time of ${rounds} rounds; deno ${Deno.version.deno}`);
  const head = [...(peer ? ["MB/s", "peer MB/s", "ratio"] : ["MB/s"]), ...texts.map(({ name }) => name)];
  console.log(["vocabulary", "n_vocab", "open ms", "cpu ms", ...head].join("\t"));
  for (const path of paths) {
    peer?.take(path);
    for (let i = 0; i < 3; i++) ours(path, texts); // warms the compiler up
    const opens: number[][] = [];
    const mine: number[][] = [];
    const theirs: number[][] = [];
    for (let round = 0; round < rounds; round++) {
      opens.push(openMs(path));
      mine.push(ours(path, texts));
      if (peer) theirs.push(peer.encode(texts));
    }
    const withSum = (each: number[]) => [each.reduce((sum, one) => sum + one, 0), ...each];
    const megabytes = withSum(texts.map((text) => text.megabytes));
    const [letter, ...whole] = least(theirs);
    const rates = withSum(least(mine)).map((ms, i) => megabytes[i] / ms * 1000);
    const peerRates = withSum(whole.map((ms) => Math.max(ms - letter, 0.1) / PEER_REPEATS)).map((ms, i) =>
      megabytes[i] / ms * 1000
    );
    const compared = rates.map((rate, i) => (peer ? rate / peerRates[i] : rate).toFixed(peer ? 1 : 2));
    const cells = peer ? [rates[0].toFixed(2), peerRates[0].toFixed(2), ...compared] : compared;
    using file = openGguf(path);
    const { n_vocab } = tokenizerFromGguf(file.metadata);
    console.log(
      [path.split("/").pop()!.replace(".gguf", ""), n_vocab, ...least(opens).map((ms) => ms.toFixed(0)), ...cells].join(
        "\t",
      ),
    );
  }
}

const [toOpen] = flags("open");
if (toOpen !== undefined) printOpenTime(toOpen);
else main();
