import assert from "node:assert/strict";
import { Interrupts } from "./interrupt.ts";

function watched() {
  const seen: string[] = [];
  const interrupts = new Interrupts(() => void seen.push("end"));
  interrupts.signal.addEventListener("abort", () => seen.push("abort"));
  return { seen, interrupts };
}

Deno.test("a signal ends a command that does not hold at once", () => {
  const { seen, interrupts } = watched();
  interrupts.receive("SIGINT");
  assert.deepEqual([seen, interrupts.interrupted], [["end"], true]);
});

Deno.test("a command that holds is asked first and ended then", () => {
  const { seen, interrupts } = watched();
  using _ = interrupts.hold();
  interrupts.receive("SIGTERM");
  assert.deepEqual(seen, ["abort"]);
  interrupts.receive("SIGINT");
  assert.deepEqual(seen, ["abort", "end"]);
});

Deno.test("Ctrl-C within an answer ends the answer, and behind it the command", () => {
  const { seen, interrupts } = watched();
  {
    using _ = interrupts.hold(() => void seen.push("answer"));
    interrupts.receive("SIGINT");
    interrupts.receive("SIGINT");
    assert.deepEqual([seen, interrupts.interrupted], [["answer", "answer"], false]);
    interrupts.receive("SIGTERM");
    assert.deepEqual(seen.at(-1), "abort");
  }
  interrupts.receive("SIGINT");
  assert.equal(seen.at(-1), "end");
});
