/**
 * A loaded language model as the server serves it.
 * @module
 */
import { NAMED_TEMPLATES } from "../core/chat/named_templates.ts";
import type { AdapterInfo } from "../core/arch/mod.ts";
import type { Drafter } from "../core/draft/drafter.ts";
import type { TokenEngine } from "../core/engine/types.ts";
import { fileTypeName } from "../core/gguf/mod.ts";
import type { LanguageModel } from "../core/language_model.ts";
import type { ResidencyStats } from "../core/engine/residency.ts";
import type { Plan } from "../core/plan/plan.ts";
import type { SamplingParams } from "../core/sampling/mod.ts";
import { type ChatFormat, chatFormat } from "./chat_format.ts";
import { type Pooling, poolingOf } from "./embedder.ts";
import { modelDigest } from "./model_digest.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** Everything the server needs to know of a model. */
export interface ServedModel {
  /** The name clients see. */
  readonly id: string;
  /** Further names that it answers to. */
  readonly aliases: readonly string[];
  /** Where it came from, as /props shows it. */
  readonly path: string;
  /** Unix seconds, for /v1/models. */
  readonly created: number;
  /** Facts for clients. */
  readonly meta: {
    architecture: string;
    n_ctx_train: number;
    n_embd: number;
    n_params: number;
    /** Bytes of the weights. */
    size: number;
    /** `tokenizer.ggml.model`. */
    vocab_type: string;
    /** Quantization name, e.g. `Q4_K_M`. */
    ftype?: string;
  };
  /** @internal For those who look at the machine. */
  readonly machine?: {
    readonly plan: Plan;
    /** How often experts were in memory; undefined where all of them are. */
    readonly experts: () => ResidencyStats | undefined;
  };
  /** How the file wants rows of tokens to become one; undefined: it does not say. */
  readonly pooling?: Pooling | undefined;
  /** How a reranker wants a question and a text put together, `{query}` and `{document}`; undefined: one after the other. */
  readonly rerankTemplate?: string | undefined;
  /** @internal */
  readonly engine: TokenEngine;
  /** @internal */
  readonly tokenizer: Tokenizer;
  /** @internal */
  readonly chat: ChatFormat;
  /** Tokens that a prompt of /infill is made of; null where the vocabulary has none. */
  readonly fim: Record<"prefix" | "suffix" | "middle" | "repository" | "separator", number | null>;
  /** A digest of the weights and of the caches' types, made at the first use. */
  readonly digest: () => Promise<string>;
  /** Adapters of the file, in their order. */
  readonly adapters: readonly Pick<AdapterInfo, "path" | "task_name" | "prompt_prefix">[];
  /** How much of each a request gets that does not say. */
  readonly adapterScales: readonly number[];
  /** What the model recommends; requests override it. */
  readonly sampling: Partial<SamplingParams>;
  /** Guesses tokens, so that a step may give several. */
  readonly drafter?: Drafter | undefined;
}

/** How a model appears to clients. */
export interface ServedModelOptions {
  /** The name clients see; default: the file's name without `.gguf`. */
  id?: string;
  /** Further names that it answers to. */
  aliases?: readonly string[];
  /** Jinja text used instead of the file's template. */
  chatTemplate?: string;
  /** Guesses tokens, so that a step may give several. The caller disposes of it. */
  drafter?: Drafter | undefined;
}

/** The file has no chat template of its own, so ChatML is used. */
export function lacksTemplate(model: LanguageModel): boolean {
  return !model.file.metadata.has("tokenizer.chat_template");
}

/**
 * A model in the form that a server takes.
 * @throws TextError `text.template_syntax` for a template that cannot be parsed.
 */
export function servedModel(model: LanguageModel, options: ServedModelOptions = {}): ServedModel {
  const { file, engine, tokenizer } = model;
  const { metadata } = file;
  const path = file.name;
  let digest: Promise<string> | undefined;
  const control = [...file.control ?? []].map(([layer, v]) => [layer, ...v]);
  // The command line may have set some.
  const keys = [...metadata].filter(([key, { type }]) => key.startsWith(`${engine.spec.arch}.`) && type !== "array")
    .map(([key, { value }]) => [key, String(value)]);
  const label = metadata.int("general.file_type", undefined);
  const ftype = label === undefined ? undefined : fileTypeName(label);
  return {
    id: options.id ?? path.replace(/[/\\]+$/, "").replace(/^.*[/\\]/, "").replace(/\.gguf$/i, ""),
    aliases: options.aliases ?? [],
    path,
    created: Math.floor(Date.now() / 1000),
    meta: {
      architecture: metadata.str("general.architecture"),
      n_ctx_train: engine.spec.n_ctx_train,
      n_embd: engine.spec.n_embd,
      n_params: file.tensors.reduce((n, t) => n + t.ne.reduce((a, b) => a * b, 1), 0),
      size: file.tensors.reduce((n, t) => n + t.bytes, 0),
      vocab_type: tokenizer.model,
      ...(ftype === undefined ? {} : { ftype }),
    },
    machine: { plan: engine.plan, experts: () => engine.residency?.stats },
    engine,
    pooling: poolingOf(metadata.int(`${metadata.str("general.architecture")}.pooling_type`, undefined)),
    rerankTemplate: metadata.str("tokenizer.chat_template.rerank", undefined),
    tokenizer,
    chat: chatOf(model, options.chatTemplate),
    fim: {
      prefix: tokenizer.fim_pre,
      suffix: tokenizer.fim_suf,
      middle: tokenizer.fim_mid,
      repository: tokenizer.fim_rep,
      separator: tokenizer.fim_sep,
    },
    digest: () =>
      digest ??= modelDigest(
        file,
        JSON.stringify([engine.plan.caches.map(({ n_pages: _n, parts: _p, ...kind }) => kind), keys, control]),
      ),
    adapters: (file.adapters ?? []).map(({ path, task_name, prompt_prefix }) => ({ path, task_name, prompt_prefix })),
    adapterScales: engine.adapters,
    sampling: model.samplingDefaults(),
    drafter: options.drafter,
  };
}

/**
 * The file's template, its variant for requests with tools beside it where there is one.
 * @param override Jinja text used instead.
 * @throws TextError `text.template_syntax` for a template that cannot be parsed.
 */
export function chatOf(model: LanguageModel, override: string | undefined): ChatFormat {
  const { file: { metadata, name }, tokenizer } = model;
  const text = (id: number | null) => id === null ? "" : tokenizer.decode([id], { special: true });
  const format = (source: string) =>
    chatFormat(source, {
      bosToken: text(tokenizer.bos),
      eosToken: text(tokenizer.eos),
      name: override === undefined ? `the chat template of ${name}` : "the given chat template",
    }, tokenizer);
  const plain = format(override ?? metadata.str("tokenizer.chat_template", undefined) ?? NAMED_TEMPLATES.chatml);
  const variant = override === undefined ? metadata.str("tokenizer.chat_template.tool_use", undefined) : undefined;
  if (variant === undefined) return plain;
  const withTools = format(variant);
  const pick = (tools: unknown[] | undefined) => tools?.length ? withTools : plain;
  return {
    source: plain.source,
    family: plain.family,
    render: (input) => pick(input.tools).render(input),
    createParser: (input) => pick(input.tools).createParser(input),
    createTracker: (input) => pick(input.tools).createTracker(input),
    callTriggers: withTools.callTriggers,
    callRules: withTools.callRules,
    reasoningTags: plain.reasoningTags,
    preservedTokens: plain.preservedTokens.union(withTools.preservedTokens),
    stops: [...new Set([...plain.stops, ...withTools.stops])],
  };
}
