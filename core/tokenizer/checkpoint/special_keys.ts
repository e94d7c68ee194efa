/**
 * The keys of a GGUF vocabulary that say which tokens are special, whether they are added, how chats are written and how
 * text is normalised; from `tokenizer.json`, `tokenizer_config.json`, `config.json` and the template files, in the order
 * and with the preferences of llama.cpp's converter.
 * @module
 */

import { type GgufValue, ggufValue } from "../../gguf/metadata.ts";
import { addedTokens, type CheckpointFiles, isObject, type JsonObject, jsonObject, tokenText } from "./files.ts";

type Entry = readonly [key: string, value: GgufValue];

/** Kinds of special tokens in the order they are looked for; eot and eom join when a template shifts eos. */
const KINDS = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];

/** Key of a kind's id. A cls id has none. */
const ID_KEYS: Record<string, string> = {
  bos: "bos_token_id",
  eos: "eos_token_id",
  unk: "unknown_token_id",
  sep: "seperator_token_id",
  pad: "padding_token_id",
  mask: "mask_token_id",
  eot: "eot_token_id",
  eom: "eom_token_id",
  fim_pre: "fim_pre_token_id",
  fim_suf: "fim_suf_token_id",
  fim_mid: "fim_mid_token_id",
  prefix: "prefix_token_id",
  suffix: "suffix_token_id",
  middle: "middle_token_id",
};

/** Kinds that have an `add_<kind>_token` key. */
const ADD_KINDS: ReadonlySet<string> = new Set(["bos", "eos", "sep"]);

export class SpecialKeys {
  private readonly ids = new Map<string, number>();
  private readonly adds = new Map<string, boolean>();
  private readonly normalizer = new Map<string, boolean>();
  private readonly kinds = [...KINDS];
  private template: string | readonly { name: string; template: string }[] | undefined;

  /** @param n_vocab Ids from here on are dropped; undefined: none. */
  constructor(
    files: CheckpointFiles,
    private readonly n_vocab: number | undefined,
    private readonly warnings: string[],
  ) {
    const tokenizer = jsonObject(files, "tokenizer.json");
    const given = jsonObject(files, "tokenizer_config.json");
    if (tokenizer) this.readNormalizer(tokenizer.normalizer);
    const texts = new SpecialTexts(given);
    if (tokenizer) this.readPostProcessor(tokenizer.post_processor, texts);
    if (given) this.readConfig(files, given, texts, tokenizer ? addedTokens(tokenizer) : []);
    this.readModelConfig(jsonObject(files, "config.json"));
  }

  /** Names an id of a kind that has none yet. */
  setId(kind: string, id: unknown): void {
    if (!Number.isSafeInteger(id) || this.ids.has(kind)) return;
    if ((id as number) < 0 || (this.n_vocab !== undefined && (id as number) >= this.n_vocab)) {
      this.warnings.push(`${kind} token ${id} is no token of the vocabulary: left out`);
      return;
    }
    this.ids.set(kind, id as number);
  }

  /** Names an id whatever was found. */
  overrideId(kind: string, id: number): void {
    this.ids.set(kind, id);
  }

  dropTemplate(): void {
    this.template = undefined;
  }

  /** All keys, in the order they are written. */
  entries(): Entry[] {
    const entries: Entry[] = [];
    for (const [kind, id] of this.ids) {
      if (ID_KEYS[kind]) entries.push([`tokenizer.ggml.${ID_KEYS[kind]}`, ggufValue.u32(id)]);
    }
    for (const [kind, value] of this.adds) {
      if (ADD_KINDS.has(kind)) entries.push([`tokenizer.ggml.add_${kind}_token`, ggufValue.bool(value)]);
    }
    entries.push(...templateEntries(this.template));
    for (const name of ["nfc", "lowercase", "strip_accents"]) {
      const value = this.normalizer.get(name);
      if (value !== undefined) entries.push([`tokenizer.ggml.normalizer.${name}`, ggufValue.bool(value)]);
    }
    return entries;
  }

