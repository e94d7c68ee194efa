/** `bloomery serve` as a process: it starts, answers, drains at the first signal and ends at once at the second. */
import assert from "node:assert/strict";
import { repoDir } from "../shared.ts";
import { ENCODER_MODELS } from "../encoder_models.ts";
import { writeFamilyModel } from "../family_models.ts";
import { bloomNano, testFolder } from "../models.ts";
import { WORDPIECE } from "../peer_encoders.ts";
import { readEvents } from "./harness.ts";

interface Served {
  url: string;
  process: Deno.ChildProcess;
  /** What it wrote to stderr so far. */
  log: () => string;
}

async function spawn(...flags: string[]): Promise<Served> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, "serve", "--device", "reference", ...flags],
    cwd: repoDir,
    stdout: "null",
    stderr: "piped",
  });
  const process = command.spawn();
  let log = "";
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  (async () => {
    for await (const part of process.stderr.pipeThrough(new TextDecoderStream())) {
      log += part;
      const url = /serving on (http:\S+):/.exec(log)?.[1];
      if (url !== undefined) resolve(url);
    }
    reject(new Error(`ended before it served: ${log}`));
  })();
  return { url: await promise, process, log: () => log };
}

const babble = (url: string, n_predict: number) =>
  fetch(url + "/completion", {
    method: "POST",
    body: JSON.stringify({ prompt: "The", n_predict, stream: true, ignore_eos: true }),
  });

Deno.test("bloomery serve answers, and SIGTERM lets the running answer finish", async () => {
  const { url, process, log } = await spawn(
    "-m",
    await bloomNano("bf16"),
    "--port",
    "0",
    "--ctx-size",
    "64",
    "-a",
    "nano",
  );
  const models = await (await fetch(url + "/v1/models")).json();
  assert.equal(models.data[0].id, "nano");
  const running = await babble(url, 6);
  process.kill("SIGTERM");
  const events = readEvents(await running.text());
  assert.deepEqual([events.at(-1).stop, events.at(-1).tokens_predicted], [true, 6]);
  assert.equal((await process.status).code, 0, log());
});

