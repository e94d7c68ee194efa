import assert from "node:assert/strict";
import { writeSynthetic } from "../tests/quantize/synthetic.ts";

const main = new URL("./main.ts", import.meta.url).pathname;

Deno.test("bloomery quantize --device refuses what does not encode, and writes nothing", async () => {
  const folder = Deno.makeTempDirSync();
  writeSynthetic(`${folder}/in.gguf`);
  for (
    const [device, words] of [["reference", /it has no encoders/], ["cuda:99", /cuda/], [
      "tpu",
      /expected auto/,
    ]] as const
  ) {
    const { code, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", main, "quantize", "--device", device, "in.gguf", "out.gguf", "Q8_0"],
      cwd: folder,
      stdout: "null",
      stderr: "piped",
    }).output();
    assert.notEqual(code, 0, device);
    assert.match(new TextDecoder().decode(stderr), words, device);
    assert.deepEqual([...Deno.readDirSync(folder)].map((e) => e.name), ["in.gguf"]);
  }
  Deno.removeSync(folder, { recursive: true });
});
