/**
 * Draft blocks of the tiny checkpoints of ../shared: they are prepared, bound and checked with their model. The forward pass does not
 * use them.
 */
import assert from "node:assert/strict";
import { bindModel } from "../core/arch/model.ts";
import { openGguf } from "../core/gguf/read.ts";
import { prepare } from "../quantize/prepare/mod.ts";
import { testFolder } from "./models.ts";
import { sharedDir } from "./shared.ts";

const TINY = `${sharedDir}models/tiny/`;

/** A checkpoint with its draft block: the model's files, and those of mtp/ in their place. */
function withDraft(name: string): string {
  const folder = `${testFolder()}/draft-${name}`;
  Deno.mkdirSync(folder);
  for (const from of [`${TINY}${name}`, `${TINY}mtp/${name}`]) {
    for (const { name: file } of Deno.readDirSync(from)) {
      if (/^(reference|expected)/.test(file)) continue;
      try {
        Deno.removeSync(`${folder}/${file}`);
      } catch { /* the model has no such file */ }
      Deno.symlinkSync(`${from}/${file}`, `${folder}/${file}`);
    }
  }
  return folder;
}

for (const name of ["deepseek_v3", "deepseek_v4", "glm4_moe", "glm5_next", "qwen3_5_moe", "qwen3_next"]) {
  Deno.test({
    name: `the draft block of tiny ${name} is bound`,
    ignore: sharedDir === undefined,
    fn: async () => {
      const path = `${testFolder()}/draft-${name}.gguf`;
      const options = { outtype: "f32" as const, dequantize: true };
      await prepare(withDraft(name), path, options);
      using file = openGguf(path);
      const model = bindModel(file);
      assert.equal(model.spec.n_nextn, 1);
      assert.deepEqual(model.warnings, []);
    },
  });
}
