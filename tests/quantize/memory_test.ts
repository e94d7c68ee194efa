/**
 * The bound of `--room`: no command takes more than room and 200 MB, whatever the sizes of model and tensors.
 * @module
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { needing, repoDir } from "../shared.ts";
import { measurePeak } from "./peak.ts";
import { writeSynthetic, writeSyntheticFolder } from "./synthetic.ts";

/** 160 MB in bf16, of which the embeddings have 100 MB: two of them in f32 would be too much already. */
const MODEL = { n_embd: 2048, n_ff: 2048, n_vocab: 24576, n_layer: 1, n_head: 16, tied: true, type: "bf16" };
const ROOM = 16e6;
const BEYOND = 200e6;

Deno.test({
  ...needing(
    "prepare and quantize hold --room, from both sources, and measure, split, merge and splice stream (C8)",
    Deno.build.os === "linux",
    "Linux",
  ),
  async fn() {
    const dir = Deno.makeTempDirSync({ prefix: "memory-" }) + "/";
    try {
      assert.ok(writeSynthetic(dir + "in.gguf", MODEL) > 150e6);
      writeSyntheticFolder(dir + "model", MODEL, 2);
      const main = ["run", "-A", "--no-check", `${repoDir}cli/main.ts`];
      const room = ["--room", String(ROOM)];
      const commands = {
        "quantize a file": ["quantize", "--device", "cpu", ...room, dir + "in.gguf", dir + "a.gguf", "Q4_0", "2"],
        "quantize a folder": [
          "quantize",
          "--device",
          "cpu",
          ...room,
          "--hf",
          dir + "model",
          dir + "b.gguf",
          "Q4_0",
          "2",
        ],
        "measure": [
          ...["measure", "--by", "error", "--rows", "0", "--types", "q4_0", "--device", "cpu", "--threads", "2"],
          ...["-m", dir + "in.gguf", "-o", dir + "losses.json"],
        ],
        "prepare": ["prepare", ...room, dir + "model", "-o", dir + "c.gguf", "--outtype", "f32"],
        "split": ["split", "--split-max-size", "110M", dir + "in.gguf", dir + "d"],
        "merge": ["merge", dir + "d-00001-of-00002.gguf", dir + "m.gguf"],
        "splice": ["splice", "--take", "blk.*", dir + "in.gguf", dir + "m.gguf", dir + "s.gguf"],
      };
      for (const [name, args] of Object.entries(commands)) {
        const peak = await measurePeak([...main, ...args]);
        assert.equal(peak.code, 0, peak.stderr);
        assert.ok(peak.bytes > 50e6, `${name}: nothing was measured`);
        assert.ok(
          peak.bytes <= ROOM + BEYOND,
          `${name}: peak of ${peak.bytes} bytes, expected ${ROOM + BEYOND} at most`,
        );
      }
      // The bytes are those of runs without a cap.
      const digest = (path: string) => createHash("sha256").update(Deno.readFileSync(dir + path)).digest("hex");
      const free = await measurePeak([
        ...main,
        "quantize",
        "--device",
        "cpu",
        dir + "in.gguf",
        dir + "e.gguf",
        "Q4_0",
        "2",
      ]);
      assert.equal(free.code, 0, free.stderr);
      assert.equal(digest("a.gguf"), digest("e.gguf"));
    } finally {
      Deno.removeSync(dir, { recursive: true });
    }
  },
});
