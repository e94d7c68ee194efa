/**
 * The page in a real browser: Debian's chromium, driven by playwright-core. Where there is no browser the tests say that they are
 * skipped.
 * @module
 */
import assert from "node:assert/strict";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "npm:playwright-core@1.65.1";
import type { ServerOptions } from "../../serve/server.ts";
import type { FakeOptions } from "../serve/fake.ts";
import { type Harness, withServer } from "../serve/harness.ts";

export type { Page };

const PATHS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** The browser; BLOOMERY_CHROMIUM names another. */
const executablePath = Deno.env.get("BLOOMERY_CHROMIUM") ?? PATHS.find(isFile);

let browser: Promise<Browser> | undefined;

function launch(): Promise<Browser> {
  return browser ??= chromium.launch({
    executablePath: executablePath!,
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

/** Call it at the end of a file: the browser is one for all of its tests. */
export function closeBrowser(): void {
  Deno.test.afterAll(async () => {
    await (await browser)?.close();
  });
}

/** What a test of the page gets. */
export interface Visit extends Harness {
  page: Page;
  /** Sends a message. The fake model answers what stands between `[[[` and `]]]`. */
  send(text: string): Promise<void>;
  /** Waits until no answer runs in the open chat. */
  answered(): Promise<void>;
  /** Texts of errors that the test expects. */
  expected: RegExp[];
}

export interface VisitOptions extends Omit<ServerOptions, "model" | "port">, FakeOptions {
  context?: BrowserContextOptions;
  /** The test may be left out, with the reason. */
  skip?: string | undefined;
}

/** Opens a browser's page without a server of its own; fails where the page reports an error or asks for something elsewhere. */
export async function withPage(
  origin: string,
  context: BrowserContextOptions,
  test: (page: Page, expected: RegExp[]) => Promise<void>,
): Promise<void> {
  const own = await (await launch()).newContext(context);
  const errors: string[] = [], elsewhere: string[] = [], expected: RegExp[] = [];
  try {
    const page = await own.newPage();
    page.setDefaultTimeout(20_000);
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") errors.push(message.text());
    });
    own.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(origin) && !/^(?:data|blob):/.test(url)) elsewhere.push(url);
    });
    await test(page, expected);
    assert.deepEqual(elsewhere, [], "requests that leave the server");
    assert.deepEqual(errors.filter((text) => !expected.some((e) => e.test(text))), [], "errors in the browser");
  } finally {
    await own.close();
  }
}

/** A test in the browser; without one it says that it is skipped. */
export function browserTest(name: string, fn: () => Promise<void>, skip?: string): void {
  const reason = skip ?? (executablePath === undefined ? "no chromium here" : undefined);
  Deno.test({
    name: reason === undefined ? name : `${name} (skipped: ${reason})`,
    ignore: reason !== undefined,
    // The browser outlives a test.
    sanitizeOps: false,
    sanitizeResources: false,
    fn,
  });
}

/** A test with a server on the fake model and its page, opened. */
export function pageTest(name: string, options: VisitOptions, test: (visit: Visit) => Promise<void>): void {
  browserTest(name, async () => {
    const { context = {}, ...serve } = options;
    await withServer({ n_ctx: 4096, ...serve }, async (harness) => {
      await withPage(harness.server.url, context, async (page, expected) => {
        await page.goto(`${harness.server.url}/`);
        await page.getByRole("textbox", { name: "Message", exact: true }).waitFor();
        await test({
          ...harness,
          page,
          expected,
          async send(text) {
            const before = await page.locator("article").count();
            await page.getByRole("textbox", { name: "Message", exact: true }).fill(text);
            await page.keyboard.press("Enter");
            await page.locator("article").nth(before + 1).waitFor({ state: "attached" });
          },
          async answered() {
            await page.locator("article.assistant:last-child[aria-busy=false]").waitFor();
            await page.getByRole("button", { name: "Send", exact: true }).waitFor();
          },
        });
      });
    });
  }, options.skip);
}
