/** The check of imports, on small repositories made for it. */
import assert from "node:assert/strict";
import { repoDir } from "./shared.ts";

async function problems(files: Record<string, string>): Promise<string[]> {
  const root = `${await Deno.makeTempDir()}/`;
  try {
    const own = {
      "deno.json": `{"imports": {"zod": "npm:zod@1"}}`,
      "deno.lock": `{"specifiers": {"npm:zod@1": "1.0.0"}}`,
    };
    for (const [path, text] of Object.entries({ ...own, ...files })) {
      await Deno.mkdir(root + path.replace(/[^/]*$/, ""), { recursive: true });
      await Deno.writeTextFile(root + path, text);
    }
    const command = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", `${repoDir}scripts/check_imports.ts`, root],
    });
    const { code, stderr } = await command.output();
    const told = new TextDecoder().decode(stderr).split("\n").filter((line) => line !== "");
    assert.equal(code, told.length > 0 ? 1 : 0);
    return told;
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

/** Source that imports modules; in two parts, so that the check does not take it for imports of this file. */
const use = (...paths: string[]): string => paths.map((path) => ["import {} from", `"${path}";`].join(" ")).join("\n");
const useType = (path: string): string => use(path).replace("import {}", "import type { T }");

Deno.test("check_imports finds circles of modules, types included, and no others", async () => {
  assert.deepEqual(
    await problems({
      "core/a.ts": `${use("./b.ts")}\n${use("./d/c.ts").replace("import", "export")}`,
      "core/b.ts": use("./d/c.ts"),
      "core/d/c.ts": "export const c = 1;",
      "core/own.ts": `/**\n * ${use("./own.ts")}\n */`,
    }),
    [],
  );
  const three = await problems({
    "core/a.ts": use("./b.ts"),
    "core/b.ts": useType("./d/c.ts"),
    "core/d/c.ts": use("../a.ts", "../b.ts"),
    "serve/x.ts": use("./y.ts"),
    "serve/y.ts": `${useType("./x.ts")}\n${use("../core/a.ts")}`,
  });
  assert.equal(three.length, 2);
  assert.deepEqual(
    three.map((line) => line.replace(/^.*?: /, "").split(" -> ").slice(1).toSorted()),
    [["core/a.ts", "core/b.ts", "core/d/c.ts"], ["serve/x.ts", "serve/y.ts"]],
  );
});

Deno.test("check_imports holds the direction of imports", async () => {
  const found = await problems({ "core/a.ts": use("../serve/x.ts"), "serve/x.ts": "" });
  assert.deepEqual(found, ["core/a.ts: imports serve/x.ts, which core/ may not"]);
});

Deno.test("check_imports finds packages of the lock file that only tests use", async () => {
  const lock = JSON.stringify({ specifiers: { "npm:zod@1": "1.0.0", "npm:other@2": "2.0.0" } });
  const found = await problems({ "core/a.ts": "", "deno.lock": lock });
  assert.equal(found.length, 1);
  assert.match(found[0], /^deno\.lock names npm:other@2, which deno\.json does not/);
});
