import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { highlight } from "./highlight.ts";
import type { Node } from "./node.ts";
import { textOf } from "./node.ts";

const shown = (nodes: Node[]) =>
  nodes.map((n) => typeof n === "string" ? n : `{${n.attributes.class!.slice(2)} ${textOf([n])}}`).join("");

Deno.test("highlight() knows comments, texts, numbers and words", () => {
  assert.equal(
    shown(highlight('const a = "x\\"y"; // c\nfoo(0xff, Bar.z) /* d\n */ + null', "ts")),
    '{keyword const} a = {string "x\\"y"}; {comment // c}\n{function foo}({number 0xff}, {type Bar}.z) {comment /* d\n */} + {constant null}',
  );
  assert.equal(
    shown(highlight('def f(x):\n  """doc\n  """\n  return x#no', "python")),
    '{keyword def} {function f}(x):\n  {string """doc\n  """}\n  {keyword return} x#no',
  );
  assert.equal(shown(highlight('{"a": [1.5e3, true]}', "json")), '{{key "a"}: [{number 1.5e3}, {constant true}]}');
  assert.equal(shown(highlight("+a\n-b\n c", "diff")), "{added +a\n}{removed -b\n} c");
  assert.equal(
    shown(highlight('<a href="b">c</a><!-- d -->', "html")),
    '{tag <a} {key href}={string "b"}{tag >}c{tag </a>}{comment <!-- d -->}',
  );
  assert.equal(shown(highlight("SELECT a FROM b -- c", "SQL")), "{keyword SELECT} a {keyword FROM} b {comment -- c}");
  assert.equal(shown(highlight("echo $HOME # x", "sh")), "{keyword echo} {constant $HOME} {comment # x}");
  assert.equal(shown(highlight("if a then b", "text")), "if a then b");
  assert.equal(shown(highlight("constructor __proto__", "constructor")), "constructor __proto__");
});

Deno.test("highlight() gives the code back, character by character, in every language", () => {
  const names =
    "ts c java rust go swift py rb php sh sql lua hs css json yaml toml dockerfile make html diff text other".split(
      " ",
    );
  const code = fc.array(
    fc.oneof(
      fc.constantFrom(
        '"',
        "'",
        "`",
        "//",
        "/*",
        "*/",
        "#",
        "--",
        "--[[",
        "]]",
        "\\",
        "\n",
        "<",
        ">",
        "</",
        "<!--",
        "-->",
        "=",
        ":",
        '"""',
        "0x",
        "1e",
        "$",
        "{-",
        "@",
        "😀",
      ),
      fc.string({ unit: "binary", maxLength: 8 }),
    ),
    { maxLength: 40 },
  ).map((parts) => parts.join(""));
  fc.assert(
    fc.property(code, fc.constantFrom(...names), (code, name) => assert.equal(textOf(highlight(code, name)), code)),
    { numRuns: 2000 },
  );
});
