import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../core/errors.ts";
import { noise, sha256 } from "./_testing.ts";
import { type FakeStore, fakeStore } from "./_upload_testing.ts";
import { uploadFiles, type UploadOptions } from "./upload.ts";

const REPO = "owner/model-GGUF";
const FILES = {
  "m-Q8_0.gguf": noise(1000, 1),
  "m-Q4_0.gguf": noise(400, 2),
  "README.md": new TextEncoder().encode("# m\n"),
};

async function withStore(
  body: (store: FakeStore, upload: (more?: Partial<UploadOptions>) => ReturnType<typeof uploadFiles>) => Promise<void>,
): Promise<void> {
  const dir = Deno.makeTempDirSync();
  try {
    await using store = fakeStore({ repo: REPO, token: "hf_secret", partSize: 450 });
    for (const [name, bytes] of Object.entries(FILES)) Deno.writeFileSync(`${dir}/${name}`, bytes);
    const files = Object.keys(FILES).map((name) => ({ path: `${dir}/${name}`, name }));
    await body(store, (more = {}) =>
      uploadFiles(files, {
        endpoint: store.endpoint,
        token: "hf_secret",
        repo: REPO,
        revision: "main",
        private: true,
        summary: "two models",
        sleep: () => Promise.resolve(),
        ...more,
      }));
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
}

const check = (store: FakeStore) =>
  assert.deepEqual(Object.fromEntries(store.files), Object.fromEntries(Object.entries(FILES)));

Deno.test("uploadFiles() makes the repository and one commit of small files, whole objects and objects in parts", () =>
  withStore(async (store, upload) => {
    const progress: number[] = [];
    const { commit, sent } = await upload({ onProgress: (p) => progress.push(p.done) });
    assert.equal(commit, `http://x/${REPO}/commit/1`);
    assert.equal(sent, 1400);
    check(store);
    assert.equal(store.summary, "two models");
    assert.deepEqual(store.created, { type: "model", name: "model-GGUF", organization: "owner", private: true });
    assert.deepEqual(progress, [450, 900, 1000, 1000, 1400, 1400]);
    const puts = store.requests.filter((r) => r.what.startsWith("PUT ") || r.what.includes("/complete/"));
    assert.equal(puts.length, 5);
    assert.ok(puts.every((r) => r.authorization === null), "the storage never sees the token");
    assert.equal(store.requests.filter((r) => r.what === "POST /verify" && r.authorization !== null).length, 2);
  }));

Deno.test("uploadFiles() does not send what the Hub has already, so that a stopped upload goes on", () =>
  withStore(async (store, upload) => {
    store.objects.set(sha256(FILES["m-Q8_0.gguf"]), FILES["m-Q8_0.gguf"]);
    assert.equal((await upload()).sent, 400);
    check(store);
    assert.equal((await upload()).sent, 0, "a repository that is there is no error");
  }));

Deno.test("uploadFiles() tries again what fails for a while, and gives up by name", () =>
  withStore(async (store, upload) => {
    const waits: number[] = [];
    for (
      const on of [/create/, /preupload/, /batch/, /PUT .*\/2$/, /PUT .*[0-9a-f]{64}$/, /complete/, /verify/, /commit/]
    ) {
      store.failures.push({ on, status: 503 }, { on, status: 429, headers: { "retry-after": "3" } });
    }
    await upload({ sleep: (ms) => Promise.resolve(void waits.push(ms)) });
    check(store);
    assert.equal(waits.length, 16);
    assert.equal(waits.filter((ms) => ms === 3000).length, 8);
    store.objects.clear();
    for (let i = 0; i < 5; i++) store.failures.push({ on: /PUT/, status: 500 });
    await assert.rejects(upload(), { code: "hub.unreachable", message: /m-Q8_0\.gguf/ });
  }));

Deno.test("uploadFiles() says what was refused", () =>
  withStore(async (store, upload) => {
    await assert.rejects(upload({ token: "wrong" }), { code: "hub.unauthorized" });
    store.failures.push({ on: /PUT/, status: 400 });
    await assert.rejects(upload(), {
      code: "hub.refused",
      message: /m-Q8_0\.gguf: localhost:\d+ answers 400, failed on purpose/,
    });
    store.edit = (route, answer) => {
      if (route === "batch") answer.objects[0].error = { code: 507, message: "no space" };
    };
    await assert.rejects(upload(), { code: "hub.answer", message: /m-Q8_0\.gguf: .*507, no space/ });
    store.edit = (route, answer) => {
      if (route === "batch") delete answer.objects[0].actions.upload.header["00002"];
    };
    await assert.rejects(upload(), { code: "hub.answer", message: /2 parts of 450 bytes for a file of 1000/ });
  }));

Deno.test("uploadFiles() ends with a commit or a HubError, whatever the Hub answers", () =>
  withStore(async (store, upload) => {
    const values = fc.oneof(fc.jsonValue(), fc.constantFrom(null, [], {}, 0, "", -1));
    const paths = [
      "files",
      "files.0",
      "files.0.path",
      "files.0.uploadMode",
      "objects",
      "objects.0",
      "objects.0.actions",
      "objects.0.actions.upload.header.chunk_size",
      "commitUrl",
    ];
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...paths), values, async (path, value) => {
        store.objects.clear();
        store.edit = (_, answer) => {
          const keys = path.split(".");
          let place = answer;
          for (const key of keys.slice(0, -1)) place = place?.[key];
          if (place !== null && typeof place === "object") place[keys.at(-1)!] = value;
        };
        try {
          await upload();
        } catch (e) {
          assert.ok(e instanceof BloomeryError && e.code.startsWith("hub."), String(e));
        }
      }),
      { numRuns: 60 },
    );
  }));
