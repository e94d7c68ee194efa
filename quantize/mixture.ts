/**
 * Which type a tensor gets in each file type: the mixtures. More bits go where they matter: the output head, attention values,
 * the down projection of the first and last layers.
 * Source: llama-quantize 0.7.0, whose files these rules reproduce.
 * @module
 */
import { PlanError } from "../core/errors.ts";
import { type GgmlType, ggmlType } from "../core/gguf/types.ts";
import type { FileType } from "./file_types.ts";

/** What a tensor is for, as far as the mixtures ask. */
export type Category = "out" | "emb" | "qkv" | "kv_b" | "v" | "k" | "q" | "o" | "up" | "gate" | "down" | "other";

const BY_PART: readonly (readonly [part: string, category: Category])[] = [
  ["attn_qkv.weight", "qkv"],
  ["attn_kv_b.weight", "kv_b"],
  ["attn_v.weight", "v"],
  ["attn_k.weight", "k"],
  ["attn_q.weight", "q"],
  ["attn_output.weight", "o"],
  ["ffn_up", "up"],
  ["ffn_gate", "gate"],
  ["ffn_down", "down"],
];

/** The category of a tensor name; expert tensors fall under up, gate and down by their names. */
export function categoryOf(name: string): Category {
  if (name === "output.weight") return "out";
  if (name === "token_embd.weight" || name === "per_layer_token_embd.weight") return "emb";
  return BY_PART.find(([part]) => name.includes(part))?.[1] ?? "other";
}

/** Attention values, alone or fused with others. */
export function isValueLike(category: Category): boolean {
  return category === "v" || category === "qkv" || category === "kv_b";
}

/** The facts of a model that the mixtures ask for. */
export interface ModelFacts {
  /** `general.architecture`. */
  readonly arch: string;
  /** `block_count` of the input, draft layers included. */
  readonly n_layer: number;
  readonly n_expert: number;
  /** Query heads per key-value head in layer 0; 0 when there are none. */
  readonly n_gqa: number;
  /** One of the 70B models whose eight-fold shared values deserve more bits. */
  readonly is70B: boolean;
}

export interface MixtureOptions {
  readonly fileType: FileType;
  readonly facts: ModelFacts;
  /** An importance matrix with at least one entry is in use. */
  readonly imatrix: boolean;
  /** No output head of its own: the embedding is it. */
  readonly tied: boolean;
  /** Value-like tensors of the whole model. */
  readonly n_value: number;
  readonly outputTensorType?: GgmlType | undefined;
}

const LOW = new Set(["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"]);
/** File types whose attention output goes to q5_K in a model of eight experts. */
const O_OF_EIGHT = new Set(
  ["Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"],
);
const O_OF_OTHERS: Readonly<Record<string, string>> = {
  Q2_K: "q3_K",
  IQ3_XXS: "iq3_s",
  Q3_K_M: "q4_K",
  Q3_K_L: "q5_K",
  IQ3_M: "q4_K",
};

/** Aliases mix as what they stand for. */
const ALIAS: Readonly<Record<string, string>> = { Q3_K: "Q3_K_M", Q4_K: "Q4_K_M", Q5_K: "Q5_K_M" };

/** Layers that get more bits: the first and last eighth, and every third between. */
function more(i: number, n: number): boolean {
  const eighth = Math.trunc(n / 8);
  return i < eighth || i >= Math.trunc(7 * n / 8) || (i - eighth) % 3 === 2;
}

/** A tensor as the mixtures see it. */
export interface MixtureTensor {
  /** After pruning. */
  readonly name: string;
  readonly ne: readonly number[];
}

/** Decides tensors one after another; the order matters, since rules count what they have seen. */
export class Mixture {
  #value = 0;
  #down = 0;
  #gate = 0;
  #up = 0;
  readonly #file: string;

  constructor(readonly options: MixtureOptions) {
    const { name } = options.fileType;
    this.#file = ALIAS[name] ?? name;
  }

