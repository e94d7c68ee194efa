/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/** Keyboard, narrow screens, names for screen readers; the views of the machine and of probabilities. */
import assert from "node:assert/strict";
import type { FakeOptions } from "../serve/fake.ts";
import { closeBrowser, type Page, pageTest } from "./browser.ts";

closeBrowser();

const focused = (page: Page) =>
  page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent ?? "");

pageTest("the keyboard reaches everything: skip link, send, edit, stop, search, dialogs", { stepMs: 10 }, async (v) => {
  const { page } = v;
  await page.waitForFunction(() => document.activeElement?.id === "message");
  const skip = page.getByRole("link", { name: "Skip to the message box" });
  assert.ok(await skip.evaluate((link) => link === document.querySelector("a, button, input, textarea, select"))); // the first
  await skip.focus();
  await page.keyboard.press("Enter");
  assert.equal(await focused(page), "Message");
  await page.keyboard.type("one");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("[[[two]]]");
  await page.keyboard.press("Enter");
  await page.locator("article").nth(1).waitFor();
  await v.answered();
  assert.equal(await page.locator("article.user .plain-text").innerText(), "one\n[[[two]]]");
  await page.keyboard.press("ArrowUp");
  assert.equal(await focused(page), "Edit the message");
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("textbox", { name: "Edit the message" }).count(), 0);
  await page.keyboard.press("Control+k");
  assert.equal(await focused(page), "Search chats");
  await page.keyboard.press("ArrowDown");
  assert.equal(await focused(page), "one");
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("/");
  assert.equal(await focused(page), "Message");
  await page.keyboard.type(`slow [[[${"word ".repeat(100)}]]]`);
  await page.keyboard.press("Enter");
  await page.locator("article.assistant").nth(1).getByText("word").waitFor();
  await page.keyboard.press("Escape");
  await page.getByText("Stopped").waitFor();
  v.expected.push(/404/); // where streams end with their connection, there is none to delete
  await page.keyboard.press("Control+Shift+O");
  await page.getByRole("heading", { name: "What shall we forge?" }).waitFor();
});

pageTest("every control has a name, and the landmarks are there", {}, async (v) => {
  const { page } = v;
  await v.send("x [[[```js\na\n```]]]");
  await v.answered();
  await page.getByRole("button", { name: "Settings of this chat" }).click();
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll<HTMLElement>("button, a, input, textarea, select, summary")].filter((e) => {
      if (e.hidden || e.closest("[hidden]")) return false;
      const labels = (e as HTMLInputElement).labels;
      return !(e.getAttribute("aria-label") || e.textContent?.trim() || (labels && labels.length > 0));
    }).map((e) => e.outerHTML.slice(0, 120))
  );
  assert.deepEqual(nameless, []);
  for (const role of ["navigation", "main", "banner", "complementary", "log"] as const) {
    if (role === "banner") continue; // the header is within the page's column
    assert.equal(await page.getByRole(role).count(), 1, role);
  }
  assert.equal(await page.locator("html").getAttribute("lang"), "en");
});

pageTest("a phone sees one column: nothing wider than the screen, the chats behind a button", {
  context: { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true },
}, async (v) => {
  const { page } = v;
  const fits = () => page.evaluate(() => document.scrollingElement!.scrollWidth <= innerWidth);
  await v.send(
    `long [[[\`\`\`\n${"x".repeat(120)}\n\`\`\`\n\n${"y".repeat(120)}\n\n| ${"z ".repeat(60)} |\n|---|\n| 1 |\n\n$${
      "a+".repeat(60)
    }b$]]]`,
  );
  await v.answered();
  assert.ok(await fits());
  assert.equal(await page.getByRole("navigation").count(), 0);
  await page.getByRole("button", { name: "Chats" }).tap();
  await page.getByRole("link", { name: "Machine" }).tap();
  await page.getByText("Cache hits").waitFor();
  await page.getByRole("navigation").waitFor({ state: "hidden" });
  assert.ok(await fits());
});

