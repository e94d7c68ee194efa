import assert from "node:assert/strict";
import { Metadata } from "../../core/gguf/metadata.ts";
import { repoDir } from "../../tests/shared.ts";
import { parseYaml } from "./front_matter.ts";
import { writeGeneral } from "./model_card.ts";
import { countLabel, nameParts, sizeLabel, titleOf } from "./model_name.ts";

const CARD = `---
license: apache-2.0
license_name: "our: license"   # a comment
license_link: https://example.org/l
language:
- en
- no
- de
tags: [text-generation, 'tiny, small', "x"]
pipeline_tag: text-generation
library_name: transformers
base_model:
  - org-x/Big-Model-7B-Instruct-v0.1
  - https://huggingface.co/foo/Bar-13b-chat
  - https://example.org/z
datasets:
- HuggingFaceH4/ultra-chat
- plain
model_creator: Some One
model_name: My Model
description: >
  folded text
  over lines
widget:
- text: hello
  example: |
     a
       b
quantized_by: nobody
---
# Title
`;

function general(files: Record<string, unknown>, folder = "bloom-nano", n_param = 0): [string, unknown][] {
  const metadata = new Metadata();
  writeGeneral(metadata, {
    json: (name) => files[name],
    text: (name) => files[name] as string | undefined,
  }, { folder, n_param, sizeLabel: undefined });
  return [...metadata].map(([key, v]) => [key.replace("general.", ""), v.type === "array" ? [...v.value] : v.value]);
}

// Keys, order and values as llama.cpp 0.7.0 writes them for this card.
Deno.test("writeGeneral() fills the keys that the converter fills from a model card", () => {
  const generation = { temperature: 0.5, top_k: 20, top_p: null, repetition_penalty: 1.25 };
  assert.deepEqual(general({ "README.md": CARD, "generation_config.json": generation }), [
    ["sampling.top_k", 20],
    ["sampling.temp", 0.5],
    ["sampling.penalty_repeat", 1.25],
    ["name", "My Model"],
    ["author", "Some One"],
    ["description", "folded text over lines\n"],
    ["license", "apache-2.0"],
    ["license.name", "our: license"],
    ["license.link", "https://example.org/l"],
    ["base_model.count", 3],
    ["base_model.0.name", "Big Model 7B Instruct v0.1"],
    ["base_model.0.version", "v0.1"],
    ["base_model.0.organization", "Org X"],
    ["base_model.0.repo_url", "https://huggingface.co/org-x/Big-Model-7B-Instruct-v0.1"],
    ["base_model.1.name", "Bar 13b Chat"],
    ["base_model.1.organization", "Foo"],
    ["base_model.1.repo_url", "https://huggingface.co/foo/Bar-13b-chat"],
    ["base_model.2.repo_url", "https://example.org/z"],
    ["dataset.count", 2],
    ["dataset.0.name", "Ultra Chat"],
    ["dataset.0.organization", "HuggingFaceH4"],
    ["dataset.0.repo_url", "https://huggingface.co/HuggingFaceH4/ultra-chat"],
    ["dataset.1.name", "Plain"],
    ["tags", ["text-generation", "tiny, small", "x", "text-generation"]],
    ["languages", ["en", "no", "de"]],
  ]);
});

Deno.test("writeGeneral() takes names from the folder and from _name_or_path", () => {
  assert.deepEqual(general({}, "Qwen3-8B-Instruct-v1.5", 8e9), [
    ["name", "Qwen3 8B Instruct v1.5"],
    ["version", "v1.5"],
    ["finetune", "Instruct"],
    ["basename", "Qwen3"],
    ["size_label", "8B"],
  ]);
  const config = { _name_or_path: "meta-llama/Llama-2-7b-hf" };
  assert.deepEqual(general({ "config.json": config }, "x", 6.7e9), [
    ["name", "Llama 2 7b Hf"],
    ["organization", "Meta Llama"],
    ["finetune", "hf"],
    ["basename", "Llama-2"],
    ["size_label", "7B"],
  ]);
  assert.deepEqual(general({ "README.md": "no front matter" }), [["name", "Bloom Nano"]]);
});

Deno.test("nameParts() and titleOf() read names as the converter does", () => {
  type Row = [id: string, n_param: number, parts: (string | null)[], title: string];
  const { names }: { names: Row[] } = JSON.parse(Deno.readTextFileSync(`${repoDir}tests/goldens/prepare/names.json`));
  for (const [id, n_param, parts, title] of names) {
    const p = nameParts(id, n_param);
    const got = [p.name, p.organization, p.basename, p.finetune, p.version, p.size_label].map((x) => x ?? null);
    assert.deepEqual(got, parts, id);
    assert.equal(titleOf(id), title);
  }
});

Deno.test("sizeLabel() counts one expert and what is shared", () => {
  assert.deepEqual([6_819_840, 690_000, 8e9, 22e9, 1.5e12].map(countLabel), ["6.8M", "690K", "8.0B", "22B", "1.5T"]);
  assert.deepEqual(
    sizeLabel([{ name: "token_embd.weight", ne: [256, 8192] }, {
      name: "blk.0.ffn_up_exps.weight",
      ne: [256, 256, 16],
    }]),
    { label: "16x2.2M", total: 2097152 + 1048576 },
  );
});

Deno.test("parseYaml() reads what cards use", () => {
  assert.deepEqual(
    parseYaml("a: 1\nb:\n  - x: 1\n    y: [p, 'q, r']\n  - z\nc: {k: v, l: null}\nd: |\n  1\n   2\ne:"),
    {
      a: "1",
      b: [{ x: "1", y: ["p", "q, r"] }, "z"],
      c: { k: "v", l: null },
      d: "1\n 2\n",
      e: null,
    },
  );
  assert.deepEqual(parseYaml("url: https://a.b/c#d # note\nt: it's\nu: 'it''s'\nlong: one\n  two"), {
    url: "https://a.b/c#d",
    t: "it's",
    u: "it's",
    long: "one two",
  });
  // Whatever stands there, it ends and gives something.
  for (const odd of ["", ":", "- - -", "a: [", "a: '", "{", "\n\n---", "a: |", "? x", "&a b", "a: &x 1"]) {
    parseYaml(odd);
  }
});
