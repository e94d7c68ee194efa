/**
 * A checkpoint's hyper-parameters: `config.json` with its text part on top, read through getters that name file and field.
 * @module
 */
import { ModelError } from "../../core/errors.ts";

type Json = Record<string, unknown>;

const isObject = (v: unknown): v is Json => typeof v === "object" && v !== null && !Array.isArray(v);

/** Names under which multimodal configurations keep their language model. */
const TEXT_PARTS = ["text_config", "llm_config", "lm_config", "language_config"];

/** Limits above every model: a larger number is damage and must not drive a loop. */
const MAX_LAYERS = 4096;
const MAX_EXPERTS = 65536;
const MAX_WIDTH = 1 << 24;

/** RoPE settings in the newer form (`rope_parameters`), whatever form the file has. */
export interface RopeParameters {
  readonly rope_type?: string;
  readonly rope_theta?: number;
  readonly factor?: number;
  readonly partial_rotary_factor?: number;
  readonly original_max_position_embeddings?: number;
  readonly [field: string]: unknown;
}

/**
 * Getters take several names because the same number is spelled differently by different families; the first one present
 * counts. A field that is null is absent.
 */
export class Config {
  readonly #fields: Json;
  /** As in the file, before the text part was laid over it. */
  readonly root: Json;
  /** What error messages call the file. */
  readonly file: string;

  /**
   * @param defaults What the family's releases leave out.
   */
  constructor(file: string, root: unknown, defaults: Json = {}) {
    if (!isObject(root)) {
      throw new ModelError("model.config", `Cannot use ${file}: it is not a JSON object`, { at: { file } });
    }
    this.file = file;
    this.root = root;
    const text = TEXT_PARTS.map((name) => root[name]).find(isObject) ?? {};
    const given = { ...root, ...text };
    for (const [name, value] of Object.entries(given)) if (value === null) delete given[name];
    this.#fields = { ...defaults, ...given };
  }

  /** The same configuration with other defaults. */
  withDefaults(defaults: Json): Config {
    return new Config(this.file, this.root, defaults);
  }

  has(name: string): boolean {
    return this.#fields[name] !== undefined;
  }

  raw(name: string): unknown {
    return this.#fields[name];
  }

  #find(names: string | readonly string[]): [string, unknown] {
    const list = typeof names === "string" ? [names] : names;
    const name = list.find((n) => this.#fields[n] !== undefined);
    return [name ?? list.join(" or "), name === undefined ? undefined : this.#fields[name]];
  }

  #wrong(field: string, got: unknown, expected: string): ModelError {
    const found = got === undefined ? "it is missing" : `found ${JSON.stringify(got)?.slice(0, 80)}`;
    return new ModelError(
      "model.config",
      `Cannot use field "${field}" of ${this.file}: ${found}, expected ${expected}`,
      {
        at: { file: this.file, field, got: got ?? null, expected },
        hint: "compare config.json with the one of the original release",
      },
    );
  }

  /** A number, or undefined when no name is there. */
  num(names: string | readonly string[]): number | undefined {
    const [field, v] = this.#find(names);
    if (v === undefined) return undefined;
    if (typeof v !== "number" || !Number.isFinite(v)) throw this.#wrong(field, v, "a number");
    return v;
  }

  /** A whole number of 0 to 2^32-1, or undefined. */
  int(names: string | readonly string[]): number | undefined {
    const [field, v] = this.#find(names);
    if (v === undefined) return undefined;
    if (typeof v !== "number" || !Number.isInteger(v) || v < 0 || v > 0xffffffff) {
      throw this.#wrong(field, v, "a whole number");
    }
    return v;
  }

  needInt(names: string | readonly string[]): number {
    const v = this.int(names);
    if (v === undefined) throw this.#wrong(this.#find(names)[0], undefined, "a whole number");
    return v;
  }

  /** A whole number of 1 to `most`. */
  needSize(names: string | readonly string[], most: number = MAX_WIDTH): number {
    const v = this.needInt(names);
    if (v < 1 || v > most) throw this.#wrong(this.#find(names)[0], v, `a whole number of 1 to ${most}`);
    return v;
  }

  needNum(names: string | readonly string[]): number {
    const v = this.num(names);
    if (v === undefined) throw this.#wrong(this.#find(names)[0], undefined, "a number");
    return v;
  }

  str(names: string | readonly string[]): string | undefined {
    const [field, v] = this.#find(names);
    if (v === undefined) return undefined;
    if (typeof v !== "string") throw this.#wrong(field, v, "a text");
    return v;
  }

