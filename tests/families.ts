/**
 * What every architecture must show: on a random model of its own (`family_models.ts`), and on the tiny checkpoints of ../shared with the
 * outputs of the released models' code. Registered for the reference backend, the CPU and a card.
 * @module
 */
import assert from "node:assert/strict";
import { ARCHITECTURES } from "../core/arch/mod.ts";
import { bindModel, buildProgram } from "../core/arch/model.ts";
import type { Engine, EngineOptions } from "../core/engine/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import type { CacheType } from "../core/plan/cache.ts";
import { NONE } from "../core/program/ops.ts";
import { openBackend, type OpenedBackend } from "../ffi/mod.ts";
import { prepare } from "../quantize/prepare/mod.ts";
import { parseFileType } from "../quantize/file_types.ts";
import { quantize } from "../quantize/quantize.ts";
import { openGgufSource } from "../quantize/quantize_source.ts";
import { FAMILY_MODELS, N_VOCAB, writeFamilyModel } from "./family_models.ts";
import { checkBatch, checkPromptSplits, checkSnapshots, wholePrompt, withEngine } from "./logits_checks.ts";
import { testFolder } from "./models.ts";
import { random } from "./ops/case.ts";
import { repoDir, sharedDir } from "./shared.ts";

/** Largest error of a logit against the released model's code, and between backends. */
export const TOLERANCE = 3e-4;

const F32_CACHE = { cacheTypeK: "f32", cacheTypeV: "f32" } as const;

/**
 * Shares of the NLL by which a checkpoint's quantized forms may differ, where they are not 1 % and 5 %. The rows that a random
 * indexer picks change with its last bits: on the same Q8_0 file, exact arithmetic gives 1.4 % for kimi_k31.
 */
const NLL_SHARES: Readonly<Record<string, Readonly<Record<"Q8_0" | "Q4_K_M", number>>>> = {
  kimi_k31: { Q8_0: 0.02, Q4_K_M: 0.05 },
};

/** Tokens of the prompt for random models: more than a page, and than two windows. */
const N_PROMPT = 150;

