import assert from "node:assert/strict";
import { needingShared, sharedDir } from "../../tests/shared.ts";
import { FormatError } from "../errors.ts";
import { smallSafetensors } from "./_testing.ts";
import { type Checkpoint, openCheckpoint } from "./checkpoint.ts";

const INDEX = "model.safetensors.index.json";
const shard = (i: number, n: number) => `model-0000${i}-of-0000${n}.safetensors`;
const index = (map: Record<string, unknown>) => JSON.stringify({ metadata: {}, weight_map: map });

/** Opens a folder with these files and closes what it opened. */
async function withFolder(files: Record<string, Uint8Array | string>, run: (open: () => Checkpoint) => void) {
  const dir = await Deno.makeTempDir();
  const opened: Checkpoint[] = [];
  try {
    for (const [name, content] of Object.entries(files)) {
      const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
      await Deno.writeFile(`${dir}/${name}`, bytes);
    }
    run(() => {
      opened.push(openCheckpoint(dir));
      return opened.at(-1)!;
    });
  } finally {
    for (const c of opened) c.close();
    await Deno.remove(dir, { recursive: true });
  }
}

function problems(open: () => Checkpoint): string[] {
  try {
    open();
  } catch (error) {
    assert.ok(error instanceof FormatError, `${error}`);
    assert.equal(error.code, "format.checkpoint", error.message);
    const list = error.at.problems as string[];
    for (const p of list) assert.ok(error.message.includes(p));
    return list;
  }
  return assert.fail("was opened");
}

const two = {
  [shard(1, 2)]: smallSafetensors({ a: 3, b: 20 }),
  [shard(2, 2)]: smallSafetensors({ c: 15, d: 16 }),
};
const twoMap = { a: shard(1, 2), b: shard(1, 2), c: shard(2, 2), d: shard(2, 2) };

Deno.test("openCheckpoint() opens one file, and reads the folder's JSON and text files", () =>
  withFolder({
    "model.safetensors": smallSafetensors({ w: 3 }),
    "config.json": '{"model_type":"x"}',
    "chat_template.jinja": "{{ x }}",
    "broken.json": "{",
  }, (open) => {
    const c = open();
    assert.deepEqual([...c.readTensor(c.tensor("w"))], [1, 2, 3]);
    assert.deepEqual([...c.readTensor(c.tensor("w"), 1, 1)], [2]);
    assert.deepEqual(c.json("config.json"), { model_type: "x" });
    assert.equal(c.json("absent.json"), undefined);
    assert.equal(c.text("chat_template.jinja"), "{{ x }}");
    assert.ok(c.has("config.json") && !c.has("absent.json"));
    assert.throws(() => c.json("broken.json"), { code: "format.bad_json", message: /broken\.json/ });
    assert.throws(() => c.tensor("v"), { code: "format.missing_tensor", message: /"v"/ });
  }));

Deno.test("openCheckpoint() opens the shards of an index, and numbered shards without one", async () => {
  await withFolder({ ...two, [INDEX]: index(twoMap) }, (open) => {
    const c = open();
    assert.deepEqual([...c.tensors.keys()], ["a", "b", "c", "d"]);
    assert.deepEqual(c.warnings, []);
    assert.equal(c.readTensor(c.tensor("d"))[0], 16);
  });
  await withFolder(two, (open) => assert.equal(open().tensors.size, 4));
  // Files that belong to something else stay out.
  await withFolder({ ...two, "consolidated.safetensors": smallSafetensors({ a: 1 }) }, (open) => {
    assert.equal(open().files.length, 2);
  });
});

Deno.test("openCheckpoint() lists every short shard with the bytes it lacks, empty files and LFS pointers", async () => {
  const cut = two[shard(2, 2)].subarray(0, two[shard(2, 2)].length - 10);
  await withFolder({ [shard(1, 2)]: two[shard(1, 2)], [shard(2, 2)]: cut, [INDEX]: index(twoMap) }, (open) => {
    const list = problems(open);
    assert.equal(list.length, 1);
    assert.match(list[0], /^model-00002-of-00002\.safetensors: .* 10 are missing$/);
  });
  const lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 4976698672\n";
  const names = [1, 2, 3, 4].map((i) => shard(i, 4));
  const map = Object.fromEntries(names.map((n, i) => [`t${i}`, n]));
  const files = { [names[0]]: cut, [names[1]]: "", [names[2]]: lfs, [INDEX]: index(map) };
  await withFolder(files, (open) => {
    const list = problems(open);
    assert.equal(list.length, 4);
    assert.match(list[0], /00001.*10 are missing/);
    assert.match(list[1], /00002.*is empty \(0 bytes\)/);
    assert.match(list[2], /00003.*Git LFS pointer.*4976698672 bytes/);
    assert.match(list[3], /^model-00004-of-00004\.safetensors is missing$/);
  });
});