  /** True, false, or the fallback when absent. */
  bool(name: string, fallback: boolean): boolean {
    const v = this.#fields[name];
    if (v === undefined) return fallback;
    if (typeof v !== "boolean") throw this.#wrong(name, v, "true or false");
    return v;
  }

  nums(name: string): number[] | undefined {
    const v = this.#fields[name];
    if (v === undefined) return undefined;
    if (!Array.isArray(v) || v.some((x) => typeof x !== "number")) throw this.#wrong(name, v, "a list of numbers");
    return v as number[];
  }

  strs(name: string): string[] | undefined {
    const v = this.#fields[name];
    if (v === undefined) return undefined;
    if (!Array.isArray(v) || v.some((x) => typeof x !== "string")) throw this.#wrong(name, v, "a list of texts");
    return v as string[];
  }

  object(name: string): Json | undefined {
    const v = this.#fields[name];
    if (v === undefined) return undefined;
    if (!isObject(v)) throw this.#wrong(name, v, "an object");
    return v;
  }

  /** An object as a configuration of its own, for its getters. */
  part(name: string): Config {
    const v = this.object(name);
    if (v === undefined) throw this.#wrong(name, undefined, "an object");
    return new Config(`${this.file} (${name})`, v);
  }

  /** The class name that says which family this is; a text part's own where the outer one only wraps it. */
  get architecture(): string | undefined {
    const list = this.root["architectures"] ?? this.#fields["architectures"];
    return Array.isArray(list) && typeof list[0] === "string" ? list[0] : undefined;
  }

  get n_layer(): number {
    return this.needSize(["n_layers", "num_hidden_layers", "n_layer", "num_layers"], MAX_LAYERS);
  }
  get n_embd(): number {
    return this.needSize(["hidden_size", "n_embd", "dim"]);
  }
  get n_head(): number {
    return this.needSize(["num_attention_heads", "n_head", "n_heads"]);
  }
  /** Key and value heads; as many as query heads when the file does not say. */
  get n_head_kv(): number {
    return this.int(["num_key_value_heads", "n_kv_heads"]) ?? this.n_head;
  }
  get head_dim(): number {
    const stated = this.int("head_dim");
    const head_dim = stated ?? this.n_embd / this.n_head;
    if (head_dim >= 1 && Number.isInteger(head_dim)) return head_dim;
    throw this.#wrong(stated === undefined ? "num_attention_heads" : "head_dim", stated ?? this.n_head, "whole heads");
  }
  get n_ff(): number | undefined {
    return this.int([
      "prefix_dense_intermediate_size",
      "dense_intermediate_size",
      "intermediate_size",
      "n_inner",
      "hidden_dim",
    ]);
  }
  get n_expert(): number | undefined {
    const names = ["num_local_experts", "num_experts", "n_routed_experts"];
    const n = this.int(names);
    return n === undefined || n === 0 ? n : this.needSize(names, MAX_EXPERTS); // dense models may say 0
  }

  /**
   * RoPE settings: `rope_parameters`, or the older `rope_scaling` with the fields that used to stand beside it. Settings by
   * kind of layer (`full_attention`, `sliding_attention`) are kept as they are.
   */
  get rope(): RopeParameters {
    const rope: Json = { ...(this.object("rope_parameters") ?? this.object("rope_scaling") ?? {}) };
    for (const [field, value] of Object.entries(rope)) if (value === null) delete rope[field];
    if (rope["full_attention"] !== undefined || rope["sliding_attention"] !== undefined) return rope as RopeParameters;
    const local = this.num([
      "local_rope_theta",
      "rope_local_theta",
      "rope_theta_local",
      "swa_rope_theta",
      "rope_local_base_freq",
    ]);
    if (local !== undefined) rope["sliding_attention"] = { rope_theta: local };
    rope["rope_theta"] ??= this.num([
      "global_rope_theta",
      "rope_global_theta",
      "rope_theta_global",
      "rope_theta",
      "rotary_emb_base",
    ]);
    rope["rope_type"] ??= rope["type"];
    rope["partial_rotary_factor"] ??= this.num(["partial_rotary_factor", "rope_pct", "rope_percent"]);
    rope["original_max_position_embeddings"] ??= this.num("original_max_position_embeddings");
    for (const [field, value] of Object.entries(rope)) if (value === undefined) delete rope[field];
    return rope as RopeParameters;
  }
}
