/**
 * The kernels one by one: builds and runs csrc/cuda/tests/op_test.cpp, which compares every op and weight type with float64 and
 * checks by bits that rows do not depend on each other.
 */
import assert from "node:assert/strict";
import { libraryPath, openNativeBackend } from "../../ffi/mod.ts";
import { needing, repoDir } from "../shared.ts";
import { testFolder } from "../models.ts";

function hasCard(): boolean {
  if (libraryPath("cuda") === undefined) return false;
  using backend = openNativeBackend("cuda");
  return backend.devices.some((d) => d.kind === "cuda");
}

async function run(command: string, args: string[], env: Record<string, string> = {}): Promise<string> {
  const out = await new Deno.Command(command, { args, env, stdout: "piped", stderr: "piped" }).output();
  const text = new TextDecoder().decode(out.stdout) + new TextDecoder().decode(out.stderr);
  assert.ok(out.success, `${command} failed:\n${text}`);
  return text;
}

Deno.test({
  ...needing("cuda: every op against float64, and rows by bits", hasCard(), "a card"),
  fn: async () => {
    const library = libraryPath("cuda")!;
    const folder = library.slice(0, library.lastIndexOf("/"));
    const program = `${testFolder()}/cuda_op_test`;
    await run(Deno.env.get("CXX") ?? "c++", [
      "-O2",
      "-std=c++17",
      `${repoDir}csrc/cuda/tests/op_test.cpp`,
      `${repoDir}csrc/common/dequantize.cpp`,
      `-L${folder}`,
      "-l:libbloomery_cuda.so",
      "-o",
      program,
    ]);
    const seed = String(Date.now() % 100000);
    const text = await run(program, [seed], { LD_LIBRARY_PATH: folder });
    assert.match(text, /^0 failures$/m, `seed ${seed}`);
  },
});
