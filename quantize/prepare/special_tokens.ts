/**
 * Special token ids, flags, chat templates and normalizer switches of a checkpoint, in the order in which llama.cpp's
 * converter finds and writes them: first what `tokenizer.json` and `tokenizer_config.json` say, then `config.json`.
 * @module
 */
import { type GgufValue, ggufValue, type Metadata } from "../../core/gguf/metadata.ts";

type Json = Record<string, unknown>;
const isObject = (v: unknown): v is Json => typeof v === "object" && v !== null && !Array.isArray(v);
const objects = (v: unknown): Json[] => Array.isArray(v) ? v.filter(isObject) : [];
const text = (v: unknown): string | undefined => typeof v === "string" ? v : undefined;

/** Where files of the checkpoint come from; `undefined` for one that is not there. */
export interface CheckpointFiles {
  json(name: string): unknown;
  text(name: string): string | undefined;
}

/** Key in the file by kind; a kind without one (`cls`) is looked up and not written. */
const ID_KEYS: Readonly<Record<string, string>> = {
  bos: "bos_token_id",
  eos: "eos_token_id",
  unk: "unknown_token_id",
  sep: "seperator_token_id",
  pad: "padding_token_id",
  mask: "mask_token_id",
  eot: "eot_token_id",
  eom: "eom_token_id",
};

const specialToken = (part: unknown): string | undefined =>
  isObject(part) && isObject(part["SpecialToken"]) ? text(part["SpecialToken"]["id"]) : undefined;
const sequence = (part: unknown): string | undefined =>
  isObject(part) && isObject(part["Sequence"]) ? text(part["Sequence"]["id"]) : undefined;

export class SpecialTokens {
  /** By kind, in the order found. */
  readonly ids = new Map<string, number>();
  /** `add_<kind>_token`, in the order found. */
  readonly add = new Map<string, boolean>();
  chatTemplate: string | Json[] | undefined;
  readonly normalizer = new Map<"nfc" | "lowercase" | "strip_accents", boolean>();
  #kinds = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];

  /**
   * @param n_vocab Ids from there on are ignored; no limit where left out.
   * @param kinds Other kinds than the usual ones.
   */
  constructor(files: CheckpointFiles, readonly n_vocab: number = Infinity, kinds?: readonly string[]) {
    if (kinds) this.#kinds = [...kinds];
    const tokenizer = files.json("tokenizer.json");
    const config = files.json("tokenizer_config.json");
    const tokenizerConfig = isObject(config) ? { ...config } : undefined;
    if (isObject(tokenizer)) {
      this.#parseNormalizer(tokenizer["normalizer"]);
      this.#parsePostProcessor(tokenizer["post_processor"], tokenizerConfig);
    }
    if (tokenizerConfig) {
      this.#parseTemplates(files, tokenizerConfig);
      this.#parseIds(tokenizerConfig, isObject(tokenizer) ? objects(tokenizer["added_tokens"]) : []);
    }
    const model = files.json("config.json");
    if (isObject(model)) this.#parseModelConfig(model);
  }

