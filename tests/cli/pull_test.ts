/** `bloomery pull` and `-hf` as processes, against a local server that plays the Hub. */
import assert from "node:assert/strict";
import { fakeHub } from "../../hub/_testing.ts";
import { bloomNano } from "../models.ts";
import { repoDir } from "../shared.ts";

async function bloomery(args: string[], env: Record<string, string>) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, ...args],
    env,
    stdin: "null",
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, out: text(stdout), err: text(stderr) };
}

Deno.test("pull downloads a model, -hf uses it, and --offline needs no Hub", async () => {
  const file = Deno.readFileSync(await bloomNano("bf16"));
  const dir = Deno.makeTempDirSync({ prefix: "pull-" });
  try {
    await using hub = fakeHub({ files: { "nano-BF16.gguf": file }, token: "hf_test" });
    hub.failures.push({ kind: "cut", after: 5_000_000 });
    const env = { HF_ENDPOINT: hub.endpoint, HF_TOKEN: "hf_test", XDG_CACHE_HOME: dir, LLAMA_CACHE: "" };
    const pulled = await bloomery(["pull", "owner/model-GGUF"], env);
    const path = `${dir}/bloomery/models/owner/model-GGUF/nano-BF16.gguf`;
    assert.deepEqual([pulled.code, pulled.out], [0, `${path}\n`], pulled.err);
    assert.match(
      pulled.err,
      /nano-BF16\.gguf: the connection was cut .*; trying again\nfetched 13\.9 MB of 13\.9 MB in /,
    );
    assert.deepEqual(Deno.readFileSync(path), file);
    const again = await bloomery(["pull", "owner/model-GGUF:BF16", "--json", "--offline"], {
      ...env,
      HF_ENDPOINT: "http://x.invalid",
    });
    const document = JSON.parse(again.out);
    assert.deepEqual([document.schema, document.path, document.fetched_bytes], ["bloomery.pull.v1", path, 0]);
    const flags = ["--device", "reference", "-n", "0", "-c", "64", "-q"];
    const ran = await bloomery(["run", "-hf", "owner/model-GGUF", ...flags, "hi"], env);
    assert.deepEqual([ran.code, ran.out], [0, "\n"], ran.err);
    const refused = await bloomery(["pull", "owner/model-GGUF"], { ...env, HF_TOKEN: "" });
    assert.equal(refused.code, 1);
    assert.match(
      refused.err,
      /the Hub answers 401, and no access token was given \[hub\.unauthorized\]\nhint: .*HF_TOKEN/,
    );
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});