  /**
   * The type of the next tensor.
   * @throws {PlanError} `plan.layer_number` when an expert tensor's name has no layer of the model.
   */
  next(tensor: MixtureTensor): GgmlType {
    const base = this.options.fileType.type;
    if (!base) throw new Error("a copy has no mixture");
    const chosen = this.#choose(tensor, base);
    return typeof chosen === "string" ? ggmlType(chosen) : chosen ?? base;
  }

  /** A type name, a type, or undefined to keep the default. */
  #choose(tensor: MixtureTensor, base: GgmlType): string | GgmlType | undefined {
    const { facts, tied, outputTensorType } = this.options;
    const { name } = tensor;
    const file = this.#file;
    const category = categoryOf(name);
    if (facts.arch === "glm5-next" && /attn_q_a|attn_q_b|nextn\.eh_proj/.test(name)) return "q8_0";
    if (category === "out" || (category === "emb" && tied)) {
      if (outputTensorType) return outputTensorType;
      if (file === "MXFP4_MOE" || facts.arch === "falcon" || tensor.ne[0] % base.block !== 0) return "q8_0";
      if (LOW.has(file) || file === "IQ3_XXS") return "q5_K";
      return base.name === "q8_0" ? undefined : "q6_K";
    }
    if (file === "MXFP4_MOE") {
      const routed = (tensor.ne[2] ?? 1) > 1;
      const allowed = facts.arch !== "bailingmoe3" || category === "up" || category === "gate" || category === "down";
      return routed && allowed ? "mxfp4" : "q8_0";
    }
    if (category === "emb") return this.#embedding();
    if (LOW.has(file)) return this.#low(category);
    if (isValueLike(category)) return this.#values(base);
    switch (category) {
      case "k":
        if (facts.n_expert === 8) return "q8_0";
        return this.#queryOrKey();
      case "q":
        return this.#queryOrKey();
      case "down":
        return this.#downs(name);
      case "o":
        return this.#outputs();
      case "gate":
        return this.#middle(this.#layer(name, this.#gate++));
      case "up":
        return this.#middle(this.#layer(name, this.#up++));
      default:
        return undefined;
    }
  }

  #embedding(): string | undefined {
    switch (this.#file) {
      case "IQ1_S":
      case "IQ1_M":
      case "IQ2_XXS":
      case "IQ2_XS":
        return "q2_K";
      case "IQ2_S":
      case "IQ2_M":
      case "IQ3_XXS":
        return "iq3_s";
      case "TQ1_0":
      case "TQ2_0":
      case "Q2_0":
        return "q4_K";
      default:
        return undefined;
    }
  }

  /** Files of one and two bits. */
  #low(category: Category): string | undefined {
    const { n_layer, n_expert, n_gqa } = this.options.facts;
    const better = this.#file === "IQ2_S" || this.#file === "IQ2_M" ? "iq3_s" : "q2_K";
    if (isValueLike(category)) {
      this.#value++;
      return n_gqa >= 4 || n_expert >= 4 ? "q4_K" : better;
    }
    if (category === "k") return n_expert === 8 ? "q4_K" : undefined;
    if (category === "down") return this.#down++ < Math.trunc(n_layer / 8) ? better : undefined;
    if (category === "o") {
      if (n_expert === 8) return "q5_K";
      if (this.#file === "IQ1_S" || this.#file === "IQ1_M") return "iq2_xxs";
      return better === "iq3_s" ? better : undefined;
    }
    return undefined;
  }

  #values(base: GgmlType): string | undefined {
    const { facts } = this.options;
    const i = this.#value++;
    let type = this.#value1(i, facts.n_gqa >= 4) ?? base.name;
    if (facts.is70B && (type === "q3_K" || type === "q4_K")) type = "q5_K";
    if (facts.n_expert === 8) type = "q8_0";
    return type;
  }

  #value1(i: number, shared: boolean): string | undefined {
    switch (this.#file) {
      case "Q2_K":
        return shared ? "q4_K" : "q3_K";
      case "Q2_K_S":
      case "IQ3_XS":
      case "IQ3_S":
        return shared ? "q4_K" : undefined;
      case "IQ3_XXS":
        if (shared) return "q4_K";
        return this.options.imatrix ? "iq3_xxs" : "iq3_s";
      case "IQ3_M":
        return "q4_K";
      case "Q3_K_M":
        return i < 2 ? "q5_K" : "q4_K";
      case "Q3_K_L":
        return "q5_K";
      case "IQ4_NL":
      case "IQ4_XS":
        return shared ? "q5_K" : undefined;
      case "Q4_K_M":
      case "Q5_K_M":
        return more(i, this.options.n_value) ? "q6_K" : undefined;
      case "Q4_K_S":
        return i < 4 ? "q5_K" : undefined;
      default:
        return undefined;
    }
  }

  #queryOrKey(): string | undefined {
    if (this.#file === "IQ3_XS") return "iq3_xxs";
    return this.#file === "IQ3_XXS" ? "iq2_s" : undefined;
  }

  #downs(name: string): string | undefined {
    const { facts, imatrix } = this.options;
    const i = this.#layer(name, this.#down++);
    const n = facts.n_layer;
    const first = i < Math.trunc(n / 8);
    const falcon = facts.arch === "falcon";
    switch (this.#file) {
      case "Q2_K":
        return "q3_K";
      case "Q2_K_S":
        return first ? "q4_K" : undefined;
      case "IQ3_XXS":
        if (imatrix) return undefined;
        return first ? "q4_K" : "q3_K";
      case "Q3_K_M":
        if (i < Math.trunc(n / 16)) return "q5_K";
        return !falcon || more(i, n) ? "q4_K" : "q3_K";
      case "IQ3_M":
        return first || (facts.n_expert === 8 && more(i, n)) ? "q4_K" : undefined;
      case "Q3_K_L":
        return falcon ? "q4_K" : "q5_K";
      case "Q4_K_M":
        if (!falcon) return more(i, n) ? "q6_K" : undefined;
        if (i < Math.trunc(n / 16)) return "q6_K";
        return more(i, n) ? "q5_K" : "q4_K";
      case "IQ4_NL":
      case "IQ4_XS":
        return !imatrix && first ? "q5_K" : undefined;
      case "Q5_K_M":
        return more(i, n) ? "q6_K" : undefined;
      case "Q4_K_S":
        return !falcon && first ? "q5_K" : undefined;
      case "Q4_0":
        return imatrix && first ? "q4_1" : undefined;
      case "Q5_0":
        return imatrix && first ? "q5_1" : undefined;
      default:
        return undefined;
    }
  }

  #outputs(): string | undefined {
    const { arch, n_expert } = this.options.facts;
    if (arch === "falcon") return this.#file === "Q3_K_L" ? "q4_K" : undefined;
    if (n_expert === 8) return O_OF_EIGHT.has(this.#file) ? "q5_K" : undefined;
    return O_OF_OTHERS[this.#file];
  }

  #middle(i: number): string | undefined {
    const n = this.options.facts.n_layer;
    const inside = i >= Math.trunc(n / 8) && i < Math.trunc(7 * n / 8);
    return this.#file === "IQ3_XS" && inside ? "iq3_xxs" : undefined;
  }

  /** The layer of a feed-forward tensor: counted in dense models, read from the name where experts make several a layer. */
  #layer(name: string, counted: number): number {
    const { n_layer, n_expert } = this.options.facts;
    if (n_expert <= 1) return counted;
    const i = Number(/blk\.(\d+)/.exec(name)?.[1] ?? NaN);
    if (i >= 0 && i < n_layer) return i;
    throw new PlanError(
      "plan.layer_number",
      `Cannot plan tensor "${name}": ${
        Number.isNaN(i) ? "its name has no layer number" : `layer ${i}`
      }, expected 0 to ${n_layer - 1}`,
      { at: { tensor: name, n_layer } },
    );
  }
}