Deno.test("bloomery serve takes llama-server's flags: slots, defaults of a request, /slots off, a warning about keys", async () => {
  const { url, process, log } = await spawn(
    ...[
      "-m",
      await bloomNano("bf16"),
      "--port",
      "0",
      "--host",
      "0.0.0.0",
      "-c",
      "128",
      "-np",
      "2",
      "-n",
      "3",
      "--temp",
      "0.25",
    ],
    ...["--top-k", "5", "--ignore-eos", "--no-slots", "-fa", "--jinja", "--mlock", "-b", "64", "--seed", "42"],
    ...["--verbose", "--props", "--tags", "a,b", "--chat-template", "llama3", "-r", "QQ", "--adaptive-decay", "0.5"],
  );
  const at = url.replace("0.0.0.0", "127.0.0.1");
  const props = await (await fetch(at + "/props")).json();
  const { n_ctx, params } = props.default_generation_settings;
  assert.equal(n_ctx, 64);
  assert.deepEqual([params.temperature, params.top_k], [0.25, 5]);
  const post = async (body: object) =>
    await (await fetch(at + "/completion", { method: "POST", body: JSON.stringify({ prompt: "The", ...body }) }))
      .json();
  assert.equal((await post({})).tokens_predicted, 3);
  const five = await post({ n_predict: 5 });
  assert.equal(five.tokens_predicted, 5);
  assert.deepEqual([five.generation_settings.stop, five.generation_settings.seed], [["QQ"], 42]);
  assert.deepEqual([params.seed, params.adaptive_decay], [42, 0.5]);
  const [{ tags }] = (await (await fetch(`${at}/v1/models`)).json()).data;
  assert.deepEqual(tags, ["a", "b"]);
  const set = await fetch(`${at}/props`, { method: "POST", body: "{}" });
  assert.deepEqual(await set.json(), { success: true });
  const chat = await fetch(`${at}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ messages: [{ role: "user", content: "Hi" }] }),
  });
  assert.ok((await chat.json()).__verbose.prompt.includes("<|start_header_id|>user<|end_header_id|>\n\nHi"));
  const slots = await fetch(at + "/slots");
  assert.equal(slots.status, 501);
  await slots.body?.cancel();
  process.kill("SIGTERM");
  assert.equal((await process.status).code, 0, log());
  assert.match(log(), /warning: listening on 0\.0\.0\.0 without a key: /);
  assert.match(log(), /warning: --jinja has no effect: chat templates are always Jinja\n/);
  assert.match(log(), /: 2 slots of 64 tokens\n/);
});

Deno.test("bloomery serve ends at once at the second signal", async () => {
  const { url, process, log } = await spawn("-m", await bloomNano("bf16"), "--port", "0", "--ctx-size", "512");
  const running = await babble(url, 500);
  process.kill("SIGTERM");
  // Two signals that arrive before the first is seen are one.
  while (!log().includes("finishing")) await new Promise((resolve) => setTimeout(resolve, 10));
  process.kill("SIGTERM");
  assert.equal((await process.status).code, 130);
  await assert.rejects(running.text());
});

Deno.test("bloomery serve refuses a port in use, a missing model and broken JSON in one message", async () => {
  const taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = taken.addr as Deno.NetAddr;
  const model = await bloomNano("bf16");
  const pem = (kind: string) => `${repoDir}tests/serve/cases/localhost.${kind}.pem`;
  const cases: [string[], string, number][] = [
    [["-m", model, "--port", String(port), "--ctx-size", "64"], "usage.address", 2],
    [["-m", model, "--host", "no.such.host.invalid", "-c", "64"], "no host has this name [usage.address]", 2],
    [["-m", model, "--host", "8.8.8.8", "-c", "64"], "it is no address of this machine [usage.address]", 2],
    [["-m", model, "--chat-template-kwargs", "{"], "usage.value", 2],
    [["-m", model, "--chat-template-file", "/nowhere"], "usage.file", 2],
    [["-m", model, "--chat-template", "lama3"], "did you mean llama3?", 2],
    [["-m", model, "--grammar", "x", "-j", "{}"], "usage.value", 2],
    [["-m", model, "--ssl-key-file", pem("key")], "--ssl-cert-file is missing", 2],
    [["-m", model, "--ssl-key-file", pem("key"), "--ssl-cert-file", pem("key")], "Cannot speak HTTPS", 2],
    [["-m", model, "--slot-save-path", "/nowhere"], "it is no folder", 2],
    [["-m", "/nowhere.gguf", "--port", "0"], "/nowhere.gguf", 1],
    // What needs no weights is looked at before them.
    [["-m", "/nowhere.gguf", "--port", String(port)], "usage.address", 2],
    [["-m", "/nowhere.gguf", "--port", "0", "--host", "no.such.host.invalid"], "usage.address", 2],
    [["-m", "/nowhere.gguf", "--port", "0", "--log-file", "/nowhere/log"], "usage.file", 2],
    [["-m", "/nowhere.gguf", "--port", "0", "--cors-origins", "example.org"], "usage.value", 2],
  ];
  try {
    for (const [flags, expected, code] of cases) {
      const { stderr, code: got } = await new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", "--no-check", `${repoDir}cli/main.ts`, "serve", "--device", "reference", ...flags],
        cwd: repoDir,
      }).output();
      const text = new TextDecoder().decode(stderr);
      assert.ok(text.includes(expected), text);
      assert.equal(got, code, text);
      assert.ok(!text.includes("    at "), text);
    }
  } finally {
    taken.close();
  }
});

Deno.test("bloomery serve logs each request in a line, without prompts, on stderr or into a file", async () => {
  const model = await bloomNano("bf16");
  const folder = await Deno.makeTempDir();
  try {
    const flags = ["-m", model, "--port", "0", "--ctx-size", "64", "-np", "1", "-a", "one,two", "-a", "three"];
    const ask = async (url: string) => {
      const body = JSON.stringify({ prompt: "A secret thing", max_tokens: 2 });
      const { model } = await (await fetch(`${url}/v1/completions`, { method: "POST", body })).json();
      assert.equal(model, "one");
      const entry = await (await fetch(`${url}/v1/models/three`)).json();
      assert.deepEqual(entry.aliases, ["two", "three"]);
    };
    const plain = await spawn(...flags);
    await ask(plain.url);
    plain.process.kill("SIGTERM");
    await plain.process.status;
    assert.match(
      plain.log(),
      /\n\S+Z {2}POST {2}\/v1\/completions {2}200 {2}in \d+ {2}cached 0 {2}out 2 {2}first \d+ ms/,
    );
    assert.ok(!plain.log().includes("secret"));
    const file = `${folder}/log.jsonl`;
    const json = await spawn(...flags, "--log-file", file, "--log-format", "json", "--log-prompts");
    await ask(json.url);
    json.process.kill("SIGTERM");
    await json.process.status;
    assert.ok(!json.log().includes("completions"));
    const entries = (await Deno.readTextFile(file)).trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(entries.map((e) => [e.route, e.status]), [["/v1/completions", 200], ["/v1/models/three", 200]]);
    assert.ok(entries[0].prompts[0].includes("A secret thing"));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("bloomery serve gives slots what the model was trained for, and says so", async () => {
  const { url, process, log } = await spawn("-m", await bloomNano("bf16"), "--port", "0");
  const [{ meta }] = (await (await fetch(`${url}/v1/models`)).json()).data;
  assert.equal(meta.n_ctx, meta.n_ctx_train);
  process.kill("SIGTERM");
  await process.status;
  assert.ok(log().includes(`context of ${meta.n_ctx} tokens: what the model was trained for`), log());
});

Deno.test("bloomery serve ranks with --reranking, and refuses what does not fit by name", async () => {
  const path = await writeFamilyModel(`${testFolder()}/cli-rerank.gguf`, ENCODER_MODELS["bert, reranker"], {
    written: WORDPIECE,
  });
  const post = async (url: string, path: string, body: unknown) =>
    await (await fetch(url + path, { method: "POST", body: JSON.stringify(body) })).json();
  const rank = await spawn("-m", path, "--port", "0", "--rerank");
  const { results } = await post(rank.url, "/v1/rerank", { query: "what", documents: ["the cat", "dog"] });
  assert.equal(results.length, 2);
  rank.process.kill("SIGKILL");
  await rank.process.status;
  for (const [flags, code] of [[["--rerank", "--pooling", "mean"], "usage.value"], [[], "usage.encoder"]] as const) {
    await assert.rejects(
      spawn("-m", path, "--port", "0", ...flags),
      new RegExp(`ended before it served: .*${code}`, "s"),
    );
  }
});

Deno.test("SIGHUP reads keys and the template again, and what cannot be read changes nothing", async () => {
  const keys = `${testFolder()}/keys`, template = `${testFolder()}/hup.jinja`;
  Deno.writeTextFileSync(keys, "first\n");
  Deno.writeTextFileSync(template, "A{{ messages[0].content }}");
  const { url, process, log } = await spawn(
    ...["-m", await bloomNano("bf16"), "--port", "0", "--ctx-size", "64"],
    ...["--api-key-file", keys, "--chat-template-file", template],
  );
  const prompt = async (key: string) => {
    const response = await fetch(`${url}/apply-template`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ messages: [{ role: "user", content: "x" }] }),
    });
    const { prompt } = await response.json();
    return [response.status, prompt];
  };
  const hangUp = async (told: RegExp) => {
    const before = log().length;
    process.kill("SIGHUP");
    for (let i = 0; i < 300 && !told.test(log().slice(before)); i++) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.match(log().slice(before), told);
  };
  assert.deepEqual(await prompt("first"), [200, "Ax"]);
  Deno.writeTextFileSync(keys, "second\n");
  Deno.writeTextFileSync(template, "B{{ messages[0].content }}");
  const running = await fetch(`${url}/completion`, {
    method: "POST",
    headers: { authorization: "Bearer first" },
    body: JSON.stringify({ prompt: "The", n_predict: 6, stream: true, ignore_eos: true }),
  });
  await hangUp(/read keys and the chat template again/);
  assert.equal(readEvents(await running.text()).at(-1).tokens_predicted, 6, "what runs goes on");
  assert.deepEqual(await prompt("second"), [200, "Bx"]);
  assert.equal((await prompt("first"))[0], 401);
  for (const [path, text] of [[template, "{% if %}"], [keys, "# nobody\n"]]) {
    const good = Deno.readTextFileSync(path);
    Deno.writeTextFileSync(path, text);
    await hangUp(/stay as they were/);
    Deno.writeTextFileSync(path, good);
    assert.deepEqual(await prompt("second"), [200, "Bx"]);
  }
  process.kill("SIGTERM");
  assert.equal((await process.status).code, 0, log());
});
