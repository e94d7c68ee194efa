/** Answers in a form: grammars, JSON schemas and response_format, against a model that would say something else. */
import assert from "node:assert/strict";
import { withServer } from "./harness.ts";

Deno.test("a grammar decides what can be said", async () => {
  await withServer({}, async ({ post, events }) => {
    const ask = async (prompt: string, grammar: string, more: object = {}) =>
      (await post("/completion", { prompt, grammar, temperature: 0, n_predict: 60, ...more })).body;
    assert.equal((await ask("[[[maybe]]]", 'root ::= "yes" | "no"')).content.match(/^(yes|no)$/)?.length, 2);
    const wanted = await ask("[[[no]]]", 'root ::= "yes" | "no"');
    assert.deepEqual([wanted.content, wanted.stop_type, wanted.tokens_predicted], ["no", "eos", 2]);
    const date = await ask("babble", 'root ::= [0-9]{4} "-" [0-9]{2}', { temperature: 1, seed: 3 });
    assert.match(date.content, /^\d{4}-\d{2}$/);
    const streamed = await events("/completion", {
      prompt: "babble",
      grammar: 'root ::= "ab!cd"',
      stream: true,
      stop: ["ab:"],
    });
    assert.equal(streamed.map((e) => e.content).join(""), "ab!cd");
    const cut = await ask("[[[aaaaaaaa]]]", "root ::= [a]*", { n_predict: 3 });
    assert.deepEqual([cut.content, cut.stop_type], ["aaa", "limit"]);
    const seven = { prompt: "[[[7]]]", json_schema: { type: "integer", minimum: 1, maximum: 9 }, temperature: 0 };
    assert.equal((await post("/completion", seven)).body.content, "7");
  });
});

Deno.test("response_format makes every answer JSON of its schema", async () => {
  await withServer({}, async ({ client }) => {
    const schema = {
      type: "object",
      properties: { name: { enum: ["Ann", "Bob"] }, age: { type: "integer", minimum: 0, maximum: 99 } },
      required: ["name", "age"],
      additionalProperties: false,
    };
    for (let seed = 0; seed < 5; seed++) {
      const answer = await client.chat.completions.create({
        model: "fake",
        messages: [{ role: "user", content: "babble" }],
        response_format: { type: "json_schema", json_schema: { name: "person", schema } },
        seed,
      });
      const person = JSON.parse(answer.choices[0].message.content!);
      assert.ok(["Ann", "Bob"].includes(person.name) && person.age >= 0 && person.age <= 99);
      assert.equal(answer.choices[0].finish_reason, "stop");
    }
    const object = await client.chat.completions.create({
      model: "fake",
      messages: [{ role: "user", content: '[[[{"a": 1}]]]' }],
      response_format: { type: "json_object" },
      temperature: 0,
    });
    assert.deepEqual(JSON.parse(object.choices[0].message.content!), { a: 1 });
    await assert.rejects(client.chat.completions.create({
      model: "fake",
      messages: [{ role: "user", content: "x" }],
      response_format: { type: "json_object" },
      tools: [{ type: "function", function: { name: "f", parameters: {} } }],
    }));
  });
});

Deno.test("tool_choice makes the answer a call, of any tool or of the named one", async () => {
  await withServer({ n_ctx: 2048 }, async ({ client, post }) => {
    const parameters = {
      type: "object",
      properties: { city: { enum: ["Berlin", "Seoul"] }, days: { $ref: "#/$defs/count" } },
      required: ["city", "days"],
      $defs: { count: { type: "integer", minimum: 1, maximum: 7 } },
    };
    const tools = ["get_weather", "get_wind"].map((name) => ({
      type: "function" as const,
      function: { name, parameters },
    }));
    const named = { type: "function" as const, function: { name: "get_wind" } };
    for (const tool_choice of ["required" as const, named]) {
      for (let seed = 0; seed < 3; seed++) {
        const { choices: [choice] } = await client.chat.completions.create({
          model: "fake",
          messages: [{ role: "user", content: "babble" }],
          tools,
          tool_choice,
          seed,
        });
        assert.equal(choice.finish_reason, "tool_calls");
        const [call] = choice.message.tool_calls!;
        assert.ok(call.type === "function");
        assert.ok(tool_choice === "required" || call.function.name === "get_wind");
        const { city, days } = JSON.parse(call.function.arguments);
        assert.ok(["Berlin", "Seoul"].includes(city) && days >= 1 && days <= 7);
      }
    }
    const messages = [{ role: "user", content: "x" }];
    for (
      const [body, param] of [
        [{ tool_choice: "required" }, "tool_choice"],
        [{ tools, tool_choice: { type: "function", function: { name: "f" } } }, "tool_choice.function.name"],
        [{ tools, tool_choice: "required", response_format: { type: "json_object" } }, "tool_choice"],
      ] as const
    ) {
      const { status, body: answer } = await post("/v1/chat/completions", { messages, ...body });
      assert.deepEqual([status, answer.error.param], [400, param]);
    }
  });
});
