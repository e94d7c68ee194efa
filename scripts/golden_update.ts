/**
 * `deno task golden:update`: rewrites `tests/goldens/reference/bloom-nano.json.gz` from the raw reference outputs, where they lie
 * beside the repository. The raw outputs come from transformers 5.17 in float32 (`shared/models/README.md` says how).
 * @module
 */
import { gzipSync } from "node:zlib";
import { repoDir, sharedDir } from "../tests/shared.ts";

if (!sharedDir) {
  console.error("there is no ../shared beside the repository: nothing to update from");
  Deno.exit(1);
}

/** Prompts kept whole enough to test with: short ones, one of each kind. */
const PROMPTS = ["chat_plain", "chat_thinking", "english", "korean", "code"];

interface ArrayInfo {
  readonly shape: number[];
  readonly offset: number;
}

const from = `${sharedDir}models/reference/bloom-nano/`;
const all = JSON.parse(Deno.readTextFileSync(`${from}prompts.json`));
const prompts: Record<string, unknown> = {};
for (const name of PROMPTS) {
  const p = all[name];
  const bin = Deno.readFileSync(from + p.file);
  const floats = (key: string) => {
    const { shape, offset } = p.arrays[key] as ArrayInfo;
    return new Float32Array(bin.buffer.slice(offset, offset + 4 * shape.reduce((a, b) => a * b, 1)));
  };
  const logits = floats("logits_last8");
  const n_vocab = p.arrays.logits_last8.shape[1];
  prompts[name] = {
    ids: p.ids,
    ...(p.messages ? { messages: p.messages, template_kwargs: p.template_kwargs } : {}),
    next_logprob: Array.from(floats("next_logprob"), (x) => Math.round(x * 1e6) / 1e6),
    logits_last: Array.from(logits.subarray(logits.length - n_vocab), (x) => Math.round(x * 1e5) / 1e5),
    greedy_ids: p.greedy_ids,
    greedy_first_stop: p.greedy_first_stop,
    greedy_margins: p.greedy_margins,
  };
}
const out = {
  made_by:
    "scripts/golden_update.ts from models/reference/bloom-nano: transformers 5.17, torch 2.11, float32, eager attention",
  tolerance: "2e-3 absolute on logits",
  prompts,
};
Deno.mkdirSync(`${repoDir}tests/goldens/reference`, { recursive: true });
const path = `${repoDir}tests/goldens/reference/bloom-nano.json.gz`;
Deno.writeFileSync(path, gzipSync(JSON.stringify(out), { level: 9 }));
console.log(`${path}: ${Deno.statSync(path).size} bytes`);
