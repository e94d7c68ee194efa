/// <reference lib="dom" />
/** Long histories, and answers that outlive the page that asked for them. */
import assert from "node:assert/strict";
import { ROUTES, startServer } from "../../serve/server.ts";
import { fakeModel } from "../serve/fake.ts";
import { soon } from "../serve/harness.ts";
import { closeBrowser, type Page, pageTest } from "./browser.ts";

closeBrowser();

/** The server keeps streams whose client has gone. */
const keepsStreams = ROUTES.some((route) => route.paths.includes("/v1/stream"));
const text = (page: Page) => page.locator("article.assistant .markdown").last();
const words = (n: number) => Array.from({ length: n }, (_, i) => `w${i}`).join(" ");

/** A file of chats: one with `n` messages, and `m` short ones. */
function archive(n: number, m: number): string {
  const chats: object[] = [], messages: object[] = [];
  const add = (chat: string, i: number, parent: string | null) => {
    const id = `${chat}-${i}`, content = `${chat} message ${i}: *some* \`text\`\n\n- of several\n- blocks`;
    messages.push({ id, chat, parent, role: i % 2 === 0 ? "user" : "assistant", created: i, content });
    return id;
  };
  const chat = (id: string, n: number, updated: number) => {
    let leaf: string | null = null;
    for (let i = 0; i < n; i++) leaf = add(id, i, leaf);
    chats.push({ id, title: `Chat ${id}`, created: 1, updated, leaf });
  };
  chat("long", n, 1e9);
  for (let i = 0; i < m; i++) chat(`short${i}`, 2, i);
  return JSON.stringify({ format: "bloomery-chats", version: 1, chats, messages });
}

pageTest(
  "of 10,000 messages and 2,000 chats only those in sight are made; the others come by scrolling and by search",
  {},
  async (v) => {
    const { page } = v;
    const buffer = Buffer.from(archive(10_000, 2000));
    await page.locator("#import").setInputFiles({ name: "h.json", mimeType: "application/json", buffer });
    await page.getByText("2001 chats imported").waitFor();
    assert.ok(await page.locator(".chats li").count() <= 60);
    await page.getByRole("link", { name: "Chat long" }).click();
    await page.getByText("long message 9999:").waitFor();
    const articles = page.locator("article");
    assert.ok(await articles.count() <= 120, `${await articles.count()} messages`);
    // Scrolling up brings earlier ones, and what one reads stays in its place.
    const before = await articles.count();
    const scroller = page.locator(".conversation > .scroller");
    await scroller.evaluate((e) => e.scrollTop = 0);
    await articles.nth(before + 10).waitFor({ state: "attached" });
    assert.ok(await scroller.evaluate((e) => e.scrollTop) > 0);
    // A new message does not make the old ones.
    await page.getByRole("button", { name: "Go to the end" }).click();
    await page.getByRole("textbox", { name: "Message", exact: true }).fill("hi");
    v.expected.push(/400/); // the fake's context is shorter than such a history
    await page.keyboard.press("Enter");
    await page.locator("article.assistant:last-child").getByText("exceeds the available context").waitFor();
    assert.ok(await articles.count() <= 240, `${await articles.count()} messages`);
    await page.getByRole("searchbox").fill("short1234 message 1:");
    await page.getByText("Chat short1234").waitFor();
    assert.equal(await page.locator(".chats li").count(), 1);
  },
);

pageTest("an answer goes on when the page is left, and is whole when it is back", {
  stepMs: 10,
  skip: keepsStreams ? undefined : "this server keeps no streams",
}, async (v) => {
  const { page } = v, whole = words(120);
  await v.send(`go [[[<think>\nhm\n</think>\n\n${whole}]]]`);
  await text(page).getByText("w5 ").waitFor();
  await page.reload();
  await soon(() => v.server.scheduler.n_active === 1, "it is still being answered");
  await text(page).getByText("w1 ").waitFor();
  await v.answered();
  assert.equal(await text(page).innerText(), whole);
  assert.equal(await page.getByText("Reasoning").count(), 1);
  // Away for the whole rest of it.
  const second = words(30);
  await v.send(`again [[[${second}]]]`);
  await text(page).getByText("w2 ").waitFor();
  const address = page.url();
  await page.goto("about:blank");
  await new Promise<void>((resolve) => {
    const wait = () => v.server.scheduler.n_active === 0 ? resolve() : setTimeout(wait, 20);
    wait();
  });
  await page.goto(address);
  await v.answered();
  assert.equal(await text(page).innerText(), second);
});

pageTest("an answer that two windows show is read by one of them, and whole in both", {
  stepMs: 10,
  skip: keepsStreams ? undefined : "this server keeps no streams",
}, async (v) => {
  const { page } = v, whole = words(120);
  await v.send(`go [[[${whole}]]]`);
  await text(page).getByText("w3 ").waitFor();
  const other = await page.context().newPage();
  await other.goto(page.url());
  await v.answered();
  await other.locator("article.assistant[aria-busy=false]").waitFor();
  assert.deepEqual([await text(page).innerText(), await text(other).innerText()], [whole, whole]);
});

pageTest(
  "an answer whose server has gone keeps what came, and can be continued at the next one",
  { stepMs: 10 },
  async (v) => {
    const { page, server } = v, whole = words(120);
    v.expected.push(/ERR_|404/);
    await v.send(`go [[[${whole}]]]`);
    await text(page).getByText("w5 ").waitFor();
    const { port } = server;
    const address = page.url();
    await page.goto("about:blank");
    await server.stop();
    const next = await startServer({ model: fakeModel({ n_ctx: 4096 }), port });
    try {
      await page.goto(address);
      await page.getByText("The answer was interrupted. What came is here; it can be continued.").waitFor();
      const part = await text(page).innerText();
      assert.ok(part !== "" && part.length < whole.length && whole.startsWith(part), part);
      await page.getByRole("button", { name: "Continue the answer" }).click();
      await page.getByText("The answer was interrupted").waitFor({ state: "detached" }).catch(() => {});
      await v.answered();
      assert.equal(await text(page).innerText(), whole);
    } finally {
      await next.stop();
    }
  },
);