  private readNormalizer(normalizer: unknown): void {
    if (!isObject(normalizer)) return;
    switch (normalizer.type) {
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
        for (const name of ["lowercase", "strip_accents"]) {
          if (typeof normalizer[name] === "boolean") this.normalizer.set(name, normalizer[name]);
          else if (name in normalizer) this.normalizer.delete(name);
        }
        break;
      case "Sequence":
        if (Array.isArray(normalizer.normalizers)) normalizer.normalizers.forEach((n) => this.readNormalizer(n));
    }
  }

  private readPostProcessor(processor: unknown, texts: SpecialTexts): void {
    if (!isObject(processor)) return;
    for (const part of Array.isArray(processor.processors) ? processor.processors : [processor]) {
      if (!isObject(part)) continue;
      if (part.type === "ByteLevel") {
        for (const kind of ["bos", "eos"]) if (!this.adds.has(kind)) this.adds.set(kind, false);
      } else if (part.type === "RobertaProcessing") {
        for (const kind of ["bos", "eos", "sep"]) this.adds.set(kind, true);
        texts.setMissing("cls", Array.isArray(part.cls) ? part.cls[0] : texts.get("bos"));
        texts.setMissing("sep", Array.isArray(part.sep) ? part.sep[0] : texts.get("eos"));
      } else if (part.type === "TemplateProcessing") this.readTemplate(part, texts);
    }
  }

  /** `single` says what stands around one text, `pair` what stands between two. */
  private readTemplate(part: JsonObject, texts: SpecialTexts): void {
    const single = Array.isArray(part.single) ? part.single : [];
    const first = single.length > 1 ? specialOf(single[0]) : undefined;
    const last = single.length > 1 ? specialOf(single[single.length - 1]) : undefined;
    if (first !== undefined) {
      const isKnown = first === texts.get("bos") || first === texts.get("cls");
      if (!isKnown) {
        texts.setMissing("bos", first);
        texts.setMissing("cls", first);
      }
      this.adds.set("bos", first === texts.get("bos") || first === texts.get("cls"));
    }
    if (last !== undefined) {
      if (texts.isGiven && last !== texts.get("eos")) {
        // the template's token ends a text; what the config calls eos then ends a turn
        const turn = ["eot", "eom"].find((kind) => !this.kinds.includes(kind));
        if (turn) {
          this.kinds.push(turn);
          texts.set(turn, texts.get("eos"));
        }
      }
      texts.set("eos", last);
      this.adds.set("eos", true);
    }
    const pair = Array.isArray(part.pair) ? part.pair : [];
    const from = first !== undefined && specialOf(pair[0]) === first ? 1 : 0;
    const to = last !== undefined && specialOf(pair[pair.length - 1]) === last ? pair.length - 1 : pair.length;
    const middle = pair.slice(from, to);
    if (middle.length < 3 || sequenceOf(middle[0]) !== "A" || sequenceOf(middle[middle.length - 1]) !== "B") return;
    const isSeparator = (entry: unknown) => {
      const text = specialOf(entry);
      return text !== undefined && (text === texts.get("sep") || text === texts.get("eos"));
    };
    const between = middle.slice(1, -1);
    const addSep = (isSeparator(between[0]) && last === undefined) || (between.length === 2 && isSeparator(between[1]));
    this.adds.set("sep", addSep);
    if (addSep) texts.setMissing("sep", texts.get("eos"));
  }

