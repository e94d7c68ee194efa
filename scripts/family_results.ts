/**
 * Writes tests/results/families.json: for every tiny checkpoint of ../shared what its architecture reached on a device. README's
 * table of families is made from it.
 *
 *   deno run -A scripts/family_results.ts [--device cpu]
 * @module
 */
import { openBackend } from "../ffi/mod.ts";
import {
  checkBits,
  checkTiny,
  nll,
  tinyArchitecture,
  tinyModel,
  tinyNames,
  tinyPrompts,
  tinyQuantized,
  TOLERANCE,
} from "../tests/families.ts";
import { withEngine } from "../tests/logits_checks.ts";
import { repoDir, sharedDir } from "../tests/shared.ts";

if (!sharedDir) {
  console.error("there is no ../shared beside the repository: nothing to compare with");
  Deno.exit(1);
}
const at = Deno.args.indexOf("--device"), device = at < 0 ? "cpu" : Deno.args[at + 1];

interface FamilyResult {
  readonly architecture: string;
  /** Largest difference of a logit from the released model's code, over all prompts. */
  readonly logit_error?: number;
  readonly greedy_equal?: true;
  /** Pieces, batches and forks give the same bits. */
  readonly bits_equal?: true;
  /** NLL over that in F32, less 1. */
  readonly nll_q8_0?: number;
  readonly nll_q4_k_m?: number;
  /** What went wrong instead. */
  readonly problem?: string;
}

async function resultOf(name: string): Promise<FamilyResult> {
  const architecture = tinyArchitecture(name);
  try {
    const path = await tinyModel(name), prompts = tinyPrompts(name);
    using opened = openBackend(device);
    const cache = { cacheTypeK: "f32", cacheTypeV: "f32" } as const;
    const logit_error = await withEngine(
      path,
      opened.backend,
      { device: opened.device.index, ...cache },
      (engine) => checkTiny(engine, prompts),
    );
    const { ids } = prompts.find((p) => p.name === "p300")!;
    await checkBits(path, opened, ids);
    const whole = await nll(path, device, ids);
    const share = async (type: "Q8_0" | "Q4_K_M") =>
      Number((await nll(await tinyQuantized(name, type), device, ids) / whole - 1).toFixed(4));
    return {
      architecture,
      logit_error: Number(logit_error.toExponential(1)),
      greedy_equal: true,
      bits_equal: true,
      nll_q8_0: await share("Q8_0"),
      nll_q4_k_m: await share("Q4_K_M"),
    };
  } catch (error) {
    return { architecture, problem: (error as Error).message };
  }
}

const path = `${repoDir}tests/results/families.json`;
const known = await Deno.readTextFile(path).then(JSON.parse, () => ({ devices: {} }));
const checkpoints: Record<string, FamilyResult> = {};
for (const name of tinyNames()) {
  checkpoints[name] = await resultOf(name);
  console.error(`${name}: ${JSON.stringify(checkpoints[name])}`);
}
const results = {
  made_by: "scripts/family_results.ts, against ../shared/models/tiny",
  tolerance: TOLERANCE,
  devices: { ...known.devices, [device]: checkpoints },
};
Deno.mkdirSync(`${repoDir}tests/results`, { recursive: true });
Deno.writeTextFileSync(path, JSON.stringify(results, null, 1) + "\n");
console.error(`wrote ${path}`);
