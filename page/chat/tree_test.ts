import assert from "node:assert/strict";
import { MessageTree } from "./tree.ts";
import type { Message } from "./types.ts";

const message = (id: string, parent: string | null, created = 0): Message => ({
  id,
  chat: "c",
  parent,
  role: "user",
  created,
  content: id,
  reasoning: "",
  calls: [],
  files: [],
  status: "done",
});
const ids = (messages: readonly Message[]) => messages.map((m) => m.id).join(" ");

Deno.test("MessageTree gives branches, siblings in the order of their age, and the newest leaf", () => {
  const tree = new MessageTree([
    message("b2", "a", 3),
    message("a", null, 1),
    message("b1", "a", 2),
    message("c1", "b1", 4),
  ]);
  assert.equal(ids(tree.path("c1")), "a b1 c1");
  assert.equal(ids(tree.siblings(tree.get("b1")!)), "b1 b2");
  assert.equal(tree.leafOf(tree.get("a")!).id, "b2");
  tree.add(message("b3", "a", 0)); // added later: it is the newest whatever its clock says
  assert.equal(tree.leafOf(tree.get("a")!).id, "b3");
  tree.add(message("b3", "a"));
  assert.equal(tree.size, 5);
});

Deno.test("MessageTree ends where a parent is missing or messages form a circle", () => {
  const tree = new MessageTree([message("x", "gone"), message("p", "q"), message("q", "p")]);
  assert.equal(ids(tree.path("x")), "x");
  assert.equal(ids(tree.path("none")), "");
  assert.equal(ids(tree.path("p")), "q p");
  assert.ok(["p", "q"].includes(tree.leafOf(tree.get("p")!).id));
});
