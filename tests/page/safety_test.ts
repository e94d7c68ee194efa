/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/** What the page must not do, whatever the model says and whoever asks. */
import assert from "node:assert/strict";
import { closeBrowser, pageTest } from "./browser.ts";

closeBrowser();

const HOSTILE = [
  "<script>window.ran = 1</script>",
  "<img src=x onerror='window.ran = 1'>",
  "<svg onload='window.ran = 1'><style>*{display:none}</style></svg>",
  "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
  "<a href='javascript:window.ran=1'>raw</a>",
  "[a](javascript:window.ran=1) [b](data:text/html,x) <javascript:window.ran=1>",
  '![pixel](http://127.0.0.1:9/pixel.png) [ok](https://example.org/ "<b>t</b>")',
  "```html\n<script>window.ran = 1</script>\n```",
  '```"><script>window.ran=1</script>\nx\n```',
  "$\\href{javascript:window.ran=1}{x}$ $\\text{<script>window.ran=1</script>}$",
  "| <img src=x onerror=window.ran=1> |\n|---|\n| <b>y</b> |",
  "<form action=http://127.0.0.1:9><button>x</button></form><meta http-equiv=refresh content='0;url=http://127.0.0.1:9'>",
].join("\n\n");

pageTest("what the model says is text: no script, no handler, no element of its own, no request", {}, async (v) => {
  const { page } = v;
  await v.send(`go [[[<think>\n${HOSTILE.slice(0, 400)}\n</think>\n\n${HOSTILE}]]]`);
  await v.answered();
  await page.locator("details.reasoning summary").click();
  await page.locator("details.reasoning").getByText("<iframe").waitFor();
  const found = await page.locator(".log").evaluate((log) => {
    const all = [...log.querySelectorAll("*")];
    return {
      tags: [...new Set(all.map((e) => e.localName))].filter((tag) =>
        /^(?:script|img|iframe|form|meta|style|object|embed|link|base|video|audio)$/.test(tag)
      ),
      handlers: all.filter((e) => [...e.attributes].some((a) => a.name.startsWith("on"))).length,
      links: [...log.querySelectorAll("a")].map((a) => [a.getAttribute("href"), a.rel, a.target]),
    };
  });
  assert.deepEqual(found.tags, []);
  assert.equal(found.handlers, 0);
  assert.deepEqual(
    [...new Set(found.links.map((link) => link.join(" ")))].sort(),
    // The first is an address in the text of a tag.
    ["http://127.0.0.1:9", "http://127.0.0.1:9/pixel.png", "https://example.org/"].map((href) =>
      `${href} noopener noreferrer _blank`
    ),
  );
  assert.equal(await page.evaluate(() => (window as unknown as { ran?: number }).ran), undefined);
  assert.ok((await page.locator("article.assistant").innerText()).includes("<script>window.ran = 1</script>"));
});

pageTest("the browser itself refuses scripts that come by text, and connections elsewhere", {}, async (v) => {
  const { page } = v;
  v.expected.push(/Content Security Policy|Trusted|violates/i);
  const refused = await page.evaluate(async (elsewhere) => {
    const tries: Record<string, () => unknown> = {
      html: () => document.body.innerHTML = "<b>x</b>",
      script: () =>
        document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = 1" })),
      // From a task of its own: the driver's own calls may evaluate.
      code: () =>
        new Promise((resolve, reject) =>
          setTimeout(() => {
            try {
              resolve((0, eval)("window.ran = 1"));
            } catch (error) {
              reject(error);
            }
          })
        ),
      fetch: () => fetch(elsewhere),
    };
    const failed = [];
    for (const [name, run] of Object.entries(tries)) {
      try {
        await run();
      } catch {
        failed.push(name);
      }
    }
    return [failed, (window as unknown as { ran?: number }).ran];
  }, "http://127.0.0.1:9/");
  assert.deepEqual(refused, [["html", "script", "code", "fetch"], undefined]);
});

pageTest("a key is asked for where the server wants one, again where it is wrong, and kept only when told so", {
  apiKeys: ["secret"],
}, async (v) => {
  const { page } = v;
  v.expected.push(/401/);
  const dialog = page.getByRole("dialog", { name: "API key" });
  const give = async (key: string, keep = false) => {
    await dialog.getByLabel("Key", { exact: true }).fill(key);
    if (keep) await dialog.getByRole("checkbox").check();
    await page.keyboard.press("Enter");
  };
  await give("wrong");
  await dialog.getByText("The server refused this key.").waitFor();
  await give("secret");
  await dialog.waitFor({ state: "detached" });
  await v.send("hi [[[there]]]");
  await v.answered();
  assert.equal(await page.locator("article.assistant .markdown").last().innerText(), "there");
  assert.deepEqual(
    await page.evaluate(() => [localStorage.getItem("bloomery.key"), sessionStorage.getItem("bloomery.key")]),
    [null, "secret"],
  );
  await page.getByRole("button", { name: "Settings of this chat" }).click();
  await page.getByRole("button", { name: "Forget the API key" }).click();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Retry: another answer" }).click();
  await give("secret", true);
  await page.getByText("2 / 2").waitFor();
  await v.answered();
  assert.equal(await page.evaluate(() => localStorage.getItem("bloomery.key")), "secret");
  const address = await page.evaluate(() => location.href);
  assert.doesNotMatch(address, /secret/);
});
