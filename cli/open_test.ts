import assert from "node:assert/strict";
import { ggufValue } from "../core/gguf/metadata.ts";
import { openBackend } from "../ffi/mod.ts";
import { parseFileType } from "../quantize/file_types.ts";
import { openGgufSource } from "../quantize/quantize_source.ts";
import { quantize } from "../quantize/quantize.ts";
import { bloomNano, testFolder } from "../tests/models.ts";
import { fakeIo } from "./_testing.ts";
import { Flags } from "./command.ts";
import { openModelFromFlags } from "./open.ts";

Deno.test("a command warns of keys of the file that change the numbers and that nobody reads", async () => {
  const path = `${testFolder()}/unread.gguf`;
  using source = openGgufSource(await bloomNano("bf16"));
  using cpu = openBackend("cpu");
  const overrides = [{ key: "qwen3.attention.sliding_window", value: ggufValue.u32(64) }];
  await quantize(source, path, cpu.backend, { fileType: parseFileType("COPY"), overrides });
  const { io, printed } = fakeIo();
  using _ = await openModelFromFlags(new Flags(new Map([["model", path], ["device", "reference"]])), io);
  assert.equal(printed.warnings.length, 1);
  assert.match(printed.warnings[0], /qwen3\.attention\.sliding_window/);
});
