/**
 * Recipes: what a pipeline makes of a checkpoint, as one JSON file. Paths in it count from the recipe's folder.
 * @module
 */
import { dirname, isAbsolute, join } from "node:path";
import { z } from "zod";
import { UsageError } from "../core/errors.ts";

const text = z.string().min(1);
/** A part of a file's name. */
const name = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._+-]*$/, "expected letters, digits and . _ + -");

const typeSettings = {
  name: name.optional(),
  tensor_types: z.array(text).optional(),
  output_tensor_type: text.optional(),
  token_embedding_type: text.optional(),
  leave_output_tensor: z.boolean().optional(),
};

const quantizeSchema = z.union([
  name.transform((type) => ({ type })),
  z.strictObject({ type: name, ...typeSettings, pure: z.boolean().optional(), imatrix: z.boolean().optional() }),
  z.strictObject({ budget: name, ...typeSettings }),
]);

const recipeSchema = z.strictObject({
  name,
  source: text,
  out: text,
  direct: z.boolean().default(false),
  prepare: z.strictObject({
    outtype: z.enum(["f32", "f16", "bf16", "q8_0", "auto", "keep"]).optional(),
    arch: text.optional(),
    mtp: z.enum(["keep", "drop", "only"]).optional(),
    chat_template: text.optional(),
    model_name: text.optional(),
  }).default({}),
  imatrix: z.union([
    z.strictObject({ file: text }),
    z.strictObject({ texts: z.array(text).min(1), flags: z.array(text).default([]) }),
  ]).optional(),
  measure: z.union([
    z.strictObject({ file: text }),
    z.strictObject({
      texts: z.array(text).default([]),
      by: z.enum(["kl", "error"]).default("kl"),
      types: z.array(name).min(1).optional(),
      window: z.int().min(2).optional(),
      chunks: z.int().min(1).optional(),
    }),
  ]).optional(),
  quantize: z.array(quantizeSchema).min(1),
  splice: z.array(z.strictObject({ name, base: name, donor: name, take: z.array(text).min(1) })).default([]),
  eval: z.strictObject({
    texts: z.array(text).default([]),
    prompts: z.array(text).default([]),
    against: text.optional(),
    window: z.int().min(2).default(512),
    skip: z.int().min(0).default(0),
    max_kl: z.number().min(0).optional(),
  }).optional(),
  card: z.strictObject({
    license: text.optional(),
    base_model: text.optional(),
    language: z.array(text).default([]),
    tags: z.array(text).default([]),
    text: text.optional(),
  }).default({ language: [], tags: [] }),
  upload: z.union([
    z.strictObject({ command: z.array(text).min(1) }),
    z.strictObject({
      hub: z.string().regex(/^[A-Za-z0-9._-]+\/[A-Za-z0-9._-]+$/, "expected OWNER/REPO"),
      private: z.boolean().default(false),
      revision: text.default("main"),
    }),
  ]).optional(),
});

/** A checked recipe; its paths lead from the current folder. */
export type Recipe = z.infer<typeof recipeSchema>;
/** One quantization of a recipe. */
export type RecipeType = Recipe["quantize"][number];

/** What a quantization is called in file names and other steps. */
export function typeName(t: RecipeType): string {
  return ("name" in t ? t.name : undefined) ?? ("budget" in t ? t.budget : t.type);
}

function wrong(file: string, field: string, what: string): UsageError {
  return new UsageError("usage.recipe", `Cannot use ${file}, field "${field}": ${what}`, {
    at: { file, field },
    hint: "see bloomery pipeline --help for a recipe",
  });
}

interface Issue {
  readonly code: string;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly errors?: readonly (readonly Issue[])[];
  readonly keys?: readonly string[];
}

const fieldOf = (path: readonly PropertyKey[]) =>
  path.reduce<string>((s, p) => typeof p === "number" ? `${s}[${p}]` : s === "" ? String(p) : `${s}.${String(p)}`, "");

/** The deepest problem of a schema with alternatives: that of the form which the value comes nearest to. */
function nearest(issue: Issue): Issue {
  if (issue.code !== "invalid_union" || issue.errors === undefined) return issue;
  const inner = issue.errors.map((list) => list.map((i) => nearest({ ...i, path: [...issue.path, ...i.path] })));
  const rank = (list: readonly Issue[]) =>
    list.length + list.filter((i) => i.code === "unrecognized_keys").length - list[0].path.length / 10;
  return inner.reduce((a, b) => rank(b) < rank(a) ? b : a)[0];
}

