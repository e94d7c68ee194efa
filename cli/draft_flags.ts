/**
 * Flags of guessed tokens, under llama-server's names where it has them.
 * @module
 */
import type { Drafter } from "../core/draft/drafter.ts";
import { UsageError } from "../core/errors.ts";
import type { DraftedModel, DraftKind } from "../ffi/drafter.ts";
import type { Flag, Flags } from "./command.ts";
import type { Io } from "./io.ts";
import { deviceSpelling, threadsOf } from "./open.ts";

export const DRAFT_FLAGS: readonly Flag[] = [
  {
    name: "draft",
    type: "string",
    value: "KIND",
    default: "auto",
    help: "guess tokens so that a step gives several; answers are the same: lookup (what was said before), model " +
      "(--draft-model), off, auto (a draft model where one is given)",
  },
  {
    name: "draft-model",
    alias: ["md", "model-draft", "spec-draft-model"],
    type: "string",
    value: "FILE",
    env: "LLAMA_ARG_SPEC_DRAFT_MODEL",
    help: "GGUF file of a smaller model with the same vocabulary, which guesses",
  },
  {
    name: "draft-device",
    alias: ["devd", "device-draft", "spec-draft-device"],
    type: "string",
    value: "DEVICE",
    env: "LLAMA_ARG_SPEC_DRAFT_DEVICE",
    help: "device of the draft model; default: --device",
  },
  {
    name: "draft-max",
    alias: ["draft-n", "spec-draft-n-max"],
    type: "int",
    value: "N",
    default: 16,
    min: 1,
    max: 32,
    env: "LLAMA_ARG_SPEC_DRAFT_N_MAX",
    help: "most guesses of a step; how many of them pay is measured",
  },
  {
    name: "draft-min",
    alias: ["spec-draft-n-min"],
    type: "int",
    value: "N",
    default: 0,
    min: 0,
    max: 32,
    env: "LLAMA_ARG_SPEC_DRAFT_N_MIN",
    help: "fewer guesses than this are not used",
  },
  {
    name: "draft-p-min",
    alias: ["spec-draft-p-min"],
    type: "number",
    value: "P",
    default: 0,
    min: 0,
    max: 1,
    env: "LLAMA_ARG_SPEC_DRAFT_P_MIN",
    help: "a draft model stops where its likeliest token is less likely than this",
  },
  {
    name: "spec-type",
    type: "string",
    value: "TYPE",
    env: "LLAMA_ARG_SPEC_TYPE",
    help: "llama-server's word for --draft: none, draft-simple or ngram-*",
  },
];

/** llama-server's kinds as ours. */
function kindOfType(type: string): DraftKind | undefined {
  if (type === "none") return "off";
  if (type === "draft-simple") return "model";
  return /^ngram-[a-z0-9-]+$/.test(type) ? "lookup" : undefined;
}

/** What guesses and how many guesses at most. @throws {UsageError} `usage.value` */
export async function draftSettings(flags: Flags): Promise<{ kind: DraftKind; max: number }> {
  const { DRAFT_KINDS } = await import("../ffi/drafter.ts");
  const refuse = (flag: string, got: string, expected: string): never => {
    throw new UsageError("usage.value", `Cannot use ${flag} ${got}: expected ${expected}`, { at: { flag, got } });
  };
  let max = flags.num("draft-max")!;
  const type = flags.str("spec-type");
  if (type !== undefined && !flags.given("draft")) {
    return { kind: kindOfType(type) ?? refuse("--spec-type", type, "none, draft-simple or ngram-*"), max };
  }
  const draft = flags.str("draft")!;
  if (!flags.given("draft") && flags.has("draft-model")) return { kind: "model", max };
  const kind = DRAFT_KINDS.find((k) => k === draft);
  if (kind !== undefined) return { kind, max };
  // llama-server's --draft N is the number of guesses.
  max = Number(draft);
  if (!(Number.isInteger(max) && max >= 1 && max <= 32)) {
    refuse("--draft", draft, `one of ${DRAFT_KINDS.join(", ")}, or a number from 1 to 32`);
  }
  return { kind: "auto", max };
}

/** What guesses for a model; undefined where nothing does. Flags: `DRAFT_FLAGS`. */
export async function openDrafterFromFlags(
  opened: DraftedModel,
  flags: Flags,
  io: Io,
  options: { n_seq: number; fixed?: boolean },
): Promise<Drafter | undefined> {
  const { openDrafter } = await import("../ffi/drafter.ts");
  const { kind, max } = await draftSettings(flags);
  const device = flags.str("draft-device");
  const drafter = await openDrafter(opened, {
    ...options,
    kind,
    max,
    min: flags.num("draft-min")!,
    pMin: flags.num("draft-p-min")!,
    model: flags.str("draft-model"),
    device: device === undefined || device === flags.str("device") ? undefined : deviceSpelling(device),
    threads: threadsOf(flags, io),
    onWarning: (text) => io.warn(`draft model: ${text}`),
  });
  if (drafter) io.note(`guessing up to ${max} tokens a step: ${drafter.proposer.name}`);
  return drafter;
}
