import assert from "node:assert/strict";
import { testCheckpoint, withFolder, writeCheckpoint } from "./_testing.ts";
import { followCheckpoint, prepare } from "./mod.ts";

Deno.test("followCheckpoint() waits for files in any order, and for those that grow", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}from`, testCheckpoint("qwen3moe"));
    Deno.mkdirSync(`${dir}to`);
    const names = [...Deno.readDirSync(`${dir}from`)].map((e) => e.name).sort((a, b) => b < a ? -1 : 1);
    const arrived: string[] = [];
    const done = followCheckpoint(`${dir}to`, {
      interval: 5,
      onArrived: (file, i, n) => arrived.push(`${i}/${n} ${file.slice(0, 11)}`),
    });
    for (const name of names) {
      const bytes = Deno.readFileSync(`${dir}from/${name}`);
      for (const part of [bytes.subarray(0, 4), bytes.subarray(0, bytes.length >> 1), bytes]) {
        Deno.writeFileSync(`${dir}to/${name}`, part);
        await new Promise((resolve) => setTimeout(resolve, 15));
      }
    }
    await done;
    assert.equal(arrived.length, 3);
    assert.match(arrived[2], /^3\/3/);
    assert.equal((await prepare(`${dir}to`, `${dir}o.gguf`)).architecture, "qwen3moe");
  }));

Deno.test("followCheckpoint() tells of a broken file at once, and stops with the signal", () =>
  withFolder(async (dir) => {
    writeCheckpoint(`${dir}model`, testCheckpoint("qwen3moe"));
    const shard = `${dir}model/model-00001-of-00003.safetensors`;
    const bytes = Deno.readFileSync(shard);
    bytes[8] = 0; // no JSON any more
    Deno.writeFileSync(shard, bytes);
    Deno.removeSync(`${dir}model/model-00003-of-00003.safetensors`);
    Deno.utimeSync(shard, 1e9, 1e9); // long at rest
    await assert.rejects(followCheckpoint(`${dir}model`, { interval: 5 }), { code: "format.bad_json" });
    Deno.removeSync(shard);
    const stop = new AbortController();
    const waiting = followCheckpoint(`${dir}model`, { interval: 5, signal: stop.signal });
    stop.abort();
    await assert.rejects(waiting, { name: "AbortError" });
    await assert.rejects(followCheckpoint(`${dir}none`), { code: "model.unreadable" });
  }));
