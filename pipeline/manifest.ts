/**
 * What a pipeline made, for programs and for readers: files with size, hash, settings and figures, and a model card.
 * @module
 */
import type { Row } from "../eval/compare.ts";
import { estimateText } from "../eval/stats.ts";
import { type Recipe, typeName } from "./recipe.ts";
import type { FileMark } from "./state.ts";

/** A quantized model of a manifest. */
export interface ManifestModel {
  readonly name: string;
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  /** The recipe's entry that made it. */
  readonly made_by: unknown;
  /** Over all texts, against the original; absent without an eval. */
  readonly figures?: Row;
}

export interface Manifest {
  readonly schema: "bloomery.manifest/1";
  readonly name: string;
  readonly bloomery: string;
  readonly models: readonly ManifestModel[];
}

const fileName = (path: string) => path.split("/").at(-1)!;

/** @param mark Of a file, as its step left it. */
export function makeManifest(
  recipe: Recipe,
  version: string,
  models: ReadonlyMap<string, string>,
  mark: (path: string) => FileMark,
  figures: (name: string) => Row | undefined,
): Manifest {
  const made = new Map<string, unknown>([
    ...recipe.quantize.map((t) => [typeName(t), { quantize: t }] as const),
    ...recipe.splice.map((s) => [s.name, { splice: s }] as const),
  ]);
  return {
    schema: "bloomery.manifest/1",
    name: recipe.name,
    bloomery: version,
    models: [...models].map(([name, path]) => {
      const { size, sha256 } = mark(path), row = figures(name);
      return {
        name,
        file: fileName(path),
        bytes: size,
        sha256,
        made_by: made.get(name),
        ...(row === undefined ? {} : { figures: row }),
      };
    }),
  };
}

/** A value of the card's front matter: JSON is YAML. */
const yaml = (value: unknown) => JSON.stringify(value);

/** The card of a model hub, in Markdown. */
export function makeCard(recipe: Recipe, manifest: Manifest): string {
  const { license, base_model, language, tags, text } = recipe.card;
  const front = [
    ...license === undefined ? [] : [`license: ${yaml(license)}`],
    ...base_model === undefined ? [] : [`base_model: ${yaml(base_model)}`, "base_model_relation: quantized"],
    ...language.length === 0 ? [] : [`language: ${yaml(language)}`],
    `tags: ${yaml(["gguf", ...tags])}`,
  ];
  const evaluated = manifest.models.some((m) => m.figures !== undefined);
  const head = ["file", "MB", ...evaluated ? ["KL, nats", "same top-1, %", "ΔNLL, nats"] : [], "SHA-256"];
  const rows = manifest.models.map((m) => [
    m.file,
    (m.bytes / 1e6).toFixed(1),
    ...!evaluated ? [] : m.figures === undefined ? ["", "", ""] : [
      estimateText(m.figures.kl, 5),
      estimateText(m.figures.same_top, 2, 100),
      estimateText(m.figures.delta_nll, 5),
    ],
    `\`${m.sha256.slice(0, 16)}…\``,
  ]);
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [
    "---",
    ...front,
    "---",
    `# ${manifest.name}, quantized`,
    "",
    ...text === undefined ? [] : [text, ""],
    line(head),
    line(head.map((_, i) => i === 0 || i === head.length - 1 ? "---" : "---:")),
    ...rows.map(line),
    "",
    ...evaluated ? ["Against the original, on the texts of the recipe; ± is the standard error over windows.", ""] : [],
    `Made with bloomery ${manifest.bloomery}. Whole hashes and settings are in manifest.json.`,
    "",
  ].join("\n");
}
