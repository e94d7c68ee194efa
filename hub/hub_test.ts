import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { BloomeryError } from "../core/errors.ts";
import { type FakeHub, fakeHub, type FakeOptions, noise } from "./_testing.ts";
import { type Pulled, pullModel, type PullOptions } from "./mod.ts";
import { chooseFiles, type HubFile, isSafePath, parseRepository, readTree } from "./repository.ts";

const MODEL = noise(300_000);
const NAME = "model-Q4_K_M.gguf";
const REPO = "owner/model-GGUF";

interface Run {
  hub: FakeHub;
  dir: string;
  /** Where the model's file goes. */
  path: string;
  notes: string[];
  waits: number[];
  pull: (name?: string, options?: Partial<PullOptions>) => Promise<Pulled>;
}

async function withHub(options: Partial<FakeOptions>, test: (run: Run) => Promise<void>): Promise<void> {
  await using hub = fakeHub({ files: { [NAME]: MODEL }, ...options });
  const dir = await Deno.makeTempDir({ prefix: "hub-" });
  const notes: string[] = [], waits: number[] = [];
  try {
    await test({
      hub,
      dir,
      path: `${dir}/${REPO}/${NAME}`,
      notes,
      waits,
      pull: (name = REPO, more = {}) =>
        pullModel(name, {
          endpoint: hub.endpoint,
          cacheDir: dir,
          sleep: (ms) => Promise.resolve(void waits.push(ms)),
          onRetry: (text) => void notes.push(text),
          onNote: (text) => void notes.push(text),
          ...more,
        }),
    });
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

const ranges = (hub: FakeHub) => hub.requests.filter((r) => r.path.includes("resolve")).map((r) => r.range);
const exists = (path: string) => Deno.stat(path).then(() => true, () => false);

Deno.test("pullModel() fetches a model once, and asks for the list alone when it is there", () =>
  withHub({}, async ({ hub, pull, path }) => {
    const seen: number[] = [];
    const first = await pull(REPO, { onProgress: (p) => void seen.push(p.done) });
    assert.deepEqual([first.path, first.bytes, first.fetched], [path, MODEL.length, MODEL.length]);
    assert.deepEqual(await Deno.readFile(path), MODEL);
    assert.deepEqual([seen.at(-1), seen.toSorted((a, b) => a - b)], [MODEL.length, seen]);
    assert.ok(!await exists(`${path}.partial`));
    const second = await pull();
    assert.deepEqual([second.path, second.fetched], [path, 0]);
    assert.deepEqual(ranges(hub), [null]);
  }));

Deno.test("a cut connection is gone on from where it was cut", () =>
  withHub({}, async ({ hub, pull, path, notes }) => {
    hub.failures.push({ kind: "cut", after: 100_000 }, { kind: "cut", after: 50_000 });
    await pull();
    assert.deepEqual(await Deno.readFile(path), MODEL);
    const asked = ranges(hub);
    assert.equal(asked.length, 3);
    assert.match(asked[1]!, /^bytes=\d+-$/);
    assert.ok(Number(/\d+/.exec(asked[2]!)![0]) > Number(/\d+/.exec(asked[1]!)![0]));
    assert.match(notes[0], /model-Q4_K_M\.gguf: the connection was cut after \d+ of 300000 bytes.*; trying again/);
  }));

Deno.test("a stopped download goes on where it stopped, and counts only its own bytes", () =>
  withHub({}, async ({ hub, pull, path }) => {
    const stop = new AbortController();
    hub.failures.push({ kind: "cut", after: 120_000 });
    const stopped = pull(REPO, { signal: stop.signal, onRetry: () => stop.abort() });
    await assert.rejects(stopped, { name: "AbortError" });
    const kept = (await Deno.stat(`${path}.partial`)).size;
    assert.ok(kept > 0 && kept <= 120_000);
    assert.ok(!await exists(path));
    const before: number[] = [];
    const { fetched } = await pull(REPO, { onProgress: (p) => void before.push(p.resumed) });
    assert.equal(fetched, MODEL.length - kept);
    assert.ok(before.every((n) => n === kept));
    assert.equal(ranges(hub).at(-1), `bytes=${kept}-`);
    assert.deepEqual(await Deno.readFile(path), MODEL);
  }));

Deno.test("a server that does not go on in the middle sends the whole file", () =>
  withHub({}, async ({ hub, pull, path }) => {
    hub.failures.push({ kind: "cut", after: 100_000 }, { kind: "ignore-range" });
    await pull();
    assert.deepEqual(await Deno.readFile(path), MODEL);
  }));

Deno.test("an overloaded Hub is asked again, as late as it says, and given up after five failures in a row", () =>
  withHub({}, async ({ hub, pull, path, waits, dir }) => {
    hub.listFailures.push({ kind: "status", status: 503 });
    hub.failures.push({ kind: "status", status: 500 }, {
      kind: "status",
      status: 429,
      headers: { "retry-after": "7" },
    });
    await pull();
    assert.deepEqual(await Deno.readFile(path), MODEL);
    assert.equal(waits.at(-1), 7000);
    await Deno.remove(`${dir}/owner`, { recursive: true });
    for (let i = 0; i < 5; i++) hub.failures.push({ kind: "status", status: 502 });
    await assert.rejects(pull(), (error: BloomeryError) => {
      assert.equal(error.code, "hub.unreachable");
      assert.match(error.message, /127\.0\.0\.1:\d+ answers 502, 5 times in a row$/);
      return true;
    });
  }));

Deno.test("a private or gated repository says what is missing, and the token opens it", () =>
  withHub({ token: "hf_right" }, async ({ pull, path }) => {
    await assert.rejects(pull(), (error: BloomeryError) => {
      assert.equal(error.code, "hub.unauthorized");
      assert.match(error.hint!, /HF_TOKEN/);
      return true;
    });
    await assert.rejects(pull(REPO, { token: "hf_wrong" }), { code: "hub.gated" });
    await pull(REPO, { token: "hf_right" });
    assert.deepEqual(await Deno.readFile(path), MODEL);
  }));

Deno.test("the token goes to the Hub and not to where it redirects", () =>
  withHub({ token: "hf_secret", redirect: true }, async ({ hub, pull, path }) => {
    await pull(REPO, { token: "hf_secret" });
    assert.deepEqual(await Deno.readFile(path), MODEL);
    const elsewhere = hub.requests.filter((r) => r.path.startsWith("/network/"));
    assert.deepEqual(elsewhere.map((r) => [r.host, r.authorization]), [["localhost", null]]);
    assert.ok(hub.requests.some((r) => r.authorization === "Bearer hf_secret"));
  }));

Deno.test("bytes with a wrong hash are not taken, and nothing of them is left to go on from", () =>
  withHub({}, async ({ hub, pull, path }) => {
    const wrong = MODEL.slice();
    wrong[1000] ^= 1;
    hub.failures.push({ kind: "bytes", bytes: wrong });
    await assert.rejects(pull(), { code: "hub.checksum" });
    assert.ok(!await exists(path));
    assert.equal((await Deno.stat(`${path}.partial`)).size, 0);
    await pull();
    assert.deepEqual(await Deno.readFile(path), MODEL);
  }));

Deno.test("a damaged part of an earlier run is fetched again without a word from the user", () =>
  withHub({}, async ({ pull, path, notes, dir }) => {
    await Deno.mkdir(`${dir}/${REPO}`, { recursive: true });
    await Deno.writeFile(`${path}.partial`, noise(150_000, 9));
    await pull();
    assert.deepEqual(await Deno.readFile(path), MODEL);
    assert.match(notes.join(), /what an earlier run had fetched is damaged/);
    // More bytes than the file has: begun anew at once.
    await Deno.remove(path);
    await Deno.writeFile(`${path}.partial`, noise(400_000, 9));
    await pull();
    assert.deepEqual(await Deno.readFile(path), MODEL);
  }));

Deno.test("a file of another size than the list says is refused", () =>
  withHub({}, async ({ hub, pull, path }) => {
    hub.failures.push({ kind: "bytes", bytes: MODEL.subarray(0, 299_999) });
    await assert.rejects(pull(), { code: "hub.size" });
    hub.failures.push({ kind: "bytes", bytes: noise(300_001) });
    await assert.rejects(pull(), { code: "hub.size" });
    assert.ok(!await exists(path));
  }));

Deno.test("a small file, which git itself keeps, is checked against git's hash", () =>
  withHub({ small: true }, async ({ hub, pull, path }) => {
    hub.failures.push({ kind: "bytes", bytes: noise(300_000, 2) });
    await assert.rejects(pull(), { code: "hub.checksum" });
    await pull();
    assert.deepEqual(await Deno.readFile(path), MODEL);
  }));

Deno.test("a file that changed on the Hub is fetched anew; one without a note is hashed and kept", async () => {
  await withHub({}, async ({ hub, pull, path }) => {
    await pull();
    await Deno.remove(`${path}.json`);
    assert.equal((await pull()).fetched, 0);
    assert.deepEqual(ranges(hub), [null]);
    const changed = noise(300_000, 3);
    await using other = fakeHub({ files: { [NAME]: changed } });
    const { fetched } = await pull(REPO, { endpoint: other.endpoint });
    assert.equal(fetched, changed.length);
    assert.deepEqual(await Deno.readFile(path), changed);
  });
});

Deno.test("without a network what was downloaded is used, and said so", () =>
  withHub({}, async ({ hub, pull, path, notes, dir }) => {
    await assert.rejects(pull(REPO, { offline: true }), { code: "hub.not_downloaded" });
    await pull();
    const asked = hub.requests.length;
    assert.equal((await pull(REPO, { offline: true })).path, path);
    assert.equal(hub.requests.length, asked);
    const nowhere = { endpoint: "http://127.0.0.1:9" }; // discard: nobody listens there
    assert.equal((await pull(REPO, nowhere)).path, path);
    assert.match(notes.at(-1)!, /cannot be reached; using what was downloaded before \(model-Q4_K_M\.gguf\)/);
    await Deno.remove(`${dir}/owner`, { recursive: true });
    await assert.rejects(pull(REPO, nowhere), { code: "hub.unreachable" });
  }));

Deno.test("a split set comes whole, from a list of several pages", async () => {
  const parts = [1, 2, 3].map((i) => [`Q8_0/m-Q8_0-0000${i}-of-00003.gguf`, noise(1000 + i, i)] as const);
  const files = { ...Object.fromEntries(parts), "README.gguf": noise(5), "mmproj-Q8_0.gguf": noise(9) };
  await withHub({ files, pageSize: 2 }, async ({ pull, dir }) => {
    const { path, paths, bytes } = await pull(`${REPO}:q8_0`);
    assert.equal(path, `${dir}/${REPO}/${parts[0][0]}`);
    assert.deepEqual(paths, parts.map(([name]) => `${dir}/${REPO}/${name}`));
    assert.equal(bytes, 1001 + 1002 + 1003);
    for (const [name, data] of parts) assert.deepEqual(await Deno.readFile(`${dir}/${REPO}/${name}`), data);
  });
});

Deno.test("two downloads of one file at the same time give one whole file", () =>
  withHub({}, async ({ pull, path }) => {
    await Promise.all([pull(), pull()]);
    assert.deepEqual(await Deno.readFile(path), MODEL);
    assert.ok(!await exists(`${path}.partial`));
  }));

Deno.test("a list that leads out of the folder, or is none, is refused", async () => {
  const bad: [(entries: any[]) => unknown, RegExp][] = [
    [(e) => (e[0].path = "../../evil.gguf", e), /leads out of the repository/],
    [(e) => (e[0].path = "/etc/x.gguf", e), /leads out of the repository/],
    [(e) => (e[0].lfs.oid = "abc", e), /has no checksum/],
    [() => ({ error: "no" }), /expected array/],
  ];
  for (const [edit, message] of bad) {
    await withHub({ edit }, async ({ pull, dir }) => {
      await assert.rejects(pull(), (error: BloomeryError) => {
        assert.equal(error.code, "hub.answer");
        assert.match(error.message, message);
        return true;
      });
      assert.deepEqual([...Deno.readDirSync(dir)], []);
    });
  }
});

Deno.test("an error names the repository or file that is not there", () =>
  withHub({}, async ({ pull }) => {
    await assert.rejects(pull("owner/none"), { code: "hub.not_found" });
    await assert.rejects(pull(`${REPO}:Q2_K`), (error: BloomeryError) => {
      assert.equal(error.code, "hub.no_model");
      assert.match(error.message, /it has no file of type Q2_K$/);
      assert.match(error.hint!, /model-Q4_K_M\.gguf/);
      return true;
    });
    await assert.rejects(pull(REPO, { file: "other.gguf" }), { code: "hub.no_model" });
    await assert.rejects(pull(REPO, { endpoint: "ftp://x" }), { code: "hub.endpoint" });
  }));

Deno.test("parseRepository() takes OWNER/REPO[:QUANT] and nothing else", () => {
  assert.deepEqual(parseRepository("a/b-c.d_1:Q4_K_M"), { repo: "a/b-c.d_1", quant: "Q4_K_M" });
  assert.deepEqual(parseRepository("a/b"), { repo: "a/b" });
  for (const text of ["", "a", "a/b/c", "../b", "a/..", "a/b:", "a b/c", "https://huggingface.co/a/b", "a/b?x"]) {
    assert.throws(() => parseRepository(text), { code: "hub.name" }, text);
  }
});

Deno.test("chooseFiles() prefers Q4_K_M, takes a quantization as a word, and refuses a set with holes", () => {
  const file = (path: string): HubFile => ({ path, size: 1, hash: { kind: "sha256", hex: "0".repeat(64) } });
  const files = ["m-BF16.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-imatrix.gguf", "s-IQ4_XS-00002-of-00002.gguf"].map(
    file,
  );
  const chosen = (wanted: { quant?: string; file?: string }, of = files) =>
    chooseFiles("a/b", of, wanted).map((f) => f.path);
  assert.deepEqual(chosen({}), ["m-Q4_K_M.gguf"]);
  assert.deepEqual(chosen({}, files.slice(0, 2)), ["m-BF16.gguf"]);
  assert.deepEqual(chosen({ quant: "bf16" }), ["m-BF16.gguf"]);
  assert.deepEqual(chosen({ file: "m-imatrix.gguf" }), ["m-imatrix.gguf"]);
  assert.throws(() => chosen({ quant: "Q4" }), { code: "hub.no_model" });
  assert.throws(() => chosen({ file: "s-IQ4_XS-00002-of-00002.gguf" }), { code: "hub.missing_shard" });
});

Deno.test("readTree() survives any answer, and gives only paths below the folder", () => {
  const text = fc.oneof(fc.string(), fc.json());
  const entry = fc.record({
    type: fc.constantFrom("file", "directory"),
    path: fc.oneof(fc.string(), fc.string().map((s) => `${s}.gguf`), fc.constant("../x.gguf")),
    size: fc.oneof(fc.nat(), fc.double(), fc.constant(null)),
    oid: fc.string(),
    lfs: fc.option(fc.record({ oid: fc.stringMatching(/^[0-9a-f]{64}$/), size: fc.nat() })),
  }, { requiredKeys: ["type", "path"] });
  const answers = fc.oneof(text, fc.array(entry).map((list) => JSON.stringify(list)));
  fc.assert(fc.property(answers, (answer) => {
    try {
      for (const f of readTree(answer, "a/b")) {
        assert.ok(isSafePath(f.path), f.path);
        assert.ok(
          !new URL(f.path.split("/").map(encodeURIComponent).join("/"), "file:///x/").pathname.startsWith("/x/../"),
        );
      }
    } catch (error) {
      assert.ok(error instanceof BloomeryError && error.code === "hub.answer", String(error));
    }
  }));
});
