import assert from "node:assert/strict";
import { Flags } from "./command.ts";
import { refuseExisting } from "./overwrite.ts";

Deno.test("refuseExisting() keeps files and sets, unless --overwrite is given", () => {
  const dir = Deno.makeTempDirSync();
  try {
    const none = new Flags(new Map()), all = new Flags(new Map([["overwrite", true]]));
    Deno.writeTextFileSync(`${dir}/a.gguf`, "");
    Deno.writeTextFileSync(`${dir}/b-00002-of-00003.gguf`, "");
    assert.throws(() => refuseExisting(`${dir}/a.gguf`, none), {
      code: "usage.output_exists",
      hint: "choose another output, or give --overwrite",
    });
    refuseExisting(`${dir}/a.gguf`, all);
    refuseExisting(`${dir}/c.gguf`, none);
    refuseExisting(`${dir}/b.gguf`, none);
    assert.throws(() => refuseExisting(`${dir}/b.gguf`, none, { set: true }), { code: "usage.output_exists" });
    assert.throws(() => refuseExisting(`${dir}/b`, none, { set: true }), /b-00002-of-00003\.gguf/);
    refuseExisting(`${dir}/a.gguf`, none, { set: true });
    for (const flags of [none, all]) {
      assert.throws(() => refuseExisting(dir, flags), { code: "usage.output", message: /: it is a folder$/ });
      assert.throws(() => refuseExisting("/dev/null", flags), { code: "usage.output", message: /it is a device/ });
      assert.throws(() => refuseExisting(`${dir}/nowhere/a.gguf`, flags), { code: "os.not_found" });
      assert.throws(() => refuseExisting(`${dir}/a.gguf/b.gguf`, flags), { code: "os.not_folder" });
    }
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});
