/**
 * `deno run -A scripts/peer_vectors.ts --peer "COMMAND" --root DIR`: writes tests/goldens/peer_vectors.json, the vectors that llama.cpp
 * makes of a text with the random models of tests/encoder_models.ts, pooled in every way that they have. By hand, as
 * `scripts/peer_logits.ts`, whose flags these are.
 * @module
 */
import { ENCODER_MODELS } from "../tests/encoder_models.ts";
import { encoderModel, PEER_VECTORS_PATH, type PeerVectors, poolingsOf } from "../tests/peer_encoders.ts";
import { peerText } from "../tests/peer_models.ts";

function flag(name: string): string | undefined {
  const i = Deno.args.indexOf(`--${name}`);
  return i < 0 ? undefined : Deno.args[i + 1];
}

const command = (flag("peer") ?? "llama-debug").split(" "), root = flag("root") ?? Deno.makeTempDirSync();
const seen = flag("seen-as") ?? root;

/** What llama.cpp makes of a model's file, pooled in one way. */
async function ask(file: string, text: string, pooling: string): Promise<{ ids: number[]; vector: number[] }> {
  const { success, stderr } = await new Deno.Command(command[0], {
    args: [
      ...command.slice(1),
      ...["-m", `${seen}/${file}.gguf`, "-p", text, "--embedding", "--pooling", pooling, "--embd-normalize", "-1"],
      ...["--save-logits", "--logits-output-dir", seen],
      ...["-ctk", "f32", "-ctv", "f32", "-fa", "off", "-t", "1", "-c", "256"],
    ],
    stdout: "null",
  }).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  const read = (suffix: string) => Deno.readFileSync(`${root}/llamacpp-${file}-embeddings${suffix}.bin`).buffer;
  const vector = Array.from(new Float32Array(read("")), (x) => Number(x.toPrecision(7)));
  return { ids: [...new Int32Array(read("-tokens"))], vector };
}

const models: Record<string, PeerVectors> = {};
for (const name of Object.keys(ENCODER_MODELS)) {
  const file = `peer-${name.replace(/\W+/g, "-")}`, path = `${root}/${file}.gguf`;
  await encoderModel(path, name);
  let ids: number[] = [];
  const vectors: Record<string, number[]> = {};
  for (const { pooling, n } of poolingsOf(name)) {
    const got = await ask(file, peerText(name), pooling);
    ids = got.ids;
    // It writes as many numbers of scores as a vector has.
    vectors[pooling] = got.vector.slice(0, n);
  }
  Deno.removeSync(path);
  models[name] = { ids, vectors };
  console.error(name);
}
const golden = { made_by: "scripts/peer_vectors.ts, llama.cpp 0.7.0, F32 weights, one thread, not normalised", models };
const text = JSON.stringify(golden, null, 1).replace(
  /\[\s+([^\]]*?)\s+\]/g,
  (_, list: string) => `[${list.replace(/\s+/g, " ")}]`,
);
Deno.writeTextFileSync(PEER_VECTORS_PATH, text + "\n");
