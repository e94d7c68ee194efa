import assert from "node:assert/strict";
import { openGguf } from "../../core/gguf/read.ts";
import { sharedDir } from "../../tests/shared.ts";
import { sha256, withFolder } from "./_testing.ts";
import { prepare } from "./mod.ts";

/**
 * Keys that differ from llama.cpp's converter on purpose. Qwen3-Next: it reads the configuration through a library that
 * drops the interval, and writes the default 4 whatever the model has.
 */
const DIFFERENT: Record<string, string> = { qwen3_next: "qwen3next.full_attention_interval" };

const tiny = sharedDir ? `${sharedDir}models/tiny/` : undefined;
const names = tiny ? [...Deno.readDirSync(tiny)].filter((e) => e.isDirectory).map((e) => e.name).sort() : ["none"];

interface Expected {
  readonly options: readonly string[] | number;
  readonly files: Record<string, {
    sha256: string;
    metadata: { key: string; value?: unknown; count?: number }[];
    tensors: { name: string; type: string; ne: number[]; sha256: string }[];
  }>;
}

for (const name of names) {
  Deno.test({
    name: tiny
      ? `prepare() writes the ${name} checkpoint as llama.cpp's converter does`
      : "prepare() on one small checkpoint per family needs ../shared, which is not there",
    ignore: !tiny,
    fn: () =>
      withFolder(async (dir) => {
        const expected: Expected = JSON.parse(Deno.readTextFileSync(`${tiny}${name}/expected_gguf.json`));
        const mtp = !(Array.isArray(expected.options) && expected.options.includes("--no-mtp"));
        for (const outtype of ["f32", "bf16"] as const) {
          const out = `${dir}${outtype}.gguf`;
          await prepare(`${tiny}${name}`, out, { outtype, mtp });
          const want = expected.files[outtype];
          if (!DIFFERENT[name]) assert.equal(await sha256(out), want.sha256, outtype);
          else await sameBut(out, DIFFERENT[name], want);
        }
      }),
  });
}

/** Equal in all keys but one, and in all tensors. */
async function sameBut(path: string, key: string, want: Expected["files"][string]): Promise<void> {
  using file = openGguf(path);
  if (want.metadata) {
    assert.deepEqual([...file.metadata.keys()], want.metadata.map((m) => m.key));
    for (const m of want.metadata) {
      const got = file.metadata.get(m.key)!;
      if (m.key === key || got.type === "array") continue;
      assert.equal(got.value, m.value, m.key);
    }
  }
  assert.deepEqual(file.tensors.map((t) => t.name), want.tensors.map((t) => t.name));
  for (const [i, t] of file.tensors.entries()) {
    const digest = await crypto.subtle.digest("SHA-256", new Uint8Array(file.readTensor(t)));
    const hex = [...new Uint8Array(digest)].slice(0, 8).map((b) => b.toString(16).padStart(2, "0")).join("");
    assert.equal(hex, want.tensors[i].sha256, t.name);
  }
}
