/** A Hugging Face folder that runs as it is: the bits of the file that `prepare` writes from it. */
import assert from "node:assert/strict";
import { fakeIo } from "../cli/_testing.ts";
import { Flags } from "../cli/command.ts";
import { openModelFromFlags } from "../cli/open.ts";
import { openTokenizer } from "../cli/tokenize.ts";
import { ModelError } from "../core/errors.ts";
import { openGguf } from "../core/gguf/read.ts";
import { LanguageModel } from "../core/language_model.ts";
import { openBackend } from "../ffi/mod.ts";
import { openFolderModel } from "../quantize/folder_model.ts";
import { prepare } from "../quantize/prepare/mod.ts";
import { servedModel } from "../serve/language_model.ts";
import { bloomNano, testFolder } from "./models.ts";
import { needingShared, repoDir, sharedDir } from "./shared.ts";

const NANO = `${repoDir}models/bloom-nano`;

/** Logits of the last position of a short prompt. */
async function logits(model: LanguageModel): Promise<Float32Array> {
  using sequence = model.engine.createSequence();
  const tokens = Array.from({ length: 12 }, (_, i) => (37 * i + 5) % model.engine.n_vocab);
  const [row] = await model.engine.step([{ sequence, tokens, output: "last", want: "logits" }]);
  return row.full!.slice();
}

Deno.test("a folder gives the bits of its file, and its matrices stay where they lie", async () => {
  using opened = openBackend("cpu");
  const { backend } = opened;
  const quantize = backend.quantize.bind(backend);
  using folder = openFolderModel(NANO, { quantize });
  const file = await bloomNano("auto");
  using prepared = openGguf(file);
  assert.deepEqual(
    folder.tensors.map((t) => [t.name, t.type.name, t.ne, t.bytes]),
    prepared.tensors.map((t) => [t.name, t.type.name, t.ne, t.bytes]),
  );
  for (const t of folder.tensors) {
    assert.deepEqual(folder.readTensor(t), prepared.readTensor(prepared.tensor(t.name)), t.name);
    const place = folder.place(t);
    if (place) assert.equal(place.bytes, t.bytes, t.name);
    else assert.deepEqual(await folder.make(t), folder.readTensor(t), t.name);
  }
  assert.ok(folder.place(folder.tensor("blk.0.ffn_down.weight"))?.path.endsWith("model.safetensors"));
  const n_converted = folder.converted.reduce((n, c) => n + c.n, 0);
  assert.ok(n_converted > 0 && n_converted < folder.tensors.length, `${n_converted} of ${folder.tensors.length}`);

  using a = await LanguageModel.load(openFolderModel(NANO, { quantize }), backend);
  using b = await LanguageModel.load(file, backend);
  assert.deepEqual(await logits(a), await logits(b));
  assert.equal(servedModel(a).id, "bloom-nano");
  assert.equal(servedModel(a).meta.size, servedModel(b).meta.size);
});

Deno.test("commands take a folder where they take a file, and say what is converted", async () => {
  const { io, printed } = fakeIo();
  using opened = await openModelFromFlags(new Flags(new Map([["model", `${NANO}/`], ["device", "cpu"]])), io);
  assert.equal(opened.model.file.name, `${NANO}/`);
  assert.match(printed.notes.join("\n"), /\d+ tensors of .*bloom-nano\/ become f32 while they load/);
  const [folder, file] = [await openTokenizer(NANO, io), await openTokenizer(await bloomNano("auto"), io)];
  assert.deepEqual([...folder.encode("What is 27 + 58?")], [...file.encode("What is 27 + 58?")]);
});

Deno.test("a folder that is no checkpoint is refused as prepare refuses it", () => {
  const dir = `${testFolder()}/nothing`;
  Deno.mkdirSync(dir);
  assert.throws(() => openFolderModel(dir), /nothing/);
  using folder = openFolderModel(NANO);
  assert.throws(() => folder.tensor("blk.99.attn_q.weight"), (e: unknown) => {
    assert.ok(e instanceof ModelError);
    assert.equal(e.code, "model.missing_tensor");
    return true;
  });
});

// What checkpoints hold in 8 and 4 bits, experts that are put together, tables of whole numbers.
for (
  const name of ["deepseek_v3", "deepseek_v4", "gpt_oss_mxfp4", "qwen3_moe", "kimi_k31", "gemma3", "mistral_large3"]
) {
  Deno.test({
    ...needingShared(`${name}: the folder gives the bits of its file`),
    async fn() {
      const dir = `${sharedDir}models/tiny/${name}`, file = `${testFolder()}/folder-${name}.gguf`;
      using opened = openBackend("cpu");
      const quantize = opened.backend.quantize.bind(opened.backend);
      await prepare(dir, file, { quantize });
      using a = await LanguageModel.load(openFolderModel(dir, { quantize }), opened.backend);
      using b = await LanguageModel.load(file, opened.backend);
      assert.deepEqual(await logits(a), await logits(b));
    },
  });
}
