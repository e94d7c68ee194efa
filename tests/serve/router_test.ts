/** Several models behind one address: listed, started when asked for, the idle one leaves, streams and failures pass through. */
import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { Ollama } from "npm:ollama@0.6.3";
import OpenAI from "npm:openai@7.59.0";
import { Flags, type FlagValue } from "../../cli/command.ts";
import { handedOn, ownCommand, wantsRouter } from "../../cli/serve_router.ts";
import { UsageError } from "../../core/errors.ts";
import { libraryPath } from "../../ffi/mod.ts";
import { modelsInFolder, modelsOfPreset, parsePreset } from "../../serve/router/catalog.ts";
import { type RunningRouter, startRouter } from "../../serve/router/server.ts";
import { bloomNano, testFolder } from "../models.ts";
import { repoDir } from "../shared.ts";

const native = libraryPath("cpu") !== undefined;

async function folderOf(name: string, names: readonly string[]): Promise<string> {
  const dir = `${testFolder()}/${name}`, nano = await bloomNano("bf16");
  Deno.mkdirSync(dir, { recursive: true });
  for (const n of names) Deno.copyFileSync(nano, `${dir}/${n}.gguf`);
  return dir;
}

async function withRouter(
  dir: string,
  options: { most?: number; autoload?: boolean; apiKeys?: string[] },
  test: (router: RunningRouter) => Promise<void>,
): Promise<void> {
  const folder = Deno.makeTempDirSync();
  const router = await startRouter({
    port: 0,
    models: modelsInFolder(dir),
    most: options.most ?? 4,
    command: ownCommand(`${repoDir}cli/main.ts`),
    args: ["--device=cpu", "--ctx-size=256", "--parallel=2", "--threads=1"],
    folder,
    ...options,
  });
  try {
    await test(router);
  } finally {
    await router.stop();
    Deno.removeSync(folder, { recursive: true });
  }
}

async function call(router: RunningRouter, path: string, body?: unknown, init: RequestInit = {}) {
  const response = await fetch(router.url + path, {
    ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
    ...init,
  });
  return { status: response.status, body: await response.json() };
}

async function states(router: RunningRouter): Promise<Record<string, string>> {
  const { body } = await call(router, "/v1/models");
  return Object.fromEntries(body.data.map((m: any) => [m.id, m.status.value]));
}

/** Processes of this machine that have a word in their command line. */
function processesOf(word: string): number[] {
  return [...Deno.readDirSync("/proc")].map((e) => Number(e.name)).filter((pid) => {
    try {
      return pid > 0 && Deno.readTextFileSync(`/proc/${pid}/cmdline`).split("\0").includes(word);
    } catch {
      return false; // it has ended
    }
  });
}

const PROMPT = { prompt: "What is 27 + 58?", n_predict: 4, temperature: 0 };