/**
 * Reads a recipe.
 * @param file Its path: relative paths in it lead from its folder.
 * @throws {UsageError} `usage.recipe` naming the field
 */
export function parseRecipe(json: string, file: string): Recipe {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (cause) {
    throw new UsageError("usage.recipe", `Cannot use ${file}: ${(cause as Error).message}`, { at: { file }, cause });
  }
  const parsed = recipeSchema.safeParse(value);
  if (!parsed.success) {
    const issue = nearest(parsed.error.issues[0] as Issue);
    const key = issue.keys?.[0];
    const field = fieldOf(key === undefined ? issue.path : [...issue.path, key]);
    throw wrong(file, field, key === undefined ? issue.message : "there is no such field");
  }
  return checked(parsed.data, file);
}

/** What fields say of each other, and paths from the current folder. */
function checked(r: Recipe, file: string): Recipe {
  const here = (path: string) => isAbsolute(path) ? path : join(dirname(file), path);
  const names = new Set<string>();
  const once = (of: string, field: string) => {
    if (names.has(of)) throw wrong(file, field, `"${of}" is there twice`);
    names.add(of);
  };
  r.quantize.forEach((t, i) => once(typeName(t), `quantize[${i}]`));
  r.splice.forEach((s, i) => {
    for (const side of ["base", "donor"] as const) {
      if (!names.has(s[side])) throw wrong(file, `splice[${i}].${side}`, `no step before makes "${s[side]}"`);
    }
    once(s.name, `splice[${i}].name`);
  });
  const gguf = r.source.endsWith(".gguf");
  if (!gguf && `${here(r.out)}/`.startsWith(`${here(r.source)}/`)) {
    throw wrong(file, "out", "it lies in the source, whose files are the input");
  }
  if (r.direct && gguf) throw wrong(file, "direct", "the source is a GGUF file already");
  if (r.imatrix === undefined) {
    r.quantize.forEach((t, i) => {
      if ("imatrix" in t && t.imatrix) throw wrong(file, `quantize[${i}].imatrix`, "the recipe has no imatrix");
    });
  }
  const budget = r.quantize.findIndex((t) => "budget" in t);
  if (r.measure === undefined && budget >= 0) {
    throw wrong(file, `quantize[${budget}].budget`, "the recipe has no measure");
  }
  if (r.measure !== undefined && r.direct) {
    throw wrong(file, "measure", 'a GGUF file is measured, and "direct" makes none of the source');
  }
  if (r.measure !== undefined && "by" in r.measure) {
    const some = r.measure.texts.length > 0;
    if (some !== (r.measure.by === "kl")) {
      throw wrong(file, "measure.texts", some ? "by error no text is run" : "there is no text");
    }
  }
  if (r.eval !== undefined) {
    const { texts, prompts, against } = r.eval;
    if (texts.length + prompts.length === 0 && !/\.(jsonl|kld)$/.test(against ?? "")) {
      throw wrong(file, "eval.texts", "there is no text and no prompt");
    }
  }
  return {
    ...r,
    source: here(r.source),
    out: here(r.out),
    prepare: {
      ...r.prepare,
      ...(r.prepare.chat_template === undefined ? {} : { chat_template: here(r.prepare.chat_template) }),
    },
    ...(r.imatrix === undefined ? {} : {
      imatrix: "file" in r.imatrix
        ? { file: here(r.imatrix.file) }
        : { ...r.imatrix, texts: r.imatrix.texts.map(here) },
    }),
    ...(r.measure === undefined ? {} : {
      measure: "file" in r.measure
        ? { file: here(r.measure.file) }
        : { ...r.measure, texts: r.measure.texts.map(here) },
    }),
    ...(r.eval === undefined ? {} : {
      eval: {
        ...r.eval,
        texts: r.eval.texts.map(here),
        prompts: r.eval.prompts.map(here),
        ...(r.eval.against === undefined ? {} : { against: here(r.eval.against) }),
      },
    }),
  };
}
