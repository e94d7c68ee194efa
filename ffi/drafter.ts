/**
 * Opens what guesses tokens for a model: lookup, or a draft model on a device of its own.
 * @module
 */
import { Drafter, type DrafterOptions } from "../core/draft/drafter.ts";
import { Lookup } from "../core/draft/lookup.ts";
import { DraftModel } from "../core/draft/model.ts";
import type { Proposer } from "../core/draft/proposer.ts";
import { checkDraftVocabulary } from "../core/draft/vocabulary.ts";
import { Engine } from "../core/engine/mod.ts";
import { UsageError } from "../core/errors.ts";
import type { ModelSource } from "../core/arch/mod.ts";
import { openGguf } from "../core/gguf/read.ts";
import { openBackend, type OpenedBackend } from "./mod.ts";

/** What guesses: `auto` takes a draft model where one is given. */
export const DRAFT_KINDS = ["auto", "off", "lookup", "model"] as const;
/** One of `DRAFT_KINDS`. */
export type DraftKind = typeof DRAFT_KINDS[number];

/** A model that tokens are guessed for, and what runs it. */
export interface DraftedModel extends Pick<OpenedBackend, "backend" | "device"> {
  /** Its file and its engine. */
  readonly model: { readonly file: ModelSource; readonly engine: Engine };
}

/** What guesses, and how. */
export interface OpenDrafterOptions extends DrafterOptions {
  /** What guesses. */
  readonly kind: DraftKind;
  /** GGUF file of the draft model. */
  readonly model?: string | undefined;
  /** Its device; default: that of the model. */
  readonly device?: string | undefined;
  /** Host threads of a device that is opened for it; 0: one per core. */
  readonly threads?: number | undefined;
  /** A draft model's guesses stop where it holds a token less likely than this. */
  readonly pMin?: number | undefined;
  /** Sequences that are guessed for at once. */
  readonly n_seq: number;
  /** Called with what a draft model's file holds and its architecture does not use. */
  readonly onWarning?: (message: string) => void;
}

/**
 * Opens what guesses; undefined where nothing does. Dispose of it before the model.
 * @throws {UsageError} {@link ModelError} {@link PlanError} {@link NativeError}
 */
export async function openDrafter(opened: DraftedModel, options: OpenDrafterOptions): Promise<Drafter | undefined> {
  const { model, kind } = options;
  if (model !== undefined && kind !== "auto" && kind !== "model") {
    throw new UsageError("usage.draft", `Cannot guess with --draft ${kind} and with --draft-model ${model}`, {
      at: { got: kind, file: model },
      hint: "give one of them",
    });
  }
  const proposer = await openProposer(opened, options);
  return proposer && new Drafter(proposer, options);
}

async function openProposer(opened: DraftedModel, options: OpenDrafterOptions): Promise<Proposer | undefined> {
  if (options.kind === "lookup") return new Lookup();
  if (options.model !== undefined) return await openDraftModel(opened, options.model, options);
  if (options.kind !== "model") return undefined;
  throw new UsageError("usage.draft", "Cannot guess with --draft model: there is no draft model", {
    hint: "give one with --draft-model FILE",
  });
}

async function openDraftModel(opened: DraftedModel, path: string, options: OpenDrafterOptions): Promise<Proposer> {
  const { file, engine } = opened.model, { n_seq, onWarning } = options;
  const open: Disposable[] = [];
  const owned = { [Symbol.dispose]: () => open.reverse().forEach((d) => d[Symbol.dispose]()) };
  try {
    const draft = openGguf(path);
    open.push({ [Symbol.dispose]: () => draft.close() });
    checkDraftVocabulary(file, draft);
    let { backend, device } = opened;
    if (options.device !== undefined) {
      const other = openBackend(options.device, options.threads === undefined ? {} : { threads: options.threads });
      open.push(other);
      ({ backend, device } = other);
    }
    const loaded = await Engine.load(draft, backend, {
      device: device.index,
      n_ctx: engine.n_ctx,
      n_cache: engine.n_free,
      n_seq,
      n_ubatch: engine.n_ubatch,
      topK: 1,
      ...(onWarning === undefined ? {} : { onWarning }),
    });
    open.push(loaded);
    const pMin = options.pMin === undefined ? {} : { pMin: options.pMin };
    return new DraftModel(loaded, { n_vocab: engine.n_vocab, n_seq, owned, ...pMin });
  } catch (error) {
    owned[Symbol.dispose]();
    throw error;
  }
}