  /** Gives a kind an id unless it has one. */
  set(kind: string, id: unknown): void {
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id >= this.n_vocab || this.ids.has(kind)) return;
    this.ids.set(kind, id);
  }

  #parseNormalizer(n: unknown): void {
    if (!isObject(n)) return;
    switch (n["type"]) {
      case "Lowercase":
        this.normalizer.set("lowercase", true);
        break;
      case "NFC":
        this.normalizer.set("nfc", true);
        break;
      case "StripAccents":
        this.normalizer.set("strip_accents", true);
        break;
      case "BertNormalizer":
        for (const field of ["lowercase", "strip_accents"] as const) {
          if (typeof n[field] === "boolean") this.normalizer.set(field, n[field]);
        }
        break;
      case "Sequence":
        for (const part of objects(n["normalizers"])) this.#parseNormalizer(part);
    }
  }

  /** What is added around a text follows from the post-processor, where it is one of the simple kinds. */
  #parsePostProcessor(post: unknown, config: Json | undefined): void {
    const set = (field: string, value: string | undefined) => {
      if (config && value !== undefined) config[field] = value;
    };
    if (config && !config["bos_token"]) set("bos_token", text(config["cls_token"]));
    if (config && !config["eos_token"]) set("eos_token", text(config["sep_token"]));
    let bos = text(config?.["bos_token"]);
    let cls = text(config?.["cls_token"]);
    let eos = text(config?.["eos_token"]);
    const sep = text(config?.["sep_token"]);
    if (!isObject(post)) return;
    for (const p of post["type"] === "Sequence" ? objects(post["processors"]) : [post]) {
      if (p["type"] === "ByteLevel") {
        for (const kind of ["bos", "eos"]) if (!this.add.has(kind)) this.add.set(kind, false);
      } else if (p["type"] === "RobertaProcessing") {
        for (const kind of ["bos", "eos", "sep"]) this.add.set(kind, true);
        if (!cls) set("cls_token", cls = Array.isArray(p["cls"]) ? text(p["cls"][0]) : bos);
        if (!sep) set("sep_token", Array.isArray(p["sep"]) ? text(p["sep"][0]) : eos);
      } else if (p["type"] === "TemplateProcessing") {
        const single = objects(p["single"]);
        const first = single.length > 1 ? specialToken(single[0]) : undefined;
        const last = single.length > 1 ? specialToken(single.at(-1)) : undefined;
        if (first !== undefined) {
          if (!config) bos = first;
          else if (first !== bos && first !== cls) {
            if (!bos) set("bos_token", bos = first);
            if (!cls) set("cls_token", cls = first);
          }
          this.add.set("bos", first === bos || first === cls);
        }
        if (last !== undefined) {
          if (config && last !== eos) {
            const spare = ["eot", "eom"].find((k) => !this.#kinds.includes(k));
            if (spare) {
              this.#kinds.push(spare);
              set(`${spare}_token`, eos);
            }
            set("eos_token", last);
          }
          eos = last;
          this.add.set("eos", true);
        }
        const pair = objects(p["pair"]);
        const start = first !== undefined && specialToken(pair[0]) === first ? 1 : 0;
        const stop = last !== undefined && specialToken(pair.at(-1)) === last ? pair.length - 1 : pair.length;
        const middle = pair.slice(start, stop);
        if (sequence(middle[0]) === "A" && sequence(middle.at(-1)) === "B" && middle.length > 2) {
          const between = middle.slice(1, -1).map(specialToken);
          const isSep = (t: string | undefined) => t !== undefined && (t === sep || t === eos);
          const addSep = (isSep(between[0]) && last === undefined) || (between.length === 2 && isSep(between[1]));
          this.add.set("sep", addSep);
          if (addSep && !sep) set("sep_token", eos);
        }
      }
    }
  }

  #parseTemplates(files: CheckpointFiles, config: Json): void {
    const given = config["chat_template"];
    if (given !== undefined && given !== null) {
      this.chatTemplate = typeof given === "string" ? given : objects(given);
      return;
    }
    const jinja = files.text("chat_template.jinja")?.replaceAll(/\r\n?/g, "\n");
    const old = jinja === undefined ? files.json("chat_template.json") : undefined;
    this.chatTemplate = jinja ?? (isObject(old) ? text(old["chat_template"]) : undefined);
  }

  #parseIds(config: Json, added: readonly Json[]): void {
    for (const kind of this.#kinds) {
      const add = config[`add_${kind}_token`];
      if (typeof add === "boolean" && !this.add.has(kind)) this.add.set(kind, add);
      const entry = config[`${kind}_token`];
      const content = isObject(entry) ? text(entry["content"]) : text(entry);
      if (content !== undefined) this.set(kind, added.find((t) => t["content"] === content)?.["id"]);
    }
  }

  #parseModelConfig(config: Json): void {
    const nested = isObject(config["text_config"]) ? config["text_config"] : {};
    for (const kind of this.#kinds) {
      const field = `${kind}_token_id`;
      this.set(kind, config[field] ?? nested[field]);
    }
  }

  /** Writes ids, flags, templates and normalizer switches. */
  write(metadata: Metadata): void {
    const put = (key: string, value: GgufValue) => metadata.set(`tokenizer.${key}`, value);
    for (const [kind, id] of this.ids) {
      const key = ID_KEYS[kind];
      if (key !== undefined) put(`ggml.${key}`, ggufValue.u32(id));
    }
    for (const [kind, on] of this.add) {
      if (["bos", "eos", "sep"].includes(kind)) put(`ggml.add_${kind}_token`, ggufValue.bool(on));
    }
    writeTemplates(metadata, this.chatTemplate);
    for (const [field, on] of this.normalizer) put(`ggml.normalizer.${field}`, ggufValue.bool(on));
  }
}

/** One template, or several by name of which `default` is the one used. */
function writeTemplates(metadata: Metadata, templates: string | Json[] | undefined): void {
  if (templates === undefined) return;
  let main = typeof templates === "string" ? templates : undefined;
  if (typeof templates !== "string") {
    const names = new Set<string>();
    for (const t of templates) {
      const name = (text(t["name"]) ?? "").replaceAll(/[^A-Za-z0-9]/g, "_");
      const template = text(t["template"]);
      if (name === "" || template === undefined) continue;
      if (name === "default") main = template;
      else {
        names.add(name);
        metadata.set(`tokenizer.chat_template.${name}`, ggufValue.str(template));
      }
    }
    if (names.size > 0) metadata.set("tokenizer.chat_templates", ggufValue.strs(names));
  }
  if (main !== undefined) metadata.set("tokenizer.chat_template", ggufValue.str(main));
}