Deno.test("openCheckpoint() names missing shards, with and without an index", async () => {
  const one = { [shard(1, 3)]: smallSafetensors({ a: 1 }), [shard(3, 3)]: smallSafetensors({ c: 1 }) };
  const want = [`${shard(2, 3)} is missing`];
  await withFolder(one, (open) => assert.deepEqual(problems(open), want));
  const map = { a: shard(1, 3), b: shard(2, 3), c: shard(3, 3) };
  await withFolder({ ...one, [INDEX]: index(map) }, (open) => assert.deepEqual(problems(open), want));
});

Deno.test("openCheckpoint() goes on with a warning where a stale index names files that others replace", async () => {
  const stale = { a: shard(1, 4), b: shard(2, 4), c: shard(3, 4), d: shard(4, 4) };
  await withFolder({ ...two, [INDEX]: index(stale) }, (open) => {
    const c = open();
    assert.equal(c.tensors.size, 4);
    assert.equal(c.warnings.length, 1);
    assert.match(c.warnings[0], /index\.json is stale: it names 4 files of which 4 are not there/);
  });
  await withFolder({ ...two, [INDEX]: index({ ...stale, e: shard(4, 4) }) }, (open) => {
    const list = problems(open);
    assert.equal(list.length, 5);
    assert.match(list[4], /2 of the 4 files wanted; .*index\.json does not name 2 other files/);
  });
});

Deno.test("openCheckpoint() finds tensors that moved, are in no file, or in two", async () => {
  await withFolder({ ...two, [INDEX]: index({ ...twoMap, a: shard(2, 2) }) }, (open) => {
    assert.match(open().warnings[0], /stale: 1 tensors are in other files/);
  });
  await withFolder({ ...two, [INDEX]: index({ ...twoMap, z: shard(2, 2), y: shard(1, 2) }) }, (open) => {
    const list = problems(open);
    assert.equal(list.length, 2);
    assert.match(list[0], /tensor "z" is not in .*00002/);
  });
  await withFolder({ ...two, [INDEX]: index({ a: shard(1, 2), c: shard(2, 2) }) }, (open) => {
    assert.match(open().warnings[0], /2 tensors are in the files and not in .*"b"/);
  });
  const same = { ...two, [shard(2, 2)]: smallSafetensors({ a: 1 }) };
  await withFolder(same, (open) => {
    assert.deepEqual(problems(open), [`tensor "a" is in ${shard(1, 2)} and in ${shard(2, 2)}`]);
  });
});

Deno.test("openCheckpoint() refuses an index that leads out of the folder or is malformed", async () => {
  for (const file of ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", 7, "x.bin", "..\\x.safetensors"]) {
    await withFolder({ ...two, [INDEX]: index({ a: file }) }, (open) => {
      assert.throws(open, { code: "format.bad_index" });
    });
  }
  for (const text of ["{}", "[]", "null", '{"weight_map":[]}', '{"weight_map":3}']) {
    await withFolder({ ...two, [INDEX]: text }, (open) => assert.throws(open, { code: "format.bad_index" }));
  }
  await withFolder({ ...two, [INDEX]: "{" }, (open) => assert.throws(open, { code: "format.bad_json" }));
});

Deno.test("openCheckpoint() says when a folder is none", async () => {
  assert.throws(() => openCheckpoint("/nonexistent"), { code: "format.unreadable", message: /nonexistent/ });
  await withFolder({ "config.json": "{}" }, (open) => {
    assert.throws(open, { code: "format.unreadable", message: /no safetensors file/ });
  });
  const unrelated = { "a.safetensors": smallSafetensors({ a: 1 }), "b.safetensors": smallSafetensors({ b: 1 }) };
  await withFolder(unrelated, (open) => assert.throws(open, { message: /2 safetensors files \(a\.safetensors, b/ }));
});

Deno.test({
  ...needingShared("openCheckpoint() opens every checkpoint of the shared folder"),
  fn() {
    const models = sharedDir! + "models/";
    const dirs = [...Deno.readDirSync(models + "tiny/")]
      .filter((e) => e.isDirectory && e.name !== "mtp") // parts of others
      .map((e) => `tiny/${e.name}`);
    for (const dir of ["bloom-nano", "bloom-nano-moe", ...dirs]) {
      using c = openCheckpoint(models + dir);
      assert.ok(c.tensors.size > 0);
      assert.deepEqual(c.warnings, [], dir);
    }
  },
});
