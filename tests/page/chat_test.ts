/** Chats in the browser: streams, stop, branches, settings, files, history. */
import assert from "node:assert/strict";
import { closeBrowser, type Page, pageTest } from "./browser.ts";
import { soon } from "../serve/harness.ts";

closeBrowser();

const answers = (page: Page) => page.locator("article.assistant");
const text = (page: Page) => answers(page).last().locator(".markdown").last();
const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
/** The body of the next chat request. */
const nextBody = async (page: Page) =>
  (await page.waitForRequest((r) => r.url().endsWith("/v1/chat/completions"))).postDataJSON();

pageTest(
  "an answer appears as it comes, its reasoning folded, and screen readers hear its sentences",
  { stepMs: 15 },
  async (v) => {
    await v.send(
      "hi [[[<think>\nhm, *well*, let me see what iron does.\n</think>\n\n## Iron\n\nIt **melts**. Then `it` cools.\n\n- a\n- b]]]",
    );
    await answers(v.page).getByText("Reasoning…").waitFor();
    await text(v.page).locator("h2").waitFor();
    assert.equal(await button(v.page, "Stop the answer").count(), 1); // it is still coming
    await v.answered();
    assert.equal(
      await text(v.page).innerHTML(),
      "<h2>Iron</h2><p>It <strong>melts</strong>. Then <code>it</code> cools.</p><ul><li>a</li><li>b</li></ul>",
    );
    const reasoning = answers(v.page).locator("details.reasoning");
    assert.equal(await reasoning.getAttribute("open"), null);
    await reasoning.locator("summary").click();
    await reasoning.locator("em").waitFor();
    assert.match(await v.page.locator("[aria-live=polite].hidden").innerText(), /It \*\*melts\*\*\.\s+Then/);
    assert.match(await answers(v.page).locator(".stats").innerText(), /^\d+ tokens · .*prompt \d+/);
    assert.equal(await v.page.title(), "hi [[[<think> – bloomery");
  },
);

pageTest("stop keeps what there is and frees the slot; the answer can be continued", { stepMs: 15 }, async (v) => {
  v.expected.push(/404/); // where streams end with their connection, there is none to delete
  const whole = "one two three four five six seven eight nine ten ".repeat(5).trim();
  await v.send(`count [[[${whole}]]]`);
  await text(v.page).getByText("one two").waitFor();
  await button(v.page, "Stop the answer").click();
  await answers(v.page).getByText("Stopped").waitFor();
  await soon(() => v.server.scheduler.n_active === 0, "the slot is free");
  const part = await text(v.page).innerText();
  assert.ok(whole.startsWith(part) && part.length < whole.length, part);
  await button(v.page, "Continue the answer").click();
  await v.answered();
  assert.equal(await text(v.page).innerText(), whole);
});

pageTest("chats are answered at once, each in its own place", { stepMs: 15 }, async (v) => {
  const slow = "slow ".repeat(60).trim();
  await v.send(`first [[[${slow}]]]`);
  await answers(v.page).waitFor();
  await v.page.getByRole("link", { name: "New chat" }).click();
  await answers(v.page).waitFor({ state: "detached" });
  await v.send("second [[[quick]]]");
  await soon(() => v.server.scheduler.n_active === 2, "both are answered");
  assert.ok(await v.page.getByRole("img", { name: "being answered" }).count() >= 1);
  await v.answered();
  assert.equal(await text(v.page).innerText(), "quick");
  await v.page.getByRole("link", { name: /^first/ }).click();
  await v.answered();
  assert.equal(await text(v.page).innerText(), slow);
});

pageTest("retry and edit make branches that one can walk; a branch can become a chat", {}, async (v) => {
  const { page } = v;
  await v.send("a [[[one]]]");
  await v.answered();
  await button(page, "Retry: another answer").click();
  await answers(page).getByText("2 / 2").waitFor();
  await v.answered();
  await button(page, "Previous version").click();
  await answers(page).getByText("1 / 2").waitFor();
  const question = page.locator("article.user");
  await question.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Edit the message" }).fill("b [[[two]]]");
  await button(page, "Ask again").click();
  await question.getByText("2 / 2").waitFor();
  await v.answered();
  assert.equal(await text(page).innerText(), "two");
  await answers(page).getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Edit the message" }).fill("my *own*");
  await button(page, "Save as a version").click();
  await answers(page).locator("em").waitFor();
  await answers(page).getByRole("button", { name: "Branch into a new chat" }).click();
  await page.getByText("Branched into a new chat").waitFor();
  assert.equal(await page.locator(".chats li").count(), 2);
  assert.equal(await text(page).innerText(), "my own");
  assert.equal(await answers(page).getByText("/ 2").count(), 0); // the branch alone
  await page.reload();
  await answers(page).locator("em").waitFor();
});

