/**
 * `deno run -A scripts/peer_logits.ts --peer "COMMAND" --root DIR`: writes tests/goldens/peer_logits.json, what llama.cpp makes of the random
 * models of tests/family_models.ts: logits of the last of some tokens. By hand, with llama.cpp's `llama-debug` at hand; the test of
 * the same name needs none.
 *
 * COMMAND runs `llama-debug` (`--peer llama-debug`, or with a wrapper before it); it sees the files of DIR, a folder for temporary
 * files, as `--seen-as` says (default: as they are).
 * @module
 */
import { FAMILY_MODELS } from "../tests/family_models.ts";
import { PEER_LOGITS_PATH, type PeerLogits, peerModel, peerText, VARIANTS } from "../tests/peer_models.ts";

function flag(name: string): string | undefined {
  const i = Deno.args.indexOf(`--${name}`);
  return i < 0 ? undefined : Deno.args[i + 1];
}

const command = (flag("peer") ?? "llama-debug").split(" "), root = flag("root") ?? Deno.makeTempDirSync();
const seen = flag("seen-as") ?? root;
const models: Record<string, PeerLogits> = {}, without: Record<string, string> = {};

/** What llama.cpp makes of a model, or why it makes nothing. */
async function ask(name: string, variant: string): Promise<PeerLogits | string> {
  const file = `peer-${name.replace(/\W+/g, "-")}`, path = `${root}/${file}.gguf`;
  try {
    await peerModel(path, name, variant);
  } catch (error) {
    return String(error);
  }
  const { success, stderr } = await new Deno.Command(command[0], {
    args: [
      ...command.slice(1),
      ...["-m", `${seen}/${file}.gguf`, "-p", peerText(name), "--save-logits", "--logits-output-dir", seen],
      ...["-ctk", "f32", "-ctv", "f32", "-fa", "off", "-t", "1", "-c", "256"],
    ],
    stdout: "null",
  }).output();
  Deno.removeSync(path);
  if (!success) {
    const said = new TextDecoder().decode(stderr).split("\n").filter((line) => /error|assert/i.test(line));
    return (said[0] ?? "llama-debug ended with an error").replace(/^\S+ \w /, "").replaceAll(seen, "");
  }
  const read = (suffix: string) => Deno.readFileSync(`${root}/llamacpp-${file}${suffix}.bin`).buffer;
  const logits = Array.from(new Float32Array(read("")), (x) => Number(x.toPrecision(7)));
  return { variant, ids: [...new Int32Array(read("-tokens"))], logits };
}

for (const name of Object.keys(FAMILY_MODELS)) {
  let why: string | undefined;
  for (const variant of Object.keys(VARIANTS)) {
    const got = await ask(name, variant);
    if (typeof got === "string") why ??= got;
    else {
      models[name] = got;
      break;
    }
  }
  if (models[name] === undefined) without[name] = why!;
  console.error(`${name}: ${models[name]?.variant ?? why}`);
}
const golden = {
  made_by: "scripts/peer_logits.ts, llama.cpp 0.7.0, F32 weights and caches, one thread",
  models,
  without,
};
const text = JSON.stringify(golden, null, 1).replace(
  /\[\s+([^\]]*?)\s+\]/g,
  (_, list: string) => `[${list.replace(/\s+/g, " ")}]`,
);
Deno.writeTextFileSync(PEER_LOGITS_PATH, text + "\n");
