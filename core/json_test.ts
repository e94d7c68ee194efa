import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { mergeJson, parseJson, sourceOf, writeJson } from "./json.ts";

Deno.test("parseJson() keeps key order, floats and long integers", () => {
  for (
    const text of [
      '{"b":1,"7":2,"a":{"1":[],"0":{}}}',
      "[1.0,1e5,-0.0,12345678901234567890,1,0.5,-3]",
      '{"x":1.0,"10":[[2.0],{"3":4.0}],"\\"q":1E2}',
      '{"a":"1.0 \\" [{","5":1.0}',
    ]
  ) {
    assert.deepEqual(parseJson(text), JSON.parse(text));
    assert.equal(writeJson(parseJson(text)), text);
  }
});

Deno.test("parseJson(): of equal keys the last counts, with its own source", () => {
  assert.equal(writeJson(parseJson('{"a":1.0,"a":2,"1":0}')), '{"a":2,"1":0}');
  assert.equal(writeJson(parseJson('{"a":{"1":1.0},"a":[2.0]}')), '{"a":[2.0]}');
  assert.equal(writeJson(parseJson('{"a":[3.0],"a":{"b":0,"1":1.0}}')), '{"a":{"b":0,"1":1.0}}');
});

Deno.test("parseJson() takes and refuses what JSON.parse does, nested deeply too", () => {
  assert.throws(() => parseJson('{"1":}'), SyntaxError);
  assert.equal(parseJson("1.0"), 1);
  const deep = "[".repeat(100_000) + "1.0" + "]".repeat(100_000);
  let v = parseJson(deep);
  while (Array.isArray(v) && Array.isArray(v[0])) v = v[0];
  assert.equal(sourceOf(v as object)?.literals?.get(0), "1.0");
});

Deno.test("mergeJson() keeps the literals of the members that count", () => {
  const [a, b] = ['{"x":1.0,"y":2.0}', '{"y":3,"z":4.0}'].map((t) => parseJson(t) as Record<string, unknown>);
  assert.equal(writeJson(mergeJson(a, b)), '{"x":1.0,"y":3,"z":4.0}');
  assert.equal(writeJson(mergeJson(a, { x: undefined })), '{"y":2.0}');
});

Deno.test("parseJson(): any JSON text comes back as it was", () => {
  const leaf = fc.oneof(
    fc.string().map((s) => JSON.stringify(s)),
    fc.constantFrom("1.0", "0.25", "1e3", "-7", "null", "true", "98765432109876543210"),
  );
  const { text } = fc.letrec<{ text: string }>((tie) => ({
    text: fc.oneof(
      { depthSize: "small" },
      leaf,
      fc.array(tie("text"), { maxLength: 4 }).map((items) => `[${items.join(",")}]`),
      fc.uniqueArray(fc.tuple(fc.oneof(fc.string(), fc.nat(20).map(String)), tie("text")), {
        maxLength: 4,
        selector: ([key]) => key,
      }).map((members) => `{${members.map(([key, t]) => `${JSON.stringify(key)}:${t}`).join(",")}}`),
    ),
  }));
  fc.assert(fc.property(text, (t) => {
    const value = parseJson(t);
    assert.deepEqual(value, JSON.parse(t));
    if (typeof value === "object" && value !== null && !t.includes('"__proto__"')) assert.equal(writeJson(value), t);
  }));
});