/** A plan of few bytes, with experts that do not all fit. */
const box = { index: 0, kind: "cpu", name: "Box", memory_bytes: 1 << 20, free_bytes: 1 << 20, features: [] };
const plan = {
  device: box,
  devices: [{ device: box, total_bytes: 8192 }],
  weights: [
    { name: "blk.0.attn_q.weight", type: { name: "q4_K" }, bytes: 2048, form: "memory", device_bytes: 2048 },
    { name: "blk.0.ffn_up_exps.weight", type: { name: "q4_K" }, bytes: 9999, form: "pool", device_bytes: 0 },
  ],
  pools: [{ slot_bytes: 512, n_slots: 8, n_expert: 64, groups: [], least: 2, bytes: 4096 }],
  caches: [{
    window: 0,
    state: false,
    streams: [{ type: { name: "f16" }, ne: 4, ratio: 1 }],
    page_size: 64,
    n_pages: 2,
    bytes: 1024,
  }],
  table_bytes: 3072,
  scratch_bytes: 1024,
  total_bytes: 8192,
} as unknown as NonNullable<FakeOptions["machine"]>["plan"];
const experts = () => ({ hits: 3, misses: 1, read_bytes: 5120, wait_ms: 1500 } as never);

pageTest("the machine view shows slots, rates, the queue and what lives where", {
  n_slots: 2,
  stepMs: 5,
  machine: { plan, experts },
}, async (v) => {
  const { page } = v;
  await v.send(`x [[[${"word ".repeat(200)}]]]`);
  await page.locator("article.assistant").waitFor();
  await page.getByRole("link", { name: "Machine" }).click();
  await page.locator(".slots .works").waitFor();
  assert.equal(await page.locator(".slots li").count(), 2);
  assert.match(await page.locator(".tile", { hasText: "Queue" }).innerText(), /0\s+waiting, 1 of 2 slots busy/);
  const rows = (await page.locator(".machine tbody tr").allInnerTexts()).map((row) => row.replace(/\s+/g, " ").trim());
  assert.deepEqual(rows, [
    "attention 1 tensor, q4_K 2.0 KiB",
    "expert slots 8 of 512 B, for 64 experts 4.0 KiB",
    "cache 128 tokens, f16 1.0 KiB",
    "scratch values of a step, at most 1.0 KiB",
    "total of 1.0 MiB that were free 8.0 KiB",
    "tables rows are read as tokens name them: not counted 3.0 KiB",
  ]);
  assert.match(
    await page.locator(".tile", { hasText: "Expert hits" }).innerText(),
    /75\.0 %\s+5\.0 KiB read, 1\.5 s waited/,
  );
  await page.waitForFunction(() => Number(document.querySelector(".tile .value")?.textContent) > 0);
});

pageTest("the probabilities view tells a token's rivals and goes on from another", {}, async (v) => {
  const { page } = v;
  await page.getByRole("button", { name: "Settings of this chat" }).click();
  await page.getByLabel("Rivals of each token").fill("20");
  await page.getByRole("button", { name: "Close the settings" }).click();
  await v.send("x [[[<think>\nhm\n</think>\n\nabc dc]]]");
  await v.answered();
  const probabilities = page.getByRole("button", { name: "Probabilities of the tokens" });
  await probabilities.click();
  const tokens = page.getByRole("option");
  assert.equal((await tokens.allInnerTexts()).join("").replace(/\s+/g, " "), "<think> hm </think> abc dc");
  await tokens.filter({ hasText: /^d$/ }).hover();
  const panel = page.getByRole("group", { name: "Rivals of the token" });
  await panel.getByText("Token d, ").waitFor();
  const rivals = panel.getByRole("button");
  assert.equal(await panel.locator("li").count(), 20);
  // Keyboard: the tokens are one stop, the arrows move within.
  await tokens.filter({ hasText: /^d$/ }).focus();
  await page.keyboard.press("ArrowLeft");
  await panel.getByText("Token ␣, ").waitFor();
  await page.keyboard.press("Enter");
  const name = (await rivals.first().getAttribute("aria-label"))!;
  const rival = /^Go on from (.*) instead/.exec(name)![1].replaceAll("␣", " ");
  const request = page.waitForRequest((r) => r.url().endsWith("/v1/chat/completions"));
  await page.keyboard.press("Enter");
  const { messages } = (await request).postDataJSON();
  assert.deepEqual(messages.at(-1), { role: "assistant", content: `abc${rival}`, reasoning_content: "hm" });
  await page.getByText("2 / 2").waitFor();
  await v.answered();
  assert.ok((await page.locator("article.assistant .markdown").last().innerText()).startsWith(`abc${rival}`));
  await probabilities.click();
  assert.ok((await tokens.allInnerTexts()).join("").includes(`abc${rival}`)); // those that it begins with are told too
});
