/**
 * The steps of a recipe: which files each reads and makes, and the command line that makes them.
 * @module
 */
import { type Recipe, type RecipeType, typeName } from "./recipe.ts";

export type StepKind = "prepare" | "imatrix" | "measure" | "quantize" | "splice" | "eval" | "manifest" | "upload";

/** A step. Its key is made of kind, settings and the contents of its inputs. */
export interface Step {
  /** `quantize Q4_K_M` */
  readonly id: string;
  readonly kind: StepKind;
  /** What it does besides its files; anything JSON. */
  readonly settings: unknown;
  /** Files and folders, outputs of earlier steps among them. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Its inputs may still be arriving: its key is known when it is done. */
  readonly arriving?: boolean;
  /** Words after `bloomery`, of steps that are commands. */
  readonly argv?: readonly string[];
}

/** What the command line adds to a recipe. */
export interface PipelineOptions {
  readonly follow: boolean;
  /** No GGUF file of the source in between. */
  readonly direct: boolean;
  readonly room?: string | undefined;
  readonly device: string;
  readonly threads: number;
}

/** Files of a recipe. */
export interface RecipeFiles {
  /** What is quantized: a GGUF file, or the checkpoint. */
  readonly original: string;
  readonly imatrix: string | undefined;
  readonly measure: string | undefined;
  /** Quantized and spliced models by name, in the recipe's order. */
  readonly models: ReadonlyMap<string, string>;
  readonly reports: ReadonlyMap<string, { readonly json: string; readonly html: string }>;
  readonly manifest: string;
  readonly card: string;
}

/** Names of all files. @param direct As in {@link PipelineOptions}. */
export function recipeFiles(r: Recipe, direct: boolean): RecipeFiles {
  const names = [...r.quantize.map(typeName), ...r.splice.map((s) => s.name)];
  const given = r.source.endsWith(".gguf");
  return {
    original: given || direct ? r.source : `${r.out}/${r.name}.gguf`,
    imatrix: r.imatrix === undefined
      ? undefined
      : "file" in r.imatrix
      ? r.imatrix.file
      : `${r.out}/${r.name}.imatrix.gguf`,
    measure: r.measure === undefined
      ? undefined
      : "file" in r.measure
      ? r.measure.file
      : `${r.out}/${r.name}.measure.json`,
    models: new Map(names.map((n) => [n, `${r.out}/${r.name}-${n}.gguf`])),
    reports: new Map(
      r.eval === undefined ? [] : names.map((n) => [
        n,
        { json: `${r.out}/${r.name}-${n}.eval.json`, html: `${r.out}/${r.name}-${n}.eval.html` },
      ]),
    ),
    manifest: `${r.out}/manifest.json`,
    card: `${r.out}/README.md`,
  };
}

const flag = (name: string, value: string | number | undefined) =>
  value === undefined ? [] : [`--${name}`, String(value)];
const flags = (name: string, values: readonly string[] | undefined) => (values ?? []).flatMap((v) => [`--${name}`, v]);

function typeFlags(t: RecipeType): string[] {
  if (
    !("tensor_types" in t || "name" in t || "pure" in t || "imatrix" in t || "leave_output_tensor" in t ||
      "output_tensor_type" in t || "token_embedding_type" in t || "budget" in t)
  ) return [];
  return [
    ...flags("tensor-type", t.tensor_types),
    ...flag("output-tensor-type", t.output_tensor_type),
    ...flag("token-embedding-type", t.token_embedding_type),
    ...t.leave_output_tensor ? ["--leave-output-tensor"] : [],
    ..."pure" in t && t.pure ? ["--pure"] : [],
  ];
}

