import assert from "node:assert/strict";
import { pause, reasonOf, retryAfterMs } from "./retry.ts";

Deno.test("retryAfterMs() reads seconds and dates", () => {
  const now = Date.parse("Tue, 01 Dec 2026 00:00:00 GMT");
  assert.equal(retryAfterMs("2.5", now), 2500);
  assert.equal(retryAfterMs("Tue, 01 Dec 2026 00:00:09 GMT", now), 9000);
  assert.equal(retryAfterMs("Mon, 30 Nov 2026 00:00:09 GMT", now), 0);
  assert.deepEqual([retryAfterMs(null), retryAfterMs("soon"), retryAfterMs(""), retryAfterMs("-1")], [
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});

Deno.test("pause() ends with its signal, and throws its reason", async () => {
  const stop = new AbortController();
  const waiting = pause(3_600_000, stop.signal);
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await assert.rejects(pause(0, stop.signal), /enough/);
  await pause(0);
});

Deno.test("reasonOf() tells the innermost cause", () => {
  assert.equal(reasonOf(new Error("a", { cause: new Error("b", { cause: new Error("c") }) })), "c");
  assert.equal(reasonOf("text"), "text");
});
