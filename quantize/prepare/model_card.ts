/**
 * `general.*`: a model's author, name and sampling defaults, from the model card, the configuration
 * files and the folder's name, as llama.cpp's converter collects it.
 * @module
 */
import { type GgufValue, ggufValue, type Metadata } from "../../core/gguf/metadata.ts";
import { frontMatter, type Yaml } from "./front_matter.ts";
import { nameParts, titleOf } from "./model_name.ts";

/** Files of the checkpoint's folder; undefined for one that is not there. */
export interface CardFiles {
  json(name: string): unknown;
  text(name: string): string | undefined;
}

type Json = Record<string, unknown>;
type Entry = Record<string, string>;

/** Fields of the card by the field they fill; the first one present counts. */
const CARD_FIELDS: readonly (readonly [to: string, from: readonly string[]])[] = [
  ["name", ["name", "model_name"]],
  ["author", ["author", "model_author", "model_creator"]],
  ["version", ["version", "model_version"]],
  ["organization", ["organization", "model_organization"]],
  ["description", ["description", "model_description"]],
  ["finetune", ["finetune", "model_finetune"]],
  ["basename", ["basename", "model_basename", "model_type"]],
  ["size_label", ["size_label", "model_size_label"]],
  ["source.url", ["url", "model_url"]],
  ["source.doi", ["doi", "model_doi"]],
  ["source.uuid", ["uuid", "model_uuid"]],
  ["source.repo_url", ["repo_url", "model_repo_url"]],
  ["license", ["license"]],
  ["license.name", ["license_name"]],
  ["license.link", ["license_link"]],
];

/** Texts in the order they are written. */
const WRITTEN = [
  "name",
  "author",
  "version",
  "organization",
  "finetune",
  "basename",
  "description",
  "quantized_by",
  "size_label",
  "license",
  "license.name",
  "license.link",
  "url",
  "doi",
  "uuid",
  "repo_url",
  "source.url",
  "source.doi",
  "source.uuid",
  "source.repo_url",
];

const ENTRY_FIELDS = ["name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url"];

const SAMPLING: readonly (readonly [key: string, make: (n: number) => GgufValue, ...from: string[]])[] = [
  ["top_k", ggufValue.i32, "top_k"],
  ["top_p", ggufValue.f32, "top_p"],
  ["min_p", ggufValue.f32, "min_p"],
  ["xtc_probability", ggufValue.f32, "xtc_probability"],
  ["xtc_threshold", ggufValue.f32, "xtc_threshold"],
  ["temp", ggufValue.f32, "temperature"],
  ["penalty_last_n", ggufValue.i32, "penalty_last_n"],
  ["penalty_repeat", ggufValue.f32, "penalty_repeat", "repetition_penalty"],
  ["mirostat", ggufValue.i32, "mirostat"],
  ["mirostat_tau", ggufValue.f32, "mirostat_tau"],
  ["mirostat_eta", ggufValue.f32, "mirostat_eta"],
];

const asText = (v: Yaml): string | undefined =>
  typeof v === "string" ? v : Array.isArray(v) ? v.filter((x) => typeof x === "string").join(",") : undefined;

const texts = (v: Yaml | undefined): string[] =>
  typeof v === "string" ? [v] : Array.isArray(v) ? v.filter((x) => typeof x === "string") : [];

/** A parent model or data set named in a card, taken apart. */
function entryOf(id: Yaml, n_param: number): Entry {
  if (typeof id === "object" && id !== null && !Array.isArray(id)) {
    return Object.fromEntries(Object.entries(id).filter((e): e is [string, string] => typeof e[1] === "string"));
  }
  if (typeof id !== "string") return {};
  const isUrl = /^(https?|ssh):\/\//.test(id);
  const hub = isUrl ? /^https?:\/\/huggingface\.co\/([^/]+\/[^/]+)$/.exec(id)?.[1] : id;
  const p = hub === undefined ? {} : nameParts(hub, n_param);
  const repo = isUrl ? id : p.organization && p.name ? `https://huggingface.co/${p.organization}/${p.name}` : undefined;
  return {
    ...(p.name ? { name: titleOf(p.name) } : {}),
    ...(p.organization ? { organization: titleOf(p.organization) } : {}),
    ...(p.version ? { version: p.version } : {}),
    ...(repo ? { repo_url: repo } : {}),
  };
}