/** Folders of ../shared/models/tiny, by the architecture they become. */
const TINY: Readonly<Record<string, readonly string[]>> = {
  llama: ["llama", "mistral", "mixtral"],
  qwen2: ["qwen2"],
  qwen2moe: ["qwen2_moe"],
  qwen3: ["qwen3"],
  qwen3moe: ["qwen3_moe"],
  gemma3: ["gemma3"],
  "gpt-oss": ["gpt_oss", "gpt_oss_mxfp4"],
  glm4moe: ["glm4_moe"],
  "minimax-m2": ["minimax_m2"],
  mimo2: ["mimo_v2_flash"],
  deepseek2: ["deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "glm4_moe_lite", "mistral_large3"],
  mistral4: ["mistral4"],
  deepseek32: ["deepseek_v32"],
  "glm-dsa": ["glm_moe_dsa"],
  deepseek4: ["deepseek_v4"],
  deepseek41: ["deepseek_v41"],
  "kimi-linear": ["kimi_linear"],
  "kimi-k3": ["kimi_k3", "kimi_k31"],
  "glm5-next": ["glm5_next"],
  qwen3next: ["qwen3_next"],
  qwen35moe: ["qwen3_5_moe"],
  qwen4exp: ["qwen4_exp"],
  phi3: ["phi3"],
  olmo2: ["olmo2", "olmo3"],
  olmoe: ["olmoe"],
  seed_oss: ["seed_oss"],
  smollm3: ["smollm3"],
  glm4: ["glm4"],
  granite: ["granite"],
  granitemoe: ["granitemoe"],
  cohere2: ["cohere2"],
  exaone4: ["exaone4", "exaone4_full"],
  gemma2: ["gemma2"],
  starcoder2: ["starcoder2"],
  stablelm: ["stablelm"],
  "hunyuan-dense": ["hunyuan_dense"],
  "hunyuan-moe": ["hunyuan_moe"],
  gemma4: ["gemma4", "gemma4_moe"],
  gemma3n: ["gemma3n"],
  dots1: ["dots1"],
  ernie4_5: ["ernie4_5"],
  "ernie4_5-moe": ["ernie4_5_moe"],
  qwen3vl: ["qwen3_vl"],
  nemotron: ["nemotron"],
  nemotron_h_moe: ["nemotron_h"],
  lfm2: ["lfm2"],
  lfm2moe: ["lfm2_moe"],
  granitehybrid: ["granite_hybrid"],
  "falcon-h1": ["falcon_h1"],
};

/** Names of the checkpoints whose architecture this version runs. */
export function tinyNames(): string[] {
  return ARCHITECTURES.flatMap((a) => a.names).flatMap((name) => TINY[name] ?? []);
}

/** The architecture a checkpoint becomes. */
export function tinyArchitecture(name: string): string {
  return Object.keys(TINY).find((arch) => TINY[arch].includes(name)) ?? "";
}

/** A prompt with what the released model's code gave for it. */
export interface TinyPrompt {
  readonly name: string;
  readonly ids: readonly number[];
  /** `[4, n_vocab]` */
  readonly last4: Float32Array;
  /** What follows greedily; empty where the reference has none. */
  readonly greedy: readonly number[];
  /** `[n - 1]` log-probability of the next token. */
  readonly next_logprob: readonly number[];
}

export function tinyPrompts(name: string): TinyPrompt[] {
  const folder = `${sharedDir}models/tiny/${name}/`;
  const reference = JSON.parse(Deno.readTextFileSync(`${folder}reference.json`));
  const bytes = Deno.readFileSync(`${folder}reference.f32`);
  // deno-lint-ignore no-explicit-any
  return reference.prompts.map((p: any) => ({
    name: p.name,
    ids: p.ids,
    last4: new Float32Array(bytes.buffer, p.logits_last4.offset, 4 * reference.vocab_size),
    greedy: p.greedy ?? [],
    next_logprob: p.next_logprob,
  }));
}

const made = new Map<string, Promise<string>>();

/** Path of a file that is made once. */
function once(name: string, make: (path: string) => Promise<unknown>): Promise<string> {
  const path = `${testFolder()}/${name}.gguf`;
  if (!made.has(name)) made.set(name, make(path).then(() => path));
  return made.get(name)!;
}

/** A tiny checkpoint as GGUF, every float tensor f32. */
export function tinyModel(name: string): Promise<string> {
  const options = { outtype: "f32" as const, dequantize: true };
  return once(`tiny-${name}`, (path) => prepare(`${sharedDir}models/tiny/${name}`, path, options));
}

/** Checkpoints that hold MXFP4 blocks, which `prepare` takes over as they are unless it is told to decode them. */
const MXFP4 = ["gpt_oss_mxfp4", "kimi_k3"];

/** A tiny checkpoint as GGUF with its blocks as they are. */
function tinyStored(name: string): Promise<string> {
  return once(`tiny-${name}-stored`, (path) => prepare(`${sharedDir}models/tiny/${name}`, path, { outtype: "f32" }));
}

export function tinyQuantized(name: string, type: "Q8_0" | "Q4_K_M"): Promise<string> {
  return once(`tiny-${name}-${type}`, async (path) => {
    using source = openGgufSource(await tinyModel(name));
    using opened = openBackend("cpu");
    await quantize(source, path, opened.backend, { fileType: parseFileType(type) });
  });
}

function familyModel(name: string): Promise<string> {
  return once(`family-${name}`, (path) => writeFamilyModel(path, FAMILY_MODELS[name]));
}

/** Prompt of a random model. */
export function familyPrompt(name: string, n = N_PROMPT): number[] {
  const next = random(1, `${name} prompt`);
  return Array.from({ length: n }, () => Math.floor(next() * N_VOCAB));
}

/** The largest difference of the last rows' logits. */
function worstOf(got: Float32Array, want: Float32Array): number {
  let worst = 0;
  const tail = got.subarray(got.length - want.length);
  for (let i = 0; i < want.length; i++) {
    const d = Math.abs(tail[i] - want[i]);
    worst = d > worst || Number.isNaN(d) ? d : worst;
  }
  return worst;
}

/**
 * The largest difference of each row's logits, ascending. Random networks have rows that magnify rounding, so their worst row says
 * less than their middle one: on a card kimi-k3's is 30 times as large.
 */
function rowErrors(got: Float32Array, want: Float32Array, n_row: number): number[] {
  const n = want.length / n_row;
  const row = (x: Float32Array, i: number) => x.subarray(i * n, (i + 1) * n);
  const errors = Array.from({ length: n_row }, (_, i) => worstOf(row(got, i), row(want, i)));
  return errors.map((e) => Number.isNaN(e) ? Infinity : e).sort((a, b) => a - b);
}

/** Logits and greedy ids of a tiny checkpoint's prompts. @returns the largest difference of a logit */
export async function checkTiny(engine: Engine, prompts: readonly TinyPrompt[]): Promise<number> {
  let worst = 0;
  for (const p of prompts) {
    using sequence = engine.createSequence();
    const targets = p.ids.map((_, i) => p.ids[i + 1] ?? -1);
    const [out] = await engine.step([{ sequence, tokens: p.ids, output: "all", want: "logits", targets }]);
    const error = worstOf(out.full!, p.last4);
    assert.ok(error <= TOLERANCE, `${p.name}: a logit differs by ${error}`);
    // The reference has whole rows of the last positions only, but a number of every one.
    p.next_logprob.forEach((x, i) => {
      const d = Math.abs(out.targetLogprob[i] - x);
      assert.ok(d <= TOLERANCE, `${p.name}: the log-probability of token ${i + 1} differs by ${d}`);
    });
    worst = Math.max(worst, error);
    const got: number[] = [];
    let id = out.ids[(p.ids.length - 1) * engine.topK];
    for (const _ of p.greedy) {
      got.push(id);
      const [next] = await engine.step([{ sequence, tokens: [id], output: "last" }]);
      id = next.ids[0];
    }
    assert.deepEqual(got, p.greedy, `${p.name}: greedy ids`);
  }
  return worst;
}

/** Mean negative log-likelihood of a prompt's tokens. */
export async function nll(path: string, name: string, ids: readonly number[]): Promise<number> {
  using opened = openBackend(name);
  return await withEngine(path, opened.backend, { device: opened.device.index, ...F32_CACHE }, async (engine) => {
    const { targetLogprob } = await wholePrompt(engine, ids);
    return -targetLogprob.subarray(0, ids.length - 1).reduce((a, b) => a + b, 0) / (ids.length - 1);
  });
}

/** Seven prompts of different lengths, most of which pass a page or a window. */
function seven(ids: readonly number[]): number[][] {
  return [150, 3, 70, 1, 128, 33, 64].map((n, i) => ids.slice(i, i + n));
}

/** f32, and q8_0 where every head is whole blocks of it, else f16. */
function cacheTypes(path: string): readonly CacheType[] {
  using file = openGguf(path);
  const { caches, ops } = buildProgram(bindModel(file), { n_tok: 1, n_out: 1, n_seq: 1, n_page: 1 }, 1, 0);
  const heads = ops.filter((op) => op.op === "ATTENTION").flatMap(({ params: [n_head_kv, , , ...p] }) =>
    [0, 5].filter((i) => p[i] !== NONE).flatMap((i) =>
      [p[i + 1], p[i + 2]].map((stream) => caches[p[i]].streams[stream].ne / n_head_kv)
    )
  );
  const rows = caches.flatMap((c) => c.streams).filter((s) => s.role !== "f32").map((s) => s.ne);
  return ["f32", [...heads, ...rows].every((n) => n % 32 === 0) ? "q8_0" : "f16"];
}

/** One pass, pieces and one token a step; alone and in a batch of 7; a fork: the same bits. */
export async function checkBits(path: string, opened: OpenedBackend, ids: readonly number[]): Promise<void> {
  const kept = { device: opened.device.index, n_ctx: 256, n_cache: 4096, n_seq: 9 };
  for (const cache of cacheTypes(path)) {
    await withEngine(path, opened.backend, { ...kept, cacheTypeK: cache, cacheTypeV: cache }, async (engine) => {
      await checkPromptSplits(engine, ids.slice(0, N_PROMPT), [1, 7, 64]);
      await checkBatch(engine, seven(ids), 2);
      await checkSnapshots(engine, ids.slice(0, N_PROMPT), [50, 128]);
    });
  }
}

/** What a random model's last row gives on the reference backend, as far as the golden keeps it. */
export interface FamilyGolden {
  /** The first logits of the last row. */
  readonly logits: number[];
  readonly greedy: number[];
}

export const FAMILY_GOLDENS_PATH = `${repoDir}tests/goldens/families.json`;

export async function familyGolden(name: string): Promise<FamilyGolden> {
  const opened = openBackend("reference"), ids = familyPrompt(name);
  return await withEngine(await familyModel(name), opened.backend, { n_ctx: 256, ...F32_CACHE }, async (engine) => {
    using sequence = engine.createSequence();
    const [out] = await engine.step([{ sequence, tokens: ids, output: "last", want: "logits" }]);
    const greedy: number[] = [];
    for (let id = out.ids[0]; greedy.length < 8;) {
      greedy.push(id);
      const [next] = await engine.step([{ sequence, tokens: [id], output: "last" }]);
      id = next.ids[0];
    }
    return { logits: Array.from(out.full!.subarray(0, 8), (x) => Number(x.toFixed(5))), greedy };
  });
}

/** Registers what needs nothing outside the repository for `--device name`. */
export function registerFamilyTests(name: string, options: { ignore?: boolean } = {}): void {
  const ignore = options.ignore ?? false;
  for (const model of Object.keys(FAMILY_MODELS)) {
    Deno.test({
      name: `${name}: a random ${model} as the reference; pieces, a batch of 7 and a fork by bits`,
      ignore,
      fn: async () => {
        const ids = familyPrompt(model), path = await familyModel(model);
        const engineOptions: EngineOptions = { n_ctx: 256, ...F32_CACHE };
        using reference = openBackend("reference");
        const want = await withEngine(path, reference.backend, engineOptions, (e) => wholePrompt(e, ids));
        using opened = openBackend(name);
        const device = opened.device.index;
        await withEngine(path, opened.backend, { device, ...engineOptions }, async (engine) => {
          const errors = rowErrors((await wholePrompt(engine, ids)).full!, want.full!, ids.length);
          const median = errors[errors.length >> 1], worst = errors[errors.length - 1];
          assert.ok(median <= TOLERANCE / 6, `half of the rows differ by ${median} or more`);
          assert.ok(worst <= 4 * TOLERANCE, `a logit differs by ${worst}`);
        });
        await checkBits(path, opened, ids);
      },
    });
  }
}

/** Registers the tiny checkpoints of ../shared for `--device name`. */
export function registerTinyTests(name: string, options: { ignore?: boolean } = {}): void {
  const ignore = (options.ignore ?? false) || sharedDir === undefined;
  if (sharedDir === undefined) console.error("tiny checkpoints: ignored: there is no ../shared beside the repository");
  for (const model of tinyNames()) {
    Deno.test({
      name: `${name}: tiny ${model} within ${TOLERANCE} of the released model's code, greedy ids equal`,
      ignore,
      fn: async () => {
        const prompts = tinyPrompts(model), only12 = name === "reference";
        using opened = openBackend(name);
        const device = opened.device.index;
        await withEngine(await tinyModel(model), opened.backend, { device, ...F32_CACHE }, async (engine) => {
          await checkTiny(engine, only12 ? prompts.filter((p) => p.name === "p12") : prompts);
        });
      },
    });
    if (name === "reference") continue;
    Deno.test({
      name: `${name}: tiny ${model} by bits: pieces, a batch of 7, a fork`,
      ignore,
      fn: async () => {
        const { ids } = tinyPrompts(model).at(-1)!, path = await tinyModel(model);
        using opened = openBackend(name);
        await checkBits(path, opened, ids);
      },
    });
    if (MXFP4.includes(model)) {
      Deno.test({
        name: `${name}: tiny ${model} with its MXFP4 blocks near its NLL in F32`,
        ignore,
        fn: async () => {
          const { ids } = tinyPrompts(model).find((p) => p.name === "p300")!, path = await tinyStored(model);
          using file = openGguf(path);
          assert.ok(file.tensors.some((t) => t.type.name === "mxfp4"), "no tensor is mxfp4");
          const whole = await nll(await tinyModel(model), name, ids), got = await nll(path, name, ids);
          assert.ok(Math.abs(got / whole - 1) <= 0.01, `NLL ${got}, in F32 ${whole}`);
        },
      });
    }
    Deno.test({
      name: `${name}: tiny ${model} in Q8_0 and in Q4_K_M near its NLL in F32`,
      ignore,
      fn: async () => {
        const { ids } = tinyPrompts(model).find((p) => p.name === "p300")!;
        const whole = await nll(await tinyModel(model), name, ids);
        for (const type of ["Q8_0", "Q4_K_M"] as const) {
          const share = (NLL_SHARES[model] ?? { Q8_0: 0.01, Q4_K_M: 0.05 })[type];
          const got = await nll(await tinyQuantized(model, type), name, ids);
          assert.ok(Math.abs(got / whole - 1) <= share, `${type}: NLL ${got}, in F32 ${whole}`);
        }
      },
    });
  }
}
