/**
 * `bloomery bench`: prompt and decode rates of a model on this machine.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import { DRAFT_FLAGS, openDrafterFromFlags } from "./draft_flags.ts";
import { COMMON, MODEL_FLAGS } from "./flags.ts";
import { LLAMA_MODEL_FLAGS } from "./llama_flags.ts";
import { UsageError } from "../core/errors.ts";
import { keptMachine, MACHINE_FLAG, machineOf } from "./machine_file.ts";
import { modelPath, openSource } from "./model_file.ts";
import { contextOf, deviceName, threadsOf } from "./open.ts";
import { placementOf } from "./place_flags.ts";
import { residencyNote } from "./residency.ts";
import { formatAmount } from "./progress.ts";
import type { BenchCase } from "../core/engine/bench.ts";
import type { CacheType } from "../core/plan/cache.ts";

/** Whole numbers of a comma-separated list. */
function numbers(text: string, flag: string): number[] {
  const list = text === "" ? [] : text.split(",").map(Number);
  if (list.some((n) => !Number.isInteger(n) || n < 0)) {
    throw new UsageError("usage.value", `Cannot use --${flag} ${text}: expected whole numbers separated by commas`, {
      at: { flag: `--${flag}`, got: text },
    });
  }
  return list.filter((n) => n > 0);
}

/** Peak resident memory of this process in bytes; 0 where the system does not say. */
function peakMemory(): number {
  try {
    const kb = /VmHWM:\s*(\d+) kB/.exec(Deno.readTextFileSync("/proc/self/status"));
    return kb ? Number(kb[1]) * 1024 : 0;
  } catch {
    return 0;
  }
}

/** Bytes a second that one thread copies, read and written bytes both counted: the floor's bandwidth on a host device. */
function copyBandwidth(): number {
  const from = new Uint8Array(128 * 2 ** 20).fill(1), to = new Uint8Array(from.length);
  let best = 0;
  for (let i = 0; i < 5; i++) {
    const start = performance.now();
    to.set(from);
    best = Math.max(best, 2 * from.length / (performance.now() - start) * 1000);
  }
  return best;
}

/** Weights of fewer bytes may stay in a processor's cache between steps. */
const PROCESSOR_CACHE = 64e6;

