import assert from "node:assert/strict";
import { FolderPage, OwnPage } from "../serve/page.ts";
import type { Command } from "./command.ts";
import { parseArgs } from "./parse.ts";
import { PAGE_FLAGS, pageOf, vertexOf } from "./server_flags.ts";

const command: Command = {
  name: "serve",
  summary: "",
  arguments: [],
  flags: PAGE_FLAGS,
  run: () => Promise.resolve(0),
};

function page(...args: string[]) {
  const parsed = parseArgs(["serve", ...args], [command], "");
  assert.ok(parsed.kind === "run");
  return pageOf(parsed.flags);
}

Deno.test("pageOf() is the program's own page unless a flag says otherwise, in llama-server's words", async () => {
  for (const args of [[], ["--ui"], ["--webui"]]) assert.ok(await page(...args) instanceof OwnPage, args.join());
  for (const args of [["--no-ui"], ["--no-webui"], ["--no-ui", "--path", "nowhere"]]) {
    assert.equal(await page(...args), null);
  }
});

Deno.test("pageOf() takes a folder, and refuses what is none", async () => {
  const dir = await Deno.makeTempDir();
  try {
    assert.ok(await page("--path", dir) instanceof FolderPage);
    await Deno.writeTextFile(`${dir}/file`, "");
    for (const path of [`${dir}/file`, `${dir}/none`]) {
      await assert.rejects(
        page("--path", path),
        (e: { code?: string; message: string }) => e.code === "usage.file" && e.message.includes(path),
      );
    }
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("vertexOf() reads what Vertex AI asks of a container, and nothing elsewhere", () => {
  const of = (env: Record<string, string>) => vertexOf((name) => env[name]);
  assert.equal(of({ AIP_HTTP_PORT: "9000" }), undefined);
  assert.deepEqual(of({ AIP_MODE: "PREDICTION" }), { port: 8080, predictRoute: "/predict", healthRoute: "/health" });
  assert.deepEqual(
    of({ AIP_MODE: "PREDICTION", AIP_HTTP_PORT: "9000", AIP_PREDICT_ROUTE: "/a:predict", AIP_HEALTH_ROUTE: "ping" }),
    { port: 9000, predictRoute: "/a:predict", healthRoute: "/ping" },
  );
  assert.throws(() => of({ AIP_MODE: "PREDICTION", AIP_HTTP_PORT: "x" }), { code: "usage.value" });
});
