/**
 * What the tables of docs/quality.md share: the two small models, the texts, and the comparison of a file with its original.
 *
 * Models, texts and importance are those of ../shared where it is; without it bloom-nano alone, on two short texts and without
 * importance.
 * @module
 */
import { compareModels, summarize, type WindowResult } from "../eval/compare.ts";
import { inGroups } from "../eval/score.ts";
import { estimateText } from "../eval/stats.ts";
import { cutWindows, type Window } from "../eval/windows.ts";
import { type OpenedModel, openModel } from "../ffi/mod.ts";
import { prepare } from "../quantize/prepare/mod.ts";
import { repoDir, sharedDir } from "../tests/shared.ts";

const N_WINDOW = 512, AT_ONCE = 8;

/** A model whose quantizations are compared with it. */
export interface QualityModel {
  readonly name: string;
  /** Path of the BF16 file. */
  readonly original: string;
  readonly base: OpenedModel;
  readonly windows: readonly Window[];
  /** Path of the importance matrix, where there is one. */
  readonly imatrix: string | undefined;
}

/** Paths of the texts. */
export const texts: readonly string[] = sharedDir === undefined
  ? ["prose", "code"].map((name) => `${repoDir}tests/goldens/perplexity/${name}.txt`)
  : ["english", "korean", "code"].map((name) => `${sharedDir}eval-text/${name}.txt`);

const checkpoints = sharedDir === undefined
  ? [`${repoDir}models/bloom-nano`]
  : ["bloom-nano", "bloom-nano-moe"].map((name) => `${sharedDir}models/${name}`);

const options = (device: string) => ({ device, n_ctx: N_WINDOW, n_seq: AT_ONCE, n_cache: N_WINDOW * 4, topK: 1 });

/** The models, one after the other; each is closed before the next. @param windows The first windows of each text that are run. */
export async function* qualityModels(
  dir: string,
  windows: number,
  device: string,
  only?: readonly string[],
): AsyncGenerator<QualityModel> {
  for (const checkpoint of checkpoints) {
    const name = checkpoint.split("/").at(-1)!;
    if (only && !only.includes(name)) continue;
    const original = `${dir}/${name}-bf16.gguf`;
    await prepare(checkpoint, original, { outtype: "bf16" });
    using base = await openModel(original, options(device));
    const sources = texts.map((path) => ({ name: path.split("/").at(-1)!, text: Deno.readTextFileSync(path) }));
    const some = cutWindows(sources, base.model.tokenizer, { n_window: N_WINDOW, skip: 0 }).filter((w) =>
      w.index < windows
    );
    yield {
      name,
      original,
      base,
      windows: some,
      imatrix: sharedDir === undefined ? undefined : `${sharedDir}models/reference/${name}/imatrix.gguf`,
    };
  }
}

/** Compares a file with its original, window by window. */
export async function compareFile(path: string, model: QualityModel, device: string): Promise<WindowResult[]> {
  const results: WindowResult[] = [];
  using opened = await openModel(path, options(device));
  const { engine } = opened.model;
  for (const group of inGroups(model.windows, { n_seq: AT_ONCE, n_ubatch: engine.n_ubatch })) {
    results.push(...await compareModels(opened.backend, engine, model.base.model.engine, group));
  }
  return results;
}

/** Megabytes of a file. */
export function megabytes(path: string): string {
  return (Deno.statSync(path).size / 1e6).toFixed(2);
}

/** KL, top-1 agreement and difference of NLL as cells of a table. */
export function figures(results: readonly WindowResult[]): string[] {
  const row = summarize(results).at(-1)!;
  return [estimateText(row.kl, 5), estimateText(row.same_top, 2, 100), estimateText(row.delta_nll, 5)];
}