export const bench: Command = {
  name: "bench",
  summary: "Measure prompt and decode rates of a model",
  arguments: [],
  flags: [
    ...MODEL_FLAGS,
    ...DRAFT_FLAGS.map((flag) => flag.name === "draft" ? { ...flag, default: "off" } : flag),
    { name: "n-prompt", alias: ["p"], type: "string", value: "LIST", default: "512", help: "prompt lengths" },
    { name: "n-gen", alias: ["n"], type: "string", value: "LIST", default: "128", help: "tokens to decode" },
    {
      name: "n-depth",
      alias: ["d"],
      type: "string",
      value: "LIST",
      default: "0",
      help: "tokens in the cache before a case",
    },
    { name: "sequences", type: "string", value: "LIST", default: "1", help: "sequences decoded together" },
    { name: "repetitions", alias: ["r"], type: "int", value: "N", default: 3, min: 1, help: "runs of each case" },
    {
      name: "bandwidth",
      type: "number",
      value: "GB/S",
      min: 1,
      help: "memory bandwidth for the floor; default: measured, on a host device",
    },
    {
      ...MACHINE_FLAG,
      help:
        "print what this machine should reach, beside what is measured; default: the one that bloomery machine keeps",
    },
    COMMON.json,
    COMMON.quiet,
    ...LLAMA_MODEL_FLAGS,
  ],
  async run({ flags, io }) {
    const { openBackend } = await import("../ffi/mod.ts");
    const { Engine } = await import("../core/engine/mod.ts");
    const { predict } = await import("../core/plan/predict.ts");
    const { workOf } = await import("../core/plan/work.ts");
    const { benchCase, bytesPerToken, runBench } = await import("../core/engine/bench.ts");
    const prompts = numbers(flags.str("n-prompt")!, "n-prompt"), decodes = numbers(flags.str("n-gen")!, "n-gen");
    const depths = [...new Set([0, ...numbers(flags.str("n-depth")!, "n-depth")])];
    const wantedDepths = flags.str("n-depth")!.split(",").map(Number);
    const groups = numbers(flags.str("sequences")!, "sequences");
    const cases = depths.filter((d) => wantedDepths.includes(d)).flatMap((depth) => [
      ...prompts.map((n) => benchCase("pp", n, depth)),
      ...groups.flatMap((n_seq) => decodes.map((n) => benchCase("tg", n, depth, n_seq))),
    ]);
    if (cases.length === 0) {
      throw new UsageError("usage.value", "Cannot measure nothing: --n-prompt, --n-gen and --n-depth name no case", {
        hint: "leave them out, or give lengths such as --n-prompt 512 --n-gen 128",
      });
    }
    const longest = Math.max(...cases.map((c) => c.depth + c.n_prompt + c.n_decode));
    const cached = Math.max(...cases.map((c) => (c.depth + c.n_prompt + c.n_decode + 64) * c.n_seq));

    const path = await modelPath(flags, io);
    using opened = openBackend(deviceName(flags), { threads: threadsOf(flags, io) });
    using file = await openSource(path, io, opened.backend);
    const bandwidth = flags.has("bandwidth")
      ? flags.num("bandwidth")! * 1e9
      : opened.device.kind === "cpu"
      ? copyBandwidth()
      : undefined;
    const placement = await placementOf(flags);
    const start = performance.now();
    using engine = await Engine.load(file, opened.backend, {
      device: opened.device.index,
      n_ctx: Math.max(longest, contextOf(flags) ?? 0),
      n_cache: cached,
      n_ubatch: flags.num("ubatch-size")!,
      cacheTypeK: flags.str("cache-type-k") as CacheType,
      cacheTypeV: flags.str("cache-type-v") as CacheType,
      n_out: Math.max(...groups, 1),
      ...placement,
      onWarning: (text) => io.warn(text),
    });
    const { backend, device } = opened;
    using drafter = await openDrafterFromFlags({ model: { file, engine }, backend, device }, flags, io, {
      n_seq: Math.max(...groups),
    });
    const load_ms = performance.now() - start;
    const bytes = bytesPerToken(engine);
    // Weights that stay in the processor's cache are not read from memory, whose bandwidth the floor is made of.
    const cachedWeights = opened.device.kind === "cpu" && bytes < PROCESSOR_CACHE;
    const floor = bandwidth === undefined || cachedWeights ? undefined : bandwidth / bytes;
    if (cachedWeights) io.note("no floor: the weights fit in the processor's cache");
    const named = flags.str("machine"), kept = named === undefined ? keptMachine() : machineOf(named);
    // What was measured on another machine, or without its cards, says nothing here; a machine that was asked for does.
    const fits = kept?.host.name === opened.backend.devices[0].name && (device.kind === "cpu" || kept.cards.length > 0);
    const machine = named !== undefined || fits ? kept : undefined;
    const work = machine && workOf(engine.model, engine.plan);
    const predicted = (c: BenchCase): number | null => {
      if (!machine || !work || c.n_seq > 1) return null;
      const { depth, n_prompt } = c;
      const p = predict(work, machine, { depth, n_prompt: n_prompt || 1, n_ubatch: engine.n_ubatch, ...placement });
      return (n_prompt > 0 ? p.prompt : p.decode).tokens_per_second;
    };
    const results = [];
    for (const c of cases) {
      io.note(`${c.name} ...`);
      const result = await runBench(engine, c, flags.num("repetitions")!, { drafter });
      results.push({ ...result, predicted: predicted(c) });
    }
    const report = {
      schema: "bloomery.bench/1",
      model: path,
      device: opened.device.name,
      device_kind: opened.device.kind,
      n_threads: flags.num("threads"),
      load_ms,
      weight_bytes: engine.plan.weight_bytes,
      bytes_per_token: bytes,
      bandwidth: bandwidth ?? null,
      draft: drafter?.proposer.name ?? null,
      peak_memory_bytes: peakMemory(),
      results,
      ...(engine.residency === undefined ? {} : { residency: engine.residency.stats }),
    };
    if (flags.bool("json")) {
      io.json(report);
      return EXIT.done;
    }
    const amount = (n: number) => formatAmount(n, "B");
    io.out(
      `${path} on ${opened.device.name}: weights ${amount(report.weight_bytes)}, ${amount(bytes)} a token, loaded in ${
        (load_ms / 1000).toFixed(2)
      } s, peak memory ${amount(report.peak_memory_bytes)}${bandwidth ? `, bandwidth ${amount(bandwidth)}/s` : ""}\n`,
    );
    io.out(
      `${"case".padEnd(16)}${"tok/s".padStart(10)}${"spread".padStart(10)}${"floor".padStart(10)}${
        "of floor".padStart(10)
      }${work ? "predicted".padStart(11) : ""}${drafter ? "right guesses".padStart(15) : ""}\n`,
    );
    for (const r of results) {
      const spread = (Math.max(...r.rates) - Math.min(...r.rates)) / r.median * 100;
      const spreadText = r.rates.length > 1 ? `${spread.toFixed(1)} %` : "-";
      // Weights are read once a step: the bandwidth floor holds for decoding.
      const limit = r.n_decode > 0 && floor !== undefined ? floor * r.n_seq : undefined;
      io.out(
        r.name.padEnd(16) + r.median.toFixed(1).padStart(10) + spreadText.padStart(10) +
          (limit === undefined ? "-" : limit.toFixed(0)).padStart(10) +
          (limit === undefined ? "-" : `${(r.median / limit * 100).toFixed(0)} %`).padStart(10) +
          (work ? (r.predicted?.toFixed(1) ?? "-").padStart(11) : "") +
          (r.n_draft === undefined ? "" : `${r.n_draft_accepted} of ${r.n_draft}`.padStart(15)) + "\n",
      );
    }
    const experts = residencyNote(engine, flags.bool("verbose"));
    if (experts !== undefined) io.note(experts);
    return EXIT.done;
  },
};
