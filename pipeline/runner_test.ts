import assert from "node:assert/strict";
import { planRun, runPipeline } from "./runner.ts";
import { bytesOf, PipelineState, sha256Of } from "./state.ts";
import type { Step } from "./steps.ts";

/** A small chain of steps whose files are texts: each output is made of its inputs. */
async function inFolder(body: (dir: string, steps: Step[]) => Promise<void>): Promise<void> {
  const dir = Deno.makeTempDirSync();
  try {
    Deno.mkdirSync(`${dir}/src`);
    Deno.writeTextFileSync(`${dir}/src/a`, "a");
    Deno.writeTextFileSync(`${dir}/src/b`, "b");
    Deno.writeTextFileSync(`${dir}/text`, "t");
    const step = (id: string, inputs: string[], outputs: string[], settings: unknown = {}): Step => ({
      id,
      kind: id.split(" ")[0] as Step["kind"],
      settings,
      inputs: inputs.map((i) => `${dir}/${i}`),
      outputs: outputs.map((o) => `${dir}/${o}`),
    });
    await body(dir, [
      step("prepare", ["src"], ["p"]),
      step("quantize 1", ["p"], ["q1"]),
      step("quantize 2", ["p"], ["q2"]),
      step("eval 1", ["q1", "p", "text"], ["e1"]),
      step("manifest", ["q1", "q2", "e1"], ["m"]),
      step("upload", ["m"], []),
    ]);
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
}

const read = (path: string): string =>
  Deno.statSync(path).isDirectory
    ? [...Deno.readDirSync(path)].map((e) => e.name).sort().map((n) => read(`${path}/${n}`)).join("")
    : Deno.readTextFileSync(path);

/** Runs steps and gives the groups in which they came. */
async function run(dir: string, steps: Step[], version = "1", failAt?: string): Promise<string[]> {
  const groups: string[] = [];
  await runPipeline(steps, PipelineState.open(dir), version, (of) => {
    groups.push(of.map((s) => s.id).join(" + "));
    for (const s of of) {
      if (s.id === failAt) return Promise.reject(new Error("killed"));
      for (const path of s.outputs) {
        Deno.writeTextFileSync(path, `${s.kind}${JSON.stringify(s.settings)}(${s.inputs.map(read).join()})`);
      }
    }
    return Promise.resolve();
  }, () => {});
  return groups;
}

const ALL = ["prepare", "quantize 1 + quantize 2", "eval 1", "manifest", "upload"];

Deno.test("runPipeline() runs each step once, and nothing the second time", () =>
  inFolder(async (dir, steps) => {
    assert.deepEqual(await run(dir, steps), ALL);
    assert.deepEqual(await run(dir, steps), []);
  }));

Deno.test("runPipeline() runs what a changed input, setting or version concerns, and no more", () =>
  inFolder(async (dir, steps) => {
    await run(dir, steps);
    Deno.writeTextFileSync(`${dir}/text`, "other");
    assert.deepEqual(await run(dir, steps), ["eval 1", "manifest", "upload"]);
    const changed = steps.map((s) => s.id === "quantize 2" ? { ...s, settings: { pure: true } } : s);
    assert.deepEqual(await run(dir, changed), ["quantize 2", "manifest", "upload"]);
    Deno.writeTextFileSync(`${dir}/src/b`, "c");
    assert.deepEqual(await run(dir, changed), ALL);
    assert.deepEqual(await run(dir, changed, "2"), ALL);
  }));

Deno.test("runPipeline() goes by content: a touched file changes nothing, and a step that makes the same ends the chain", () =>
  inFolder(async (dir, steps) => {
    await run(dir, steps);
    const later = new Date(Date.now() + 60_000);
    for (const name of ["src/a", "text", "q1", "m"]) Deno.utimeSync(`${dir}/${name}`, later, later);
    assert.deepEqual(await run(dir, steps), []);
    Deno.writeTextFileSync(`${dir}/q1`, "damaged");
    assert.deepEqual(await run(dir, steps), ["quantize 1"], "it made the same bytes again");
    Deno.removeSync(`${dir}/e1`);
    assert.deepEqual(await run(dir, steps), ["eval 1"]);
    Deno.writeTextFileSync(`${dir}/src/new`, "n");
    assert.deepEqual(await run(dir, steps), ALL, "a new file of the folder");
  }));

Deno.test("runPipeline() that is stopped at any step goes on there", () =>
  inFolder(async (dir, steps) => {
    for (const at of ["prepare", "quantize 1", "quantize 2", "eval 1", "manifest", "upload"]) {
      for (const { name } of [...Deno.readDirSync(dir)]) {
        if (name !== "src" && name !== "text") Deno.removeSync(`${dir}/${name}`);
      }
      await assert.rejects(run(dir, steps, "1", at), { message: "killed" });
      const from = ALL.findIndex((group) => group.split(" + ").includes(at));
      assert.deepEqual(await run(dir, steps), ALL.slice(from), at);
    }
  }));

Deno.test("planRun() tells what would run, with sizes that are there or predicted", () =>
  inFolder(async (dir, steps) => {
    const plan = () => planRun(steps, PipelineState.open(dir), "1", new Map([[`${dir}/p`, 1000], [`${dir}/q1`, 100]]));
    const before = plan();
    assert.deepEqual(before.map((p) => p.state), ["run", "later", "later", "later", "later", "later"]);
    assert.deepEqual([before[0].read, before[0].written, before[1].read, before[1].written], [2, 1000, 1000, 100]);
    assert.ok(before.every((p) => !p.measured));
    await run(dir, steps);
    const after = plan();
    assert.deepEqual(after.map((p) => p.state), steps.map(() => "done"));
    assert.equal(after[0].written, Deno.statSync(`${dir}/p`).size);
    assert.ok(after[0].measured);
    Deno.writeTextFileSync(`${dir}/text`, "x");
    assert.deepEqual(plan().map((p) => p.state), ["done", "done", "done", "run", "later", "later"]);
  }));

Deno.test("runPipeline() names an input that is not there, and a state file that is damaged", () =>
  inFolder(async (dir, steps) => {
    Deno.removeSync(`${dir}/text`);
    await assert.rejects(run(dir, steps), {
      code: "usage.pipeline_input",
      message: /step eval 1: .*text is not there/,
    });
    for (const text of ["{", "[]", '{"schema":"bloomery.pipeline_state/1","steps":{"a":{"key":1}}}']) {
      Deno.writeTextFileSync(`${dir}/pipeline.state.json`, text);
      assert.throws(() => PipelineState.open(dir), { code: "usage.pipeline_state" }, text);
    }
  }));

Deno.test("a large file is told apart by size, time and samples; hidden files of a folder do not count", () => {
  const dir = Deno.makeTempDirSync();
  try {
    const path = `${dir}/large`, size = 65 * 2 ** 20;
    const write = (at: number, byte: number) => {
      using file = Deno.openSync(path, { write: true, create: true });
      file.truncateSync(size);
      file.seekSync(at, Deno.SeekMode.Start);
      file.writeSync(Uint8Array.of(byte));
      Deno.utimeSync(path, 1000, 1000);
    };
    const content = () => PipelineState.open(dir).contentOf(path);
    write(0, 1);
    const first = content();
    assert.match(first!, /^sampled /);
    assert.equal(content(), first);
    write(size - 1, 1);
    assert.notEqual(content(), first, "the last byte is among the samples");
    write(size - 1, 0);
    assert.equal(content(), first);
    Deno.utimeSync(path, 1000, 2000);
    assert.notEqual(content(), first, "time");
    const folder = PipelineState.open(dir).contentOf(dir);
    Deno.writeTextFileSync(`${dir}/.lock`, "x");
    assert.equal(PipelineState.open(dir).contentOf(dir), folder);
    assert.equal(PipelineState.open(dir).contentOf(`${dir}/none`), undefined);
    assert.equal(bytesOf([dir, `${dir}/none`]), size);
    Deno.writeTextFileSync(`${dir}/abc`, "abc");
    assert.equal(sha256Of(`${dir}/abc`), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});
