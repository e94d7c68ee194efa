import assert from "node:assert/strict";
import { bloomery } from "./_testing.ts";
import { inputLines } from "./lines.ts";

Deno.test("inputLines() gives lines whatever the chunks, the last without an end too", async () => {
  const bytes = new TextEncoder().encode("é1\n\n two\r\nthree");
  for (const size of [1, 3, 100]) {
    const chunks = [];
    for (let i = 0; i < bytes.length; i += size) chunks.push(bytes.slice(i, i + size));
    const lines = await Array.fromAsync(inputLines(ReadableStream.from(chunks)));
    assert.deepEqual(lines.map((l) => l.trim()), ["é1", "two", "three"]);
  }
});

Deno.test("bloomery template answers a conversation a line, errors included", async () => {
  const file = await Deno.makeTempFile({ suffix: ".jinja" });
  try {
    await Deno.writeTextFile(
      file,
      `{{ bos_token }}{% for m in messages %}{% if m.role == "tool" %}{{ raise_exception("No tools here") }}{% endif %}` +
        `[{{ m.role }}] {{ m.content }}{% endfor %}{{ strftime_now("%H:%M") }}{{ mood }}`,
    );
    const lines = [
      { messages: [{ role: "user", content: "Hi" }], kwargs: { mood: "!" } },
      { messages: [{ role: "tool", content: "Hi" }] },
      { messages: "Hi" },
    ];
    const args = ["template", "--template", file, "--bos", "<s>", "--now", "2026-01-15T12:30:00"];
    const { code, out } = await bloomery(
      [...args, "--jsonl"],
      lines.map((l) => JSON.stringify(l) + "\n").join("") + "no",
    );
    const answers = out.trim().split("\n").map((l) => JSON.parse(l));
    assert.equal(code, 0);
    assert.deepEqual(answers[0], { prompt: "<s>[user] Hi12:30!" });
    assert.equal(answers[1].error.code, "text.template_refused");
    assert.equal(answers[1].error.message, "No tools here");
    assert.equal(answers[2].error.code, "usage.conversation");
    assert.equal(answers[3].error.code, "usage.conversation");
    const one = await bloomery(args, '[{"role": "user", "content": "Hi"}]');
    assert.deepEqual([one.code, one.out], [0, "<s>[user] Hi12:30\n"]);
    const refused = await bloomery(args, '[{"role": "tool", "content": "Hi"}]');
    assert.equal(refused.code, 1);
    assert.match(refused.err, /No tools here/);
    assert.equal((await bloomery(["template"])).code, 2);
  } finally {
    await Deno.remove(file);
  }
});
