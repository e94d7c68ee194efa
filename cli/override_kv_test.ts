import assert from "node:assert/strict";
import { UsageError } from "../core/errors.ts";
import { openModelFromFlags } from "./open.ts";
import { bloomNano } from "../tests/models.ts";
import { fakeIo } from "./_testing.ts";
import { Flags } from "./command.ts";
import { parseRunOverride } from "./override_kv.ts";

Deno.test("a text becomes a key and a value of its type", () => {
  const of = (text: string) => parseRunOverride(text);
  assert.deepEqual(of("a.b=int:5"), { key: "a.b", value: { type: "u32", value: 5 } });
  assert.deepEqual(of("a=int:-3").value, { type: "i32", value: -3 });
  assert.deepEqual(of("a=int:-2147483648").value, { type: "i32", value: -(2 ** 31) });
  assert.deepEqual(of("a=int:4294967295").value, { type: "u32", value: 2 ** 32 - 1 });
  assert.deepEqual(of("a=float:0.5").value, { type: "f32", value: 0.5 });
  assert.deepEqual(of("a=bool:false").value, { type: "bool", value: false });
  assert.deepEqual(of("a=bool:true").value, { type: "bool", value: true });
  assert.deepEqual(of("a=str: x=1:2").value, { type: "str", value: " x=1:2" });
  for (
    const text of ["a", "a=5", "=int:5", "a=int:", "a=int:x", "a=int:1.5", "a=int:4294967296", "a=int:-2147483649"]
      .concat(["a=float:", "a=float:inf", "a=bool:yes", "a=list:1"])
  ) {
    assert.throws(() => of(text), (e) => e instanceof UsageError && e.code === "usage.override", text);
  }
});

Deno.test("a model runs with the keys that a command line sets, and its file stays as it is", async () => {
  const model = await bloomNano("f32"), before = Deno.readFileSync(model);
  const next = async (texts: string[]) => {
    const { io, printed } = fakeIo();
    const flags = new Flags(
      new Map<string, string | string[]>([["model", model], ["device", "cpu"], ["override-kv", texts]]),
    );
    using opened = await openModelFromFlags(flags, io, { n_ctx: 64 });
    using sequence = opened.model.engine.createSequence();
    const [row] = await opened.model.engine.step([{ sequence, tokens: [5, 6, 7], output: "last", want: "logits" }]);
    return { row: row.full!.slice(), notes: printed.notes.join("\n") };
  };
  const arch = "qwen3";
  const plain = await next([]), same = await next(["general.name=str:other"]);
  const set = await next([`${arch}.attention.layer_norm_rms_epsilon=float:0.5`]);
  assert.deepEqual(same.row, plain.row);
  assert.notDeepEqual(set.row, plain.row);
  assert.match(set.notes, /qwen3\.attention\.layer_norm_rms_epsilon = 0\.5/);
  assert.deepEqual(Deno.readFileSync(model), before);
});
