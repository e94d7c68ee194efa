/**
 * Prints the README's table of families from tests/results/families.json (scripts/family_results.ts): one row an architecture, the
 * worst of its checkpoints; then those that only random models hold, and those that are refused.
 *
 *   deno run -A scripts/family_table.ts
 * @module
 */
import { ARCHITECTURES } from "../core/arch/mod.ts";
import { UNPUBLISHED } from "../core/arch/unpublished.ts";
import { FAMILY_MODELS } from "../tests/family_models.ts";
import { PEER_LOGITS_PATH } from "../tests/peer_models.ts";
import { repoDir } from "../tests/shared.ts";

/** Checkpoints whose layout nobody has released. */
const ASSUMED: readonly string[] = ["kimi_k31"];

interface Result {
  readonly architecture: string;
  readonly logit_error?: number;
  readonly nll_q8_0?: number;
  readonly nll_q4_k_m?: number;
  readonly problem?: string;
}

const { devices }: { devices: Record<string, Record<string, Result>> } = JSON.parse(
  Deno.readTextFileSync(`${repoDir}tests/results/families.json`),
);
const names = Object.keys(devices);
const architectures = [...new Set(Object.values(devices).flatMap((d) => Object.values(d).map((r) => r.architecture)))];

/** The checkpoints of an architecture on a device. */
function resultsOf(device: string, architecture: string): [name: string, result: Result][] {
  return Object.entries(devices[device]).filter(([, r]) => r.architecture === architecture);
}

/** The largest of a figure, or what stands in for it. */
function worst(results: readonly [string, Result][], key: "logit_error" | "nll_q8_0" | "nll_q4_k_m"): string {
  if (results.length === 0) return "not run";
  const broken = results.find(([, r]) => r.problem !== undefined);
  if (broken) return `${broken[0]} fails`;
  const most = Math.max(...results.map(([, r]) => Math.abs(r[key] ?? NaN)));
  return key === "logit_error" ? most.toExponential(1) : `${(100 * most).toFixed(1)} %`;
}

const errors = names.map((n) => `logit error, ${n}`);
console.log(`| architecture | checked against | ${errors.join(" | ")} | NLL, Q8_0 | NLL, Q4_K_M |`);
console.log(`| --- | --- | ${names.map(() => "---").join(" | ")} | --- | --- |`);
for (const a of architectures) {
  const all = names.map((n) => resultsOf(n, a)), checkpoints = [...new Set(all.flat().map(([name]) => name))];
  const cells = [
    `\`${a}\``,
    checkpoints.map((c) => ASSUMED.includes(c) ? `${c} (an assumption)` : c).join(", "),
    ...all.map((r) => worst(r, "logit_error")),
    worst(all.flat(), "nll_q8_0"),
    worst(all.flat(), "nll_q4_k_m"),
  ];
  console.log(`| ${cells.join(" | ")} |`);
}
const others = ["–", "–", ...names.map(() => "–")].join(" | ");
const modelled = new Set(Object.values(FAMILY_MODELS).map((m) => m.arch));
const random = ARCHITECTURES.flatMap((a) => a.names).filter((n) => modelled.has(n) && !architectures.includes(n));
const list = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(", ");
const peer: { models: Record<string, unknown> } = JSON.parse(Deno.readTextFileSync(PEER_LOGITS_PATH));
const asPeer = new Set(Object.keys(peer.models).map((name) => FAMILY_MODELS[name].arch));
const [compared, alone] = [random.filter((n) => asPeer.has(n)), random.filter((n) => !asPeer.has(n))];
console.log(`| ${list(compared)} | random models, logits of llama.cpp | ${others} |`);
if (alone.length > 0) console.log(`| ${list(alone)} | random models | ${others} |`);
for (const { family } of UNPUBLISHED) {
  console.log(`| ${family} | refused: nothing public says how it computes | ${others} |`);
}
