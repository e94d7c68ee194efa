/** The page as a file: how it is served, what its headers forbid, and what can stand in its place. */
import assert from "node:assert/strict";
import { gunzipSync } from "node:zlib";
import type { ResidencyStats } from "../../core/engine/residency.ts";
import { openServer } from "../../serve/server.ts";
import { FolderPage } from "../../serve/page.ts";
import { openModel } from "../../ffi/mod.ts";
import { bloomNano } from "../models.ts";
import { servedModel } from "../../serve/language_model.ts";
import { withServer } from "./harness.ts";

const get = (url: string, headers: Record<string, string> = {}) => fetch(url, { headers, redirect: "manual" });

Deno.test("the page is one small file that asks for nothing else, and its script and styles are named by their hashes", async () => {
  await withServer({ apiKeys: ["secret"] }, async ({ server }) => {
    const response = await get(`${server.url}/`);
    const html = await response.text();
    assert.equal(response.status, 200);
    assert.equal(response.headers.get("content-type"), "text/html; charset=utf-8");
    const policy = response.headers.get("content-security-policy")!;
    assert.match(
      policy,
      /^default-src 'none'; script-src 'sha256-[^ ;]+'; style-src 'sha256-[^ ;]+'; connect-src 'self'; img-src data:; /,
    );
    assert.match(policy, /frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'$/);
    for (const [, text] of html.matchAll(/<(?:script|style)[^>]*>([^]*?)<\/(?:script|style)>/g)) {
      const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
      assert.ok(policy.includes(`'sha256-${hash.toBase64()}'`));
    }
    const outside = html.replace(/<script[^]*?<\/script>|<style[^]*?<\/style>/g, "");
    assert.doesNotMatch(outside, /\b(?:src|on\w+)=|href=(?!"data:)/);
    const packed = await new Response((await get(`${server.url}/index.html`, { "accept-encoding": "gzip" })).body)
      .text();
    assert.equal(packed, html); // fetch unpacks it
    const head = await fetch(`${server.url}/`, { method: "HEAD" });
    assert.deepEqual([head.status, await head.text()], [200, ""]);
    const again = await get(`${server.url}/`, { "if-none-match": response.headers.get("etag")! });
    assert.deepEqual([again.status, await again.text()], [304, ""]);
  });
});

Deno.test("the page goes over the wire packed, in less than 150 kB", async () => {
  await withServer({}, async ({ server }) => {
    // fetch would unpack it
    const connection = await Deno.connect({ hostname: "127.0.0.1", port: server.port });
    await connection.write(
      new TextEncoder().encode("GET / HTTP/1.0\r\nhost: x\r\naccept-encoding: gzip\r\nconnection: close\r\n\r\n"),
    );
    const bytes = new Uint8Array(await new Response(connection.readable).arrayBuffer());
    const text = new TextDecoder("latin1").decode(bytes), end = text.indexOf("\r\n\r\n");
    assert.match(text.slice(0, end), /content-encoding: gzip/i);
    const body = bytes.subarray(end + 4);
    assert.ok(body.length < 150_000, `${body.length} bytes`);
    assert.match(new TextDecoder().decode(gunzipSync(body)), /^<!doctype html>/);
  });
});

Deno.test("the page has the prefix of all routes, and where the slash is missing, it is added", async () => {
  await withServer({ apiPrefix: "llm" }, async ({ server }) => {
    assert.equal((await (await get(`${server.url}/llm/`)).text()).slice(0, 15), "<!doctype html>");
    const response = await get(`${server.url}/llm`);
    await response.body?.cancel();
    assert.deepEqual([response.status, response.headers.get("location")], [308, "/llm/"]);
    assert.equal((await (await get(`${server.url}/`)).json()).error.code, "not_found");
  });
});

Deno.test("without the page / is not found", async () => {
  await withServer({ page: null }, async ({ server }) => {
    const response = await get(`${server.url}/`);
    assert.deepEqual([response.status, (await response.json()).error.type], [404, "not_found_error"]);
  });
});

Deno.test("the page is there while the model loads, and other addresses say so", async () => {
  const server = await openServer({ port: 0 });
  try {
    assert.equal((await (await get(`${server.url}/`)).text()).slice(0, 15), "<!doctype html>");
    const other = await get(`${server.url}/props`);
    assert.deepEqual([other.status, (await other.json()).error.message], [503, "Loading model"]);
  } finally {
    await server.stop();
  }
});

Deno.test("a folder takes the page's place: its files and indexes, nothing outside of it", async () => {
  const dir = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${dir}/www/sub`, { recursive: true });
    await Deno.writeTextFile(`${dir}/www/index.html`, "root");
    await Deno.writeTextFile(`${dir}/www/a b.js`, "script");
    await Deno.writeTextFile(`${dir}/www/health`, "a file");
    await Deno.writeTextFile(`${dir}/www/sub/index.html`, "sub");
    await Deno.writeTextFile(`${dir}/secret.txt`, "secret");
    await Deno.symlink(`${dir}/secret.txt`, `${dir}/www/link.txt`);
    await Deno.symlink(dir, `${dir}/www/up`);
    await withServer({ page: new FolderPage(`${dir}/www`), apiKeys: ["k"] }, async ({ server }) => {
      const text = async (path: string) => (await get(server.url + path)).text();
      assert.equal(await text("/"), "root");
      assert.equal(await text("/sub/"), "sub");
      const script = await get(`${server.url}/a%20b.js`);
      assert.deepEqual([await script.text(), script.headers.get("content-type")], [
        "script",
        "text/javascript; charset=utf-8",
      ]);
      assert.deepEqual(JSON.parse(await text("/health")), { status: "ok" }); // routes go first
      for (
        const path of [
          "/none",
          "/link.txt",
          "/up/secret.txt",
          "/..%2fsecret.txt",
          "/%2e%2e/secret.txt",
          "/a%00",
          "/%ff",
          "/sub/index.html/x",
        ]
      ) {
        const response = await get(server.url + path);
        const body = await response.text();
        assert.equal(response.status, 404, path);
        assert.doesNotMatch(body, /secret$/, path);
      }
      assert.equal((await fetch(server.url, { method: "POST" })).status, 404);
    });
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("GET /bloomery/machine gives the plan's bytes, which are the sum, and needs a key", async () => {
  using opened = await openModel(await bloomNano("bf16"), { device: "cpu", n_ctx: 64 });
  const { model } = opened;
  await withServer({ apiKeys: ["k"] }, async ({ server }) => {
    const response = await get(`${server.url}/bloomery/machine`);
    assert.deepEqual([response.status, (await response.json()).error.code], [401, "invalid_api_key"]);
  });
  const { plan } = servedModel(model).machine!;
  const experts = { hits: 3, misses: 1, read_bytes: 5, wait_ms: 6, n_slots: 7, n_held: 8 } as ResidencyStats;
  const pool = { device: 0, slot_bytes: 2, n_slots: 7, groups: [], n_expert: 9, least: 1, bytes: 14 };
  // A model whose experts do not all fit; the sum is the plan's own.
  const routed = { ...plan, pools: [pool], pool_bytes: 14, total_bytes: plan.total_bytes + 14 };
  const machine = { plan: routed, experts: () => experts };
  await withServer({ slots: false, machine }, async ({ server, post }) => {
    await post("/completion", { prompt: "[[[abc]]]" });
    const told = await (await get(`${server.url}/bloomery/machine`)).json();
    const bytes = (parts: { bytes: number }[]) => parts.reduce((sum, part) => sum + part.bytes, 0);
    const { weights, caches, pools, scratch_bytes, total_bytes, device } = told.plan;
    assert.equal(bytes(weights) + bytes(pools) + bytes(caches) + scratch_bytes, total_bytes);
    assert.equal(total_bytes, model.engine.plan.total_bytes + 14);
    assert.deepEqual(told.experts, experts);
    assert.deepEqual(weights.map((w: { name: string }) => w.name).sort(), [
      "attention",
      "embedding",
      "feed-forward",
      "other",
    ]);
    assert.equal(device.kind, "cpu");
    const [on, ...others] = told.plan.devices;
    assert.deepEqual([on.name, on.total_bytes, others], [device.name, model.engine.plan.total_bytes, []]);
    assert.equal(told.slots, null); // --no-slots
    assert.deepEqual([told.n_slots, told.n_waiting, told.counters.n_generated_tokens], [4, 0, 3]); // "ab", "c", end
  });
});