Deno.test({
  name: "a router starts the model that a request names, and hands the answer on",
  ignore: !native,
  fn: async () => {
    const dir = await folderOf("router", ["one", "two", "three"]);
    await withRouter(dir, { most: 2 }, async (router) => {
      assert.deepEqual(await states(router), { one: "unloaded", three: "unloaded", two: "unloaded" });
      const { body: props } = await call(router, "/props");
      assert.deepEqual([props.role, props.max_instances, props.models_autoload], ["router", 2, true]);
      assert.equal((await call(router, "/health")).body.status, "ok");

      const first = await call(router, "/completion", { ...PROMPT, model: "one" });
      assert.equal(first.status, 200, JSON.stringify(first.body));
      assert.deepEqual(await states(router), { one: "loaded", three: "unloaded", two: "unloaded" });
      const openai = new OpenAI({ baseURL: `${router.url}/v1`, apiKey: "none", maxRetries: 0 });
      const messages = [{ role: "user" as const, content: "What is 27 + 58?" }];
      let text = "";
      for await (
        const chunk of await openai.chat.completions.create({ model: "two", messages, temperature: 0, stream: true })
      ) {
        text += chunk.choices[0]?.delta.content ?? "";
      }
      assert.match(text, /85/);
      // A third one takes the place of the one that was not used for longest.
      const ollama = new Ollama({ host: router.url });
      const answer = await ollama.chat({ model: "three:latest", messages, options: { temperature: 0 } });
      assert.match(answer.message.content, /85/);
      assert.deepEqual(await states(router), { one: "unloaded", three: "loaded", two: "loaded" });
      assert.deepEqual((await ollama.list()).models.map((m) => m.name), ["one:latest", "three:latest", "two:latest"]);
      assert.deepEqual((await ollama.ps()).models.map((m) => m.name), ["three:latest", "two:latest"]);
      // The same answer from a model that left and came back; several at once wait for its start.
      const again = await Promise.all([1, 2, 3].map(() => call(router, "/completion", { ...PROMPT, model: "one" })));
      for (const { body } of again) assert.equal(body.content, first.body.content);
      const { body: slots } = await call(router, "/slots?model=one");
      assert.equal(slots.length, 2);

      const refused = async (path: string, body: unknown, status: number, message: RegExp) => {
        const got = await call(router, path, body);
        assert.deepEqual([got.status, message.test(got.body.error.message)], [status, true], JSON.stringify(got.body));
      };
      await refused("/completion", PROMPT, 400, /model name is missing from the request/);
      await refused("/completion", { ...PROMPT, model: "four" }, 400, /model 'four' not found/);
      await refused("/models/load", { model: "four" }, 404, /model 'four' not found/);
      await refused("/models/load", { model: "one" }, 400, /already running/);
      await refused("/models/load", {}, 400, /model name is missing/);
      await refused("/slots", undefined, 400, /model name is missing/);
      await refused("/v1/models/four", undefined, 404, /not found/);
      await refused("/nothing", undefined, 404, /no GET \/nothing/);
      for (let i = 0; i < 2; i++) {
        assert.deepEqual((await call(router, "/models/unload", { model: "one" })).body, { success: true });
      }
      assert.equal((await states(router)).one, "unloaded");
      await refused("/completion?autoload=false", { ...PROMPT, model: "one" }, 400, /model 'one' is not loaded/);
      assert.deepEqual((await call(router, "/models/load", { model: "one" })).body, { success: true });
      const page = await fetch(`${router.url}/`);
      assert.match(page.headers.get("content-type")!, /html/);
      await page.body?.cancel();
    });
  },
});

Deno.test({
  name: "a client that leaves, a server that is killed and a file that is no model do not stop a router",
  ignore: !native,
  fn: async () => {
    const dir = await folderOf("router-faults", ["good"]);
    Deno.writeTextFileSync(`${dir}/bad.gguf`, "this is no model");
    await withRouter(dir, { most: 1, apiKeys: ["secret"] }, async (router) => {
      const key = { headers: { authorization: "Bearer secret" } };
      assert.equal((await call(router, "/completion", { ...PROMPT, model: "good" })).status, 401);
      const bad = await call(router, "/completion", { ...PROMPT, model: "bad" }, key);
      assert.deepEqual([bad.status, bad.body.error.code], [500, "model_failed"]);
      assert.match(bad.body.error.message, /bad\.gguf/);
      const { body: list } = await call(router, "/models", undefined, key);
      const status = list.data.find((m: any) => m.id === "bad").status;
      assert.deepEqual([status.value, status.failed, status.exit_code], ["unloaded", true, 1]);

      // A stream that nobody reads any more frees its slot.
      const stop = new AbortController();
      const response = await fetch(`${router.url}/completion`, {
        method: "POST",
        body: JSON.stringify({ ...PROMPT, model: "good", n_predict: 200, ignore_eos: true, stream: true }),
        signal: stop.signal,
        ...key,
      });
      await response.body!.getReader().read();
      stop.abort();
      const good = router.fleet.find("good")!;
      for (let i = 0; i < 200 && good.n_active > 0; i++) await new Promise((resolve) => setTimeout(resolve, 20));
      assert.equal(good.n_active, 0);
      for (let i = 0;; i++) {
        const { body } = await call(router, "/slots?model=good", undefined, key);
        if (!body.some((s: any) => s.is_processing)) break;
        assert.ok(i < 200, "a slot is kept");
        await new Promise((resolve) => setTimeout(resolve, 20));
      }

      // Killed between two requests, it is started again.
      const pids = processesOf(`${dir}/good.gguf`);
      assert.ok(pids.length > 0);
      for (const pid of pids) Deno.kill(pid, "SIGKILL");
      for (let i = 0; i < 200 && good.state !== "unloaded"; i++) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      assert.equal(good.state, "unloaded");
      assert.equal((await call(router, "/completion", { ...PROMPT, model: "good" }, key)).status, 200);
    });
    assert.deepEqual(processesOf(`${dir}/good.gguf`), [], "a model's server outlives its router");
  },
});

