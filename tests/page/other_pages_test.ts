/// <reference lib="dom" />
/** The page before there is a model, and the report of `bloomery eval`, which is a page too. */
import assert from "node:assert/strict";
import { type Report, summarize, type WindowResult } from "../../eval/compare.ts";
import { renderHtml } from "../../eval/html_report.ts";
import { openServer } from "../../serve/server.ts";
import { fakeModel } from "../serve/fake.ts";
import { browserTest, closeBrowser, withPage } from "./browser.ts";

closeBrowser();

browserTest("the page says that the model loads, and goes on when it has loaded", async () => {
  const waiting = await openServer({ port: 0, n_slots: 1 });
  try {
    await withPage(waiting.url, {}, async (page, expected) => {
      expected.push(/503/);
      await page.goto(`${waiting.url}/`);
      const banner = page.getByText("The server loads its model…");
      await banner.waitFor();
      const server = waiting.serve(fakeModel());
      await banner.waitFor({ state: "hidden" });
      await page.getByRole("textbox", { name: "Message", exact: true }).fill("x [[[yes]]]");
      await page.keyboard.press("Enter");
      await page.locator("article.assistant").getByText("yes").waitFor();
      await server.drain();
    });
  } finally {
    await waiting.stop();
  }
});

browserTest(
  "the report of an evaluation opens without an error, a script or a request, and shows its figures",
  async () => {
    const texts = ["<img src=x onerror=alert(1)>", " the", "ing", "42", "한", ".", "\n"];
    const results = Array.from({ length: 12 }, (_, index): WindowResult => {
      const ids = Array.from({ length: 20 }, (_, i) => (i * 5 + index) % texts.length);
      const kls = ids.slice(1).map((id, i) => (id + i) / 50);
      const kl = kls.reduce((a, b) => a + b) / kls.length;
      const means = { nll: 2 + kl, nllBase: 2, kl, sameTop: 0.5, n_tokens: kls.length };
      return {
        source: index % 2 ? "a & <b>" : "en",
        index,
        ...means,
        detail: {
          ids,
          skip: 0,
          kls,
          same: kls.map((_, i) => i % 2),
        },
      };
    });
    const report: Report = {
      schema: "bloomery.eval/1",
      model: "<script>document.title = 'ran'</script>.gguf",
      base: "o.gguf",
      kl_support: "all",
      n_window: 20,
      skip: 0,
      bos: false,
      rows: summarize(results),
      windows: [],
    };
    const html = renderHtml(report, results, {
      text: (id) => texts[id],
      decode: (ids) => ids.map((id) => texts[id]).join(""),
    });
    const path = await Deno.makeTempFile({ suffix: ".html" });
    try {
      await Deno.writeTextFile(path, html);
      await withPage(`file://${path}`, { viewport: { width: 900, height: 700 } }, async (page) => {
        await page.goto(`file://${path}`);
        assert.equal(await page.locator("script, img, iframe, link").count(), 0);
        assert.doesNotMatch(await page.title(), /^ran$/);
        assert.ok(await page.locator("svg").count() > 0);
        const box = (await page.locator("svg").first().boundingBox())!;
        assert.ok(box.width > 100 && box.height > 20);
        const row = page.locator("tr", { hasText: "a & <b>" }).first();
        assert.match(await row.innerText(), /a & <b>\s+6/);
        // Shapes of the pictures lie within them.
        const outside = await page.locator("svg").evaluateAll((all) =>
          all.flatMap((svg) => {
            const { width, height } = (svg as SVGSVGElement).viewBox.baseVal;
            return [...svg.querySelectorAll("circle, rect")].filter((e) => {
              const { x, y } = (e as SVGGraphicsElement).getBBox();
              return !(x >= -1 && y >= -1 && x <= width + 1 && y <= height + 1);
            }).map((e) => e.outerHTML);
          })
        );
        assert.deepEqual(outside, []);
      });
    } finally {
      await Deno.remove(path);
    }
  },
);
