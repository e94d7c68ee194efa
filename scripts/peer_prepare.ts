/**
 * `deno run -A scripts/peer_prepare.ts --peer "COMMAND" --root DIR`: writes tests/goldens/prepare/encoders.json, the sums of the files
 * that llama.cpp's converter makes of the checkpoints of quantize/prepare/_encoders.ts. By hand; the test of the same checkpoints
 * needs none.
 *
 * COMMAND runs Python with llama.cpp's converter (`python3 convert_hf_to_gguf.py`, or with a wrapper before it, which has to name the
 * way of cutting text, as small vocabularies are not known). It sees the files of DIR as `--seen-as` says (default: as they are).
 * @module
 */
import { ENCODERS, testEncoder } from "../quantize/prepare/_encoders.ts";
import { sha256, writeCheckpoint } from "../quantize/prepare/_testing.ts";
import { repoDir } from "../tests/shared.ts";

function flag(name: string): string | undefined {
  const i = Deno.args.indexOf(`--${name}`);
  return i < 0 ? undefined : Deno.args[i + 1];
}

const command = (flag("peer") ?? "python3 convert_hf_to_gguf.py").split(" "),
  root = flag("root") ?? Deno.makeTempDirSync();
const seen = flag("seen-as") ?? root;
const sums: Record<string, string> = {};
for (const name of ENCODERS) {
  writeCheckpoint(`${root}/${name}`, testEncoder(name));
  const { success, stderr } = await new Deno.Command(command[0], {
    args: [...command.slice(1), `${seen}/${name}`, "--outtype", "f32", "--outfile", `${seen}/${name}.gguf`],
    stdout: "null",
  }).output();
  if (!success) {
    console.error(name, new TextDecoder().decode(stderr));
    continue;
  }
  sums[name] = await sha256(`${root}/${name}.gguf`);
  console.error(name);
}
Deno.writeTextFileSync(
  `${repoDir}tests/goldens/prepare/encoders.json`,
  JSON.stringify({ made_by: "scripts/peer_prepare.ts, llama.cpp 0.7.0, --outtype f32", sums }, null, 1) + "\n",
);