/** The steps of a recipe, each after those it reads from. Without a GGUF file in between the checkpoint itself is the original. */
export function planSteps(r: Recipe, options: PipelineOptions): Step[] {
  const { direct, room, device, threads } = options;
  const files = recipeFiles(r, direct), steps: Step[] = [];
  const made = files.original !== r.source;
  const { outtype, arch, mtp, chat_template, model_name } = r.prepare;
  const converting = [
    ...flag("outtype", outtype),
    ...flag("arch", arch),
    ...flag("mtp", mtp),
    ...flag("chat-template", chat_template),
  ];
  const template = chat_template === undefined ? [] : [chat_template];
  if (made) {
    steps.push({
      id: "prepare",
      kind: "prepare",
      settings: { outtype, arch, mtp, model_name },
      inputs: [r.source, ...template],
      outputs: [files.original],
      arriving: options.follow,
      argv: [
        "prepare",
        r.source,
        "-o",
        files.original,
        ...converting,
        ...flag("model-name", model_name),
        "--resume",
        "--overwrite",
        ...options.follow ? ["--follow"] : [],
        ...flag("room", room),
      ],
    });
  }
  const running = ["--device", device, ...threads === 0 ? [] : ["--threads", String(threads)]];
  if (r.imatrix !== undefined && "texts" in r.imatrix) {
    steps.push({
      id: "imatrix",
      kind: "imatrix",
      settings: { flags: r.imatrix.flags },
      inputs: [files.original, ...r.imatrix.texts],
      outputs: [files.imatrix!],
      argv: [
        "imatrix",
        "collect",
        "-m",
        files.original,
        ...flags("file", r.imatrix.texts),
        "-o",
        files.imatrix!,
        ...r.imatrix.flags,
        "--overwrite",
        ...running,
      ],
    });
  }
  const weights = files.imatrix === undefined ? [] : [files.imatrix];
  if (r.measure !== undefined && "by" in r.measure) {
    const { texts, by, types, window, chunks } = r.measure;
    steps.push({
      id: "measure",
      kind: "measure",
      settings: { by, types, window, chunks, device },
      inputs: [files.original, ...texts, ...weights],
      outputs: [files.measure!],
      argv: [
        "measure",
        "-m",
        files.original,
        ...flags("file", texts),
        "-o",
        files.measure!,
        ...flag("by", by),
        ...flag("types", types?.join(",")),
        ...flag("window", window),
        ...flag("chunks", chunks),
        ...flags("imatrix", weights),
        ...running,
      ],
    });
  }
  for (const t of r.quantize) {
    const output = files.models.get(typeName(t))!;
    const weighted = files.imatrix !== undefined && !("imatrix" in t && t.imatrix === false);
    const own = typeFlags(t), measured = "budget" in t ? [files.measure!] : [];
    const what = "budget" in t ? { budget: t.budget } : { type: t.type };
    steps.push({
      id: `quantize ${typeName(t)}`,
      kind: "quantize",
      settings: { ...what, flags: own, ...(direct ? { outtype, arch, mtp } : {}) },
      inputs: [files.original, ...direct ? template : [], ...weighted ? [files.imatrix!] : [], ...measured],
      outputs: [output],
      argv: [
        "quantize",
        ...direct ? ["--hf", r.source, ...converting] : [files.original],
        output,
        ..."budget" in t ? [] : [t.type],
        ...threads === 0 ? [] : [String(threads)],
        ..."budget" in t ? ["--budget", t.budget, ...flags("measure", measured)] : [],
        ...own,
        ...weighted ? ["--imatrix", files.imatrix!] : [],
        "--device",
        device,
        "--resume",
        "--overwrite",
        ...flag("room", room),
      ],
    });
  }
  for (const s of r.splice) {
    const base = files.models.get(s.base)!, donor = files.models.get(s.donor)!, output = files.models.get(s.name)!;
    steps.push({
      id: `splice ${s.name}`,
      kind: "splice",
      settings: { take: s.take },
      inputs: [base, donor],
      outputs: [output],
      argv: ["splice", base, donor, output, ...flags("take", s.take), "--overwrite"],
    });
  }
  if (r.eval !== undefined) {
    const { texts, prompts, window, skip, max_kl } = r.eval, against = r.eval.against ?? files.original;
    const ownWindows = !/\.(jsonl|kld)$/.test(against);
    for (const [model, { json, html }] of files.reports) {
      const path = files.models.get(model)!;
      steps.push({
        id: `eval ${model}`,
        kind: "eval",
        settings: { window, skip, max_kl, device },
        inputs: [path, against, ...texts, ...prompts],
        outputs: [json, html],
        argv: [
          "eval",
          "-m",
          path,
          "--against",
          against,
          ...ownWindows
            ? [
              ...flags("file", texts),
              ...flags("prompts", prompts),
              "--window",
              String(window),
              "--skip",
              String(skip),
            ]
            : [],
          "--report",
          html,
          "--overwrite",
          ...flag("max-kl", max_kl),
          "--json",
          ...running,
        ],
      });
    }
  }
  const models = [...files.models.values()], reports = [...files.reports.values()];
  steps.push({
    id: "manifest",
    kind: "manifest",
    settings: { name: r.name, card: r.card, quantize: r.quantize, splice: r.splice },
    inputs: [...models, ...reports.map((f) => f.json)],
    outputs: [files.manifest, files.card],
  });
  const published = [...models, ...reports.map((f) => f.html), files.manifest, files.card];
  if (r.upload !== undefined && "hub" in r.upload) {
    steps.push({ id: "upload", kind: "upload", settings: r.upload, inputs: published, outputs: [] });
  } else if (r.upload !== undefined) {
    // A step for each file: what has been uploaded is not uploaded again.
    for (const path of published) {
      const name = path.split("/").at(-1)!;
      steps.push({
        id: `upload ${name}`,
        kind: "upload",
        settings: { ...r.upload, name },
        inputs: [path],
        outputs: [],
      });
    }
  }
  return steps;
}