  private readConfig(
    files: CheckpointFiles,
    config: JsonObject,
    texts: SpecialTexts,
    added: readonly { id: number; content: string }[],
  ): void {
    const template = config.chat_template !== undefined && config.chat_template !== null
      ? config.chat_template
      : templateFile(files);
    if (typeof template === "string" || Array.isArray(template)) this.template = template;
    for (const kind of this.kinds) {
      const add = config[`add_${kind}_token`];
      if (typeof add === "boolean") {
        if (!this.adds.has(kind)) this.adds.set(kind, add);
        else if (this.adds.get(kind) !== add) {
          this.warnings.push(
            `tokenizer_config.json has add_${kind}_token ${add}, the post-processor of tokenizer.json says ` +
              `${this.adds.get(kind)}: the latter is used`,
          );
        }
      }
      const text = texts.get(kind);
      if (text !== undefined) this.setId(kind, added.find((token) => token.content === text)?.id);
    }
  }

  private readModelConfig(config: JsonObject | undefined): void {
    if (!config) return;
    for (const kind of this.kinds) {
      const id = config[`${kind}_token_id`] ??
        (isObject(config.text_config) ? config.text_config[`${kind}_token_id`] : undefined);
      this.setId(kind, id);
    }
  }
}

/** The texts of special tokens as `tokenizer_config.json` gives them and the post-processor corrects them. */
class SpecialTexts {
  private readonly texts = new Map<string, string>();
  readonly isGiven: boolean;

  constructor(config: JsonObject | undefined) {
    this.isGiven = config !== undefined;
    for (const kind of [...KINDS, "eot", "eom"]) this.set(kind, tokenText(config?.[`${kind}_token`]));
    this.setMissing("bos", this.get("cls"));
    this.setMissing("eos", this.get("sep"));
  }

  get(kind: string): string | undefined {
    return this.texts.get(kind);
  }

  set(kind: string, text: string | undefined): void {
    if (text !== undefined) this.texts.set(kind, text);
  }

  setMissing(kind: string, text: unknown): void {
    if (!this.texts.get(kind) && typeof text === "string") this.texts.set(kind, text);
  }
}

function specialOf(entry: unknown): string | undefined {
  const special = isObject(entry) ? entry.SpecialToken : undefined;
  return isObject(special) && typeof special.id === "string" ? special.id : undefined;
}

function sequenceOf(entry: unknown): string | undefined {
  const sequence = isObject(entry) ? entry.Sequence : undefined;
  return isObject(sequence) && typeof sequence.id === "string" ? sequence.id : undefined;
}

/** A template that lies beside the tokenizer. */
function templateFile(files: CheckpointFiles): unknown {
  const text = (name: string) => {
    const bytes = files.bytes(name);
    return bytes && new TextDecoder().decode(bytes);
  };
  const jinja = text("chat_template.jinja");
  if (jinja === undefined) return jsonObject(files, "chat_template.json")?.chat_template;
  const folder = "additional_chat_templates";
  const more = (files.list?.(folder) ?? []).filter((name) => name.endsWith(".jinja"));
  if (more.length === 0) return jinja;
  return [
    { name: "default", template: jinja },
    ...more.map((name) => ({ name: name.replace(/\.jinja$/, ""), template: text(`${folder}/${name}`) })),
  ];
}

function templateEntries(template: string | readonly unknown[] | undefined): Entry[] {
  if (template === undefined) return [];
  const key = "tokenizer.chat_template";
  if (typeof template === "string") return [[key, ggufValue.str(template)]];
  const entries: Entry[] = [];
  const names: string[] = [];
  let main: string | undefined;
  for (const choice of template) {
    if (!isObject(choice) || typeof choice.name !== "string" || typeof choice.template !== "string") continue;
    const name = choice.name.replace(/[^A-Za-z0-9]/g, "_");
    if (name === "default") main = choice.template;
    else if (name !== "") {
      names.push(name);
      entries.push([`${key}.${name}`, ggufValue.str(choice.template)]);
    }
  }
  if (names.length > 0) entries.push(["tokenizer.chat_templates", ggufValue.strs(names)]);
  if (main !== undefined) entries.push([key, ggufValue.str(main)]);
  return entries;
}
