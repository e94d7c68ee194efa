/**
 * llama-server's flags about the draft model's placement and about drafting from the text itself, accepted without effect.
 * @module
 */
import type { Flag } from "./command.ts";

const WHY = "guesses are made as --draft says; answers are the same";

const flag = (name: string, alias: readonly string[] = [], env?: string, type: Flag["type"] = "string"): Flag => ({
  name,
  type,
  ...(type === "bool" ? {} : { value: "VALUE" }),
  ...(alias.length === 0 ? {} : { alias }),
  ...(env === undefined ? {} : { env: `LLAMA_ARG_${env}` }),
  help: "accepted, no effect",
  noEffect: WHY,
});

export const LLAMA_SPEC_FLAGS: readonly Flag[] = [
  flag("spec-draft-type-k", ["ctkd", "cache-type-k-draft"], "SPEC_DRAFT_CACHE_TYPE_K"),
  flag("spec-draft-type-v", ["ctvd", "cache-type-v-draft"], "SPEC_DRAFT_CACHE_TYPE_V"),
  flag("spec-draft-hf", ["hfd", "hfrd", "hf-repo-draft"], "SPEC_DRAFT_HF_REPO"),
  flag("spec-draft-threads", ["td", "threads-draft"]),
  flag("spec-draft-threads-batch", ["tbd", "threads-batch-draft"]),
  flag("spec-draft-cpu-mask", ["Cd", "cpu-mask-draft"]),
  flag("spec-draft-cpu-range", ["Crd", "cpu-range-draft"]),
  flag("spec-draft-cpu-strict", ["cpu-strict-draft"]),
  flag("spec-draft-prio", ["prio-draft"]),
  flag("spec-draft-poll", ["poll-draft"]),
  flag("spec-draft-cpu-mask-batch", ["Cbd", "cpu-mask-batch-draft"]),
  flag("spec-draft-cpu-strict-batch", ["cpu-strict-batch-draft"]),
  flag("spec-draft-prio-batch", ["prio-batch-draft"]),
  flag("spec-draft-poll-batch", ["poll-batch-draft"]),
  flag("spec-draft-override-tensor", ["otd", "override-tensor-draft"]),
  flag("spec-draft-cpu-moe", ["cmoed", "cpu-moe-draft"], "SPEC_DRAFT_CPU_MOE", "bool"),
  flag("spec-draft-n-cpu-moe", ["spec-draft-ncmoe", "ncmoed", "n-cpu-moe-draft"], "SPEC_DRAFT_N_CPU_MOE"),
  flag("spec-draft-n-ubatch", [], "SPEC_DRAFT_N_UBATCH"),
  flag("spec-draft-p-split", ["draft-p-split"], "SPEC_DRAFT_P_SPLIT"),
  { ...flag("spec-draft-backend-sampling", [], "SPEC_DRAFT_BACKEND_SAMPLING", "bool"), off: [] },
  flag("spec-draft-sampling", [], "SPEC_DRAFT_SAMPLING"),
  flag("spec-draft-ngl", ["ngld", "gpu-layers-draft", "n-gpu-layers-draft"], "N_GPU_LAYERS_DRAFT"),
  flag("spec-synth-len", [], "SPEC_SYNTH_LEN"),
  flag("spec-synth-rates", [], "SPEC_SYNTH_RATES"),
  flag("spec-ngram-mod-n-min"),
  flag("spec-ngram-mod-n-max"),
  flag("spec-ngram-mod-n-match"),
  ...["simple", "map-k", "map-k4v"].flatMap((kind) =>
    ["size-n", "size-m", "min-hits"].map((what) => flag(`spec-ngram-${kind}-${what}`))
  ),
  flag("lookup-cache-static", ["lcs"]),
  flag("lookup-cache-dynamic", ["lcd"]),
  flag("spec-default", [], undefined, "bool"),
];