function entriesOf(card: Record<string, Yaml>, names: readonly string[], n_param: number): Entry[] | undefined {
  const name = names.find((n) => n in card);
  if (name === undefined) return undefined;
  const value = card[name];
  const list = typeof value === "string" ? [value] : Array.isArray(value) ? value : [];
  return list.map((id) => entryOf(id, n_param));
}

export interface GeneralOptions {
  /** Name of the checkpoint's folder. */
  readonly folder: string;
  /** Overrides `general.name`. */
  readonly modelName?: string | undefined;
  readonly n_param: number;
  /** Used where no name tells a size. */
  readonly sizeLabel: string | undefined;
}

/** Writes `general.*` from the sampling defaults to the languages; architecture and type are written before. */
export function writeGeneral(metadata: Metadata, files: CardFiles, options: GeneralOptions): void {
  const card = frontMatter(files.text("README.md") ?? "");
  const config = (files.json("config.json") ?? {}) as Json;
  let generation: Json = {};
  try {
    generation = (files.json("generation_config.json") ?? {}) as Json;
  } catch {
    // Broken generation defaults are no reason to refuse weights.
  }

  const fields = new Map<string, string>();
  const fill = (field: string, value: string | undefined) => {
    if (value !== undefined && !fields.has(field)) fields.set(field, value);
  };
  for (const [to, from] of CARD_FIELDS) {
    for (const name of from) if (name in card) fill(to, asText(card[name]));
  }
  const ids = [config["_name_or_path"], options.folder].filter((id): id is string => typeof id === "string");
  for (const id of ids) {
    if (id === config["_name_or_path"] && id.split("/").length > 2) continue; // a path, not a name
    const p = nameParts(id, options.n_param);
    fill("name", p.name === undefined ? undefined : titleOf(p.name));
    fill("organization", p.organization === undefined ? undefined : titleOf(p.organization));
    for (const field of ["basename", "finetune", "version", "size_label"] as const) fill(field, p[field]);
  }
  if (options.modelName !== undefined) fields.set("name", options.modelName);
  fill("name", options.folder);
  fill("size_label", options.sizeLabel);

  const put = (key: string, value: GgufValue) => metadata.set(`general.${key}`, value);
  if (typeof generation["sequence"] === "string") put("sampling.sequence", ggufValue.str(generation["sequence"]));
  for (const [key, make, ...from] of SAMPLING) {
    const value = from.map((f) => generation[f]).find((v) => v !== undefined && v !== null);
    if (typeof value === "number") put(`sampling.${key}`, make(value));
  }
  for (const field of WRITTEN) {
    const value = fields.get(field);
    if (value !== undefined) put(field, ggufValue.str(value));
  }
  const lists: readonly (readonly [string, readonly string[]])[] = [
    ["base_model", ["base_model", "base_models", "base_model_sources"]],
    ["dataset", ["datasets", "dataset", "dataset_sources"]],
  ];
  for (const [key, names] of lists) {
    const entries = entriesOf(card, names, options.n_param);
    if (entries === undefined) continue;
    put(`${key}.count`, ggufValue.u32(entries.length));
    entries.forEach((entry, i) => {
      for (const field of ENTRY_FIELDS) {
        if (field in entry) put(`${key}.${i}.${field}`, ggufValue.str(entry[field]));
      }
    });
  }
  const tags = [...texts(card["tags"]), ...texts(card["pipeline_tag"])];
  if (card["tags"] != null || card["pipeline_tag"] != null) put("tags", ggufValue.strs(tags));
  const languages = [...texts(card["languages"]), ...texts(card["language"])];
  if (card["languages"] != null || card["language"] != null) put("languages", ggufValue.strs(languages));
}