pageTest("system prompt, sampler settings, files and tools go with the request, and calls are shown", {}, async (v) => {
  const { page } = v;
  await button(page, "Settings of this chat").click();
  await page.getByLabel("System prompt").fill("be brief");
  await page.getByLabel("Temperature").fill("0");
  await page.getByLabel("Tools").fill('[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]');
  await page.getByLabel("Further fields").fill('{"min_keep": 1}');
  await button(page, "Close the settings").click();
  await page.locator("input[type=file]:not(#import)").setInputFiles([
    { name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("in the file") },
    { name: "b.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0, 1, 255]) },
  ]);
  await page.getByText("b.bin is not a text file").waitFor();
  const body = nextBody(page);
  await v.send('x [[[<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>]]]');
  const { messages, temperature, tools, min_keep, stream, ...rest } = await body;
  assert.deepEqual(Object.keys(rest), ["stream_options"]); // what is not set is the server's
  assert.deepEqual([messages[0], temperature, tools.length, min_keep, stream], [
    { role: "system", content: "be brief" },
    0,
    1,
    1,
    true,
  ]);
  assert.match(messages[1].content, /^a\.txt\n```\nin the file\n```\n\nx /);
  const call = answers(page).locator("details.call");
  assert.equal(await call.locator("summary").innerText(), "Calls add");
  assert.equal(await call.locator("pre").innerText(), '{\n  "a": 1\n}');
  const second = nextBody(page);
  await page.getByRole("textbox", { name: "Result of add" }).fill("3 [[[three]]]");
  await button(page, "Send result").click();
  assert.deepEqual((await second).messages.map((m: { role: string }) => m.role), [
    "system",
    "user",
    "assistant",
    "tool",
  ]);
  await v.answered();
  await answers(page).nth(1).waitFor();
});

pageTest("a refusal of the server is shown in its words", {}, async (v) => {
  v.expected.push(/400/);
  await button(v.page, "Settings of this chat").click();
  await v.page.getByLabel("Further fields").fill('{"top_p": 7}');
  await v.page.keyboard.press("Escape");
  await v.send("x");
  await answers(v.page).getByText("top_p: expected at most 1, found 7").waitFor();
  await button(v.page, "Settings of this chat").click();
  await v.page.getByLabel("Further fields").fill("{");
  await v.page.keyboard.press("Escape");
  await button(v.page, "Retry: another answer").click();
  await answers(v.page).getByText(/^Further fields in the settings: not JSON/).waitFor();
  await button(v.page, "Settings of this chat").click();
  await button(v.page, "Reset").click();
  await v.page.keyboard.press("Escape");
  v.expected.push(/404/);
  const gone = { status: 404, json: { error: { message: "model 'x' not found" } } };
  await v.page.route("**/v1/chat/completions", (route) => route.fulfill(gone));
  await button(v.page, "Retry: another answer").click();
  await answers(v.page).getByText("model 'x' not found").waitFor();
});

pageTest("another answer ends the one that is coming", { stepMs: 15 }, async (v) => {
  v.expected.push(/404/); // a stream that the server has not begun
  await v.send(`x [[[${"word ".repeat(60)}]]]`);
  await text(v.page).getByText("word").waitFor();
  await v.page.locator("article.user").getByRole("button", { name: "Edit" }).click();
  await v.page.getByRole("textbox", { name: "Edit the message" }).fill("y [[[short]]]");
  await button(v.page, "Ask again").click();
  await answers(v.page).getByText("short").waitFor();
  await v.answered();
  await soon(() => v.server.scheduler.n_active === 0, "nothing is answered any more");
});

pageTest("chats are found, renamed, exported, deleted and imported", {}, async (v) => {
  const { page } = v;
  await v.send("alpha [[[the needle in hay]]]");
  await v.answered();
  await page.getByRole("link", { name: "New chat" }).click();
  await v.send("beta [[[nothing]]]");
  await v.answered();
  const list = page.locator(".chats li");
  await page.getByRole("searchbox", { name: "Search chats" }).fill("NEEDLE");
  await page.locator(".excerpt").waitFor();
  assert.equal(await list.count(), 1);
  await page.getByRole("searchbox", { name: "Search chats" }).fill("");
  await list.nth(1).waitFor();
  await list.filter({ hasText: "alpha" }).hover();
  await page.getByRole("button", { name: /^Rename alpha/ }).click();
  await page.getByRole("textbox", { name: "Title" }).fill("My chat");
  await button(page, "Rename").click();
  await list.filter({ hasText: "My chat" }).waitFor();
  const download = page.waitForEvent("download");
  await button(page, "Export all").click();
  const file = await (await download).path();
  await list.filter({ hasText: "My chat" }).hover();
  await button(page, "Delete My chat").click();
  await button(page, "Delete").click();
  await page.getByText("Chat deleted").waitFor();
  assert.equal(await list.count(), 1);
  await page.locator("#import").setInputFiles(file);
  await page.getByText("2 chats imported").waitFor();
  assert.equal(await list.count(), 3);
  await list.filter({ hasText: "My chat" }).getByRole("link").click();
  await answers(page).getByText("the needle in hay").waitFor();
  await page.locator("#import").setInputFiles({
    name: "x.json",
    mimeType: "application/json",
    buffer: Buffer.from("{}"),
  });
  await page.getByText("Cannot import x.json: The file is no export of this page").waitFor();
});