Deno.test("models of a folder and of a preset file", async () => {
  const dir = await folderOf("catalog", []);
  Deno.mkdirSync(`${dir}/sub`);
  for (
    const name of [
      "a.gguf",
      "b-00001-of-00002.gguf",
      "b-00002-of-00002.gguf",
      "mmproj-a.gguf",
      "notes.txt",
      "sub/a.gguf",
      "sub/c.GGUF",
    ]
  ) {
    Deno.writeTextFileSync(`${dir}/${name}`, "");
  }
  assert.deepEqual(modelsInFolder(dir).map((m) => m.id), ["catalog/a", "b", "sub/a", "c"]);
  assert.throws(() => modelsInFolder(`${dir}/none`), (e) => e instanceof UsageError && e.code === "usage.models");
  assert.throws(() => modelsOfPreset(`${dir}/none.ini`), (e) => e instanceof UsageError && e.code === "usage.models");
  const text = `; a comment
[*]
ctx-size = 4096
jinja = true
[big]
model = /m/big.gguf
ctx-size = 512
alias = large, b
load-on-startup = true
[small]
m = "/m/small.gguf"
no-such = false
`;
  assert.deepEqual(parsePreset(text, "x.ini"), [
    {
      id: "big",
      aliases: ["large", "b"],
      path: "/m/big.gguf",
      args: ["--ctx-size", "512", "--jinja"],
      loadOnStartup: true,
    },
    {
      id: "small",
      aliases: [],
      path: "/m/small.gguf",
      args: ["--ctx-size", "4096", "--jinja", "--no-no-such"],
      loadOnStartup: false,
    },
  ]);
  for (const bad of ["model = x", "[a]\nmodel", "[a]\nctx-size = 1", "[a]\nmodel=x\n[a]\nmodel=y"]) {
    assert.throws(() => parsePreset(bad, "x.ini"), (e) => e instanceof UsageError && /x\.ini/.test(e.message), bad);
  }
  fc.assert(fc.property(fc.string(), (text) => {
    try {
      parsePreset(text, "x.ini");
    } catch (e) {
      assert.ok(e instanceof UsageError);
    }
  }));
});

Deno.test("what of a command line goes to a model's server", () => {
  const values: [string, FlagValue][] = [
    ["ctx-size", 512],
    ["models-dir", "d"],
    ["port", 1],
    ["api-key", ["k"]],
    ["metrics", true],
    ["slots", false],
    ["lora", ["a", "b"]],
    ["threads", 3],
  ];
  const flags = (origin: "flag" | "default" | "env") =>
    new Flags(new Map(values), new Map(values.map(([n]) => [n, origin])));
  assert.deepEqual(handedOn(flags("flag")), [
    "--ctx-size=512",
    "--metrics",
    "--no-slots",
    "--lora=a",
    "--lora=b",
    "--threads=3",
  ]);
  assert.deepEqual(handedOn(flags("default")), []);
  assert.equal(wantsRouter(new Flags(new Map())), true);
  assert.equal(wantsRouter(new Flags(new Map([["model", "x"]]))), false);
  assert.throws(() => wantsRouter(new Flags(new Map([["model", "x"], ["models-dir", "y"]]))), UsageError);
});
