import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import type { Chat, Message } from "../chat/types.ts";
import { exportText, ImportError, importText } from "./transfer.ts";

const chat: Chat = {
  id: "c",
  title: "T",
  created: 1,
  updated: 2,
  system: "s",
  settings: { temperature: 0.5, tools: "[]" },
  leaf: "m2",
};
const message = (id: string, parent: string | null, fields: Partial<Message> = {}): Message => ({
  id,
  chat: "c",
  parent,
  role: "user",
  created: 1,
  content: "x",
  reasoning: "",
  calls: [],
  files: [],
  status: "done",
  ...fields,
});
const messages = [
  message("m1", null, { files: [{ name: "f", text: "t" }] }),
  message("m2", "m1", {
    role: "assistant",
    calls: [{ id: "1", name: "f", arguments: "{}" }],
    status: "stopped",
    model: "q",
  }),
];
let n = 0;
const newId = () => `new${n++}`;

Deno.test("importText() gives what exportText() wrote", () => {
  assert.deepEqual(importText(exportText({ chats: [chat], messages }), () => false, newId), {
    chats: [chat],
    messages,
  });
});

Deno.test("importText() gives a chat that is there already, and its messages, fresh ids", () => {
  n = 0;
  const archive = importText(exportText({ chats: [chat], messages }), () => true, newId);
  assert.deepEqual(archive.chats, [{ ...chat, id: "new0", leaf: "new2" }]);
  assert.deepEqual(archive.messages.map(({ id, chat, parent }) => [id, chat, parent]), [["new1", "new0", null], [
    "new2",
    "new0",
    "new1",
  ]]);
});

Deno.test("importText() names what does not fit", () => {
  const file = (fields: object) =>
    JSON.stringify({ format: "bloomery-chats", version: 1, chats: [], messages: [], ...fields });
  const refused: [string, RegExp][] = [
    ["{", /not JSON/],
    ["[]", /expected an object/],
    ["{}", /no export of this page/],
    [file({ version: 2 }), /version 2/],
    [file({ chats: {} }), /^chats: expected a list/],
    [file({ chats: [chat, chat] }), /chats\[1\]\.id: occurs twice/],
    [file({ chats: [{ ...chat, created: "now" }] }), /chats\[0\]\.created/],
    [file({ chats: [{ ...chat, settings: { seed: {} } }] }), /chats\[0\]\.settings\.seed/],
    [file({ messages: [message("a", null)] }), /messages\[0\]\.chat/],
    [file({ chats: [chat], messages: [{ ...message("a", null), role: "root" }] }), /messages\[0\]\.role/],
    [file({ chats: [chat], messages: [message("a", null, { calls: [1 as never] })] }), /messages\[0\]\.calls\[0\]/],
  ];
  for (const [text, words] of refused) {
    assert.throws(
      () => importText(text, () => false, newId),
      (e) => e instanceof ImportError && words.test(e.message),
      text,
    );
  }
});

Deno.test("importText() takes any damaged file or refuses it in words", () => {
  const value = JSON.parse(exportText({ chats: [chat], messages }));
  const paths = fc.constantFrom(
    "chats",
    "messages",
    "chats.0",
    "messages.1",
    "messages.1.calls",
    "messages.0.files",
    "chats.0.settings",
    "messages.1.parent",
  );
  fc.assert(
    fc.property(paths, fc.jsonValue(), (path, damage) => {
      const copy = structuredClone(value);
      const keys = path.split(".");
      const last = keys.pop()!;
      keys.reduce((at, key) => at[key], copy)[last] = damage;
      try {
        importText(JSON.stringify(copy), () => false, newId);
      } catch (error) {
        assert.ok(error instanceof ImportError, String(error));
      }
    }),
    { numRuns: 1000 },
  );
});
