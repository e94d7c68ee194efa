import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { EngineError } from "../errors.ts";
import type { Snapshot } from "./snapshot.ts";
import { decodeSnapshot, encodeSnapshot } from "./snapshot_file.ts";

const PLAIN = { noNullPrototype: true } as const;
const OWNER = { model: "abc", build: "v1" };
const SNAPSHOT: Snapshot = {
  tokens: [5, 0, 70_000],
  adapters: [0.5],
  caches: [{ places: [0, 1], data: Uint8Array.of(1, 2, 3, 4) }, { places: [], data: new Uint8Array() }],
};

async function refused(bytes: Uint8Array<ArrayBuffer>, words: RegExp, owner = OWNER): Promise<void> {
  await assert.rejects(
    decodeSnapshot(bytes, owner, "my.bin"),
    (e) =>
      e instanceof EngineError && e.code === "engine.snapshot_file" && words.test(e.message) &&
      /my\.bin/.test(e.message),
    String(words),
  );
}

Deno.test("decodeSnapshot() gives what encodeSnapshot() was given", async () => {
  const snapshots = fc.record({
    tokens: fc.array(fc.nat()),
    adapters: fc.array(fc.double({ noNaN: true, noDefaultInfinity: true }).filter((x) => !Object.is(x, -0))),
    caches: fc.array(fc.record({ places: fc.array(fc.nat()), data: fc.uint8Array() }, PLAIN)),
  }, PLAIN);
  await fc.assert(fc.asyncProperty(snapshots, async (snapshot) => {
    const back = await decodeSnapshot(await encodeSnapshot(snapshot, OWNER), OWNER, "x");
    assert.deepEqual(back, snapshot);
  }));
});

Deno.test("decodeSnapshot() refuses files that are foreign, short, damaged, or another model's, each by name", async () => {
  const whole = await encodeSnapshot(SNAPSHOT, OWNER);
  for (let n = 0; n < whole.length; n++) await refused(whole.slice(0, n), n < 48 ? /no saved slot/ : /cut off|bytes/);
  await refused(Uint8Array.of(...whole, 0), /expected \d+/);
  for (let at = 0; at < whole.length; at++) {
    const changed = whole.slice();
    changed[at] ^= 1;
    await refused(changed, at < 8 ? /no saved slot/ : at < 12 ? /version/ : /damaged|cut off|expected|header/);
  }
  await refused(whole, /another model/, { ...OWNER, model: "abd" });
  await refused(whole, /saved by v1, expected v2/, { ...OWNER, build: "v2" });
  await refused(new TextEncoder().encode("GGUF".repeat(30)), /no saved slot/);
});

Deno.test("decodeSnapshot() survives any bytes", async () => {
  const whole = await encodeSnapshot(SNAPSHOT, OWNER);
  const edits = fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 });
  await fc.assert(fc.asyncProperty(fc.oneof(fc.uint8Array({ maxLength: 200 }), edits), async (how) => {
    let bytes: Uint8Array<ArrayBuffer>;
    if (how instanceof Uint8Array) bytes = how.slice();
    else {
      bytes = whole.slice();
      for (const [at, value] of how) bytes[at] = value;
    }
    try {
      assert.deepEqual(await decodeSnapshot(bytes, OWNER, "x"), SNAPSHOT);
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
    }
  }));
});
