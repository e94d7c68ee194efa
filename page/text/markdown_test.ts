import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { linesOf, parseLines, parseMarkdown } from "./markdown.ts";
import { ATTRIBUTES, HTML_TAGS, isSafeLink, MATH_TAGS, type Node } from "./node.ts";

/** The tree as HTML, to be compared. */
function html(node: Node): string {
  if (typeof node === "string") return node;
  const attributes = Object.entries(node.attributes).map(([name, value]) => ` ${name}="${value}"`).join("");
  const inner = node.children.map(html).join("");
  return ["br", "hr", "input"].includes(node.tag)
    ? `<${node.tag}${attributes}>`
    : `<${node.tag}${attributes}>${inner}</${node.tag}>`;
}
const read = (text: string) => parseMarkdown(text).map(({ node }) => html(node)).join("");

function* elements(nodes: readonly Node[]): Generator<Exclude<Node, string>> {
  for (const node of nodes) {
    if (typeof node === "string") continue;
    yield node;
    yield* elements(node.children);
  }
}

/** Everything that a text became, addresses and languages included. */
function allText(nodes: readonly Node[]): string {
  return nodes.map((node) => {
    if (typeof node === "string") return node;
    const { "data-lang": lang = "", href = "", title = "" } = node.attributes;
    return `${lang} ${allText(node.children)} ${href} ${title}`;
  }).join("");
}

/** Letters of `part` stand in `whole` in this order. */
function isSubsequence(part: string, whole: string): boolean {
  let at = 0;
  for (const char of part) {
    at = whole.indexOf(char, at) + char.length;
    if (at < char.length) return false;
  }
  return true;
}

/** Texts that look like Markdown, so that the readers' branches are met. */
const pieces = fc.array(
  fc.oneof(
    fc.constantFrom(
      "\n",
      "\n\n",
      "# ",
      "## ",
      "- ",
      "* ",
      "1. ",
      "2) ",
      "> ",
      "```",
      "~~~",
      "```js\n",
      "`",
      "``",
      "**",
      "*",
      "_",
      "__",
      "~~",
      "[",
      "]",
      "](",
      ")",
      "](http://a.b/c)",
      "](javascript:x)",
      "![",
      "<",
      ">",
      "<script>",
      "</script>",
      "<img src=x onerror=y>",
      "<br>",
      "|",
      "|-|-|\n",
      "---",
      "===",
      "$",
      "$$",
      "\\(",
      "\\)",
      "\\[",
      "\\]",
      "\\",
      "\\frac{a}{b}",
      "x_1^2",
      "    ",
      "  ",
      "\t",
      "http://",
      "https://a.b/(c)",
      "mailto:",
      "- [x] ",
      "&",
      "&#106;",
      ":",
      '"',
      "'",
      "\r\n",
      "\u0000",
      "\u2028",
      "😀",
      "é",
    ),
    fc.string({ unit: "grapheme", maxLength: 12 }),
    fc.constantFrom("word", "two words", "a", "1"),
  ),
  { maxLength: 60 },
).map((parts) => parts.join(""));

Deno.test("parseMarkdown() reads the blocks that models write", () => {
  assert.equal(read("# A *b*\ntext\nmore"), "<h1>A <em>b</em></h1><p>text<br>more</p>");
  assert.equal(read("Title\n===\nSub\n---"), "<h1>Title</h1><h2>Sub</h2>");
  assert.equal(read("a\n\n---\n\nb"), "<p>a</p><hr><p>b</p>");
  assert.equal(read("> a\nb\n>\n> - c"), "<blockquote><p>a<br>b</p><ul><li>c</li></ul></blockquote>");
  assert.equal(read("- a\n- b\n  - c\n\ntext"), "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><p>text</p>");
  assert.equal(read("3. a\n\n4. b"), '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>');
  assert.equal(read("1. a\n  - b\n2. c"), "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>");
  assert.match(
    read("- [x] a\n- [ ] b"),
    /^<ul><li class="task"><input [^>]*checked="">a<\/li><li class="task"><input [^>]*to do">b/,
  );
  assert.equal(
    read("```\na\n  b\n```\nc"),
    '<figure class="code" data-lang=""><pre><code>a\n  b</code></pre></figure><p>c</p>',
  );
  assert.equal(read("~~~~x\n```\n~~~~"), '<figure class="code" data-lang="x"><pre><code>```</code></pre></figure>');
  assert.equal(read("    a\n\n    b"), '<figure class="code" data-lang=""><pre><code>a\n\nb</code></pre></figure>');
  assert.equal(
    read("|a|b|\n|:-:|--:|\n|1 `|`|2|\n|x"),
    '<div class="table"><table><thead><tr><th class="center">a</th><th class="right">b</th></tr></thead><tbody>' +
      '<tr><td class="center">1 <code>|</code></td><td class="right">2</td></tr><tr><td class="center">x</td><td class="right"></td></tr></tbody></table></div>',
  );
});

Deno.test("parseMarkdown() reads what stands in a paragraph", () => {
  const inner = (text: string) => read(text).replace(/^<p>([^]*)<\/p>$/, "$1");
  assert.equal(inner("**a _b_** ~~c~~ `d*e*`"), "<strong>a <em>b</em></strong> <del>c</del> <code>d*e*</code>");
  assert.equal(inner("a*b*c a_b_c **un"), "a<em>b</em>c a_b_c **un");
  assert.equal(inner("***a***"), "<em><strong>a</strong></em>");
  assert.equal(inner("`` a`b ``"), "<code>a`b</code>");
  assert.equal(inner("\\*a\\* &lt;b&gt; &bogus; &#x41;"), "*a* <b> &bogus; A");
  assert.equal(inner('[a *b*](https://x.y/(z) "t")'), '<a href="https://x.y/(z)" title="t">a <em>b</em></a>');
  assert.equal(inner("see https://x.y/z). And"), 'see <a href="https://x.y/z">https://x.y/z</a>). And');
  assert.equal(inner("<mailto:a@b.c>"), '<a href="mailto:a@b.c">mailto:a@b.c</a>');
  assert.equal(inner("costs $5 and $6, not $x$"), `costs $5 and $6, not ${inner("$x$")}`);
  assert.match(inner("\\(a\\)"), /^<math><semantics><mi>a<\/mi>/);
});

Deno.test("parseMarkdown() makes no element of HTML, no image, and no link but to the web and mail", () => {
  for (
    const text of [
      "<script>alert(1)</script>",
      "<img src=x onerror=alert(1)>",
      "<a href='javascript:alert(1)'>x</a>",
      "[x](javascript:alert(1))",
      "[x](JaVaScRiPt:alert(1))",
      "[x](java\nscript:alert(1))",
      "[x](data:text/html,<script>alert(1)</script>)",
      "[x](vbscript:x)",
      "[x](//evil.example)",
      "[x](file:///etc/passwd)",
      "<javascript:alert(1)>",
      "![x](data:image/png;base64,AAAA)",
      "[x]( javascript:alert(1))",
      "[x](&#106;avascript:alert(1))",
    ]
  ) {
    const nodes = parseMarkdown(text).map((block) => block.node);
    assert.deepEqual([...elements(nodes)].filter(({ tag }) => tag !== "p" && tag !== "br"), [], text);
  }
  assert.equal(read("![a cat](https://x.y/cat.png)"), '<p><a href="https://x.y/cat.png" class="image">a cat</a></p>');
});

Deno.test("isSafeLink() takes http, https and mailto alone", () => {
  for (const href of ["http://a", "HTTPS://a/b?c#d", "mailto:a@b"]) assert.ok(isSafeLink(href), href);
  for (
    const href of [
      "",
      "a",
      "/a",
      "//a",
      "javascript:a",
      " http://a",
      "http://a b",
      "java\tscript:a",
      "http:\n//a",
      "data:,",
      "blob:x",
    ]
  ) {
    assert.ok(!isSafeLink(href), JSON.stringify(href));
  }
});

Deno.test("parseMarkdown() never throws, gives listed elements only, and loses no letter", () => {
  fc.assert(
    fc.property(pieces, (text) => {
      const nodes = parseMarkdown(text).map((block) => block.node);
      for (const { tag, attributes } of elements(nodes)) {
        assert.ok(HTML_TAGS.includes(tag as never) || MATH_TAGS.includes(tag as never), tag);
        for (const [name, value] of Object.entries(attributes)) {
          assert.ok(ATTRIBUTES.includes(name as never) && !name.startsWith("on"), name);
          if (name === "href") assert.ok(isSafeLink(value), value);
        }
      }
      // What becomes another character or an element: entities, breaks, checked boxes.
      const letters = text.replace(/&[#\w]*;?|<br\s*\/?>|\[[xX]\]/gi, " ").replace(/[^\p{L}]/gu, "");
      if (!/&|<br|\[x\]/i.test(text)) {
        assert.ok(isSubsequence(letters, allText(nodes)), `${letters}\n${allText(nodes)}`);
      }
    }),
    { numRuns: 3000 },
  );
});

Deno.test("blocks before the last two stay as they are when a text without math grows", () => {
  fc.assert(
    fc.property(pieces, pieces, (start, more) => {
      const text = start.replace(/[$\\]/g, ""), whole = text + more.replace(/[$\\]/g, "");
      const before = parseMarkdown(text).slice(0, -2);
      const from = before.length === 0 ? 0 : parseMarkdown(text)[before.length].line;
      const rest = parseLines(linesOf(whole).slice(from)).map(({ line, node }) => ({ line: line + from, node }));
      assert.deepEqual([...before, ...rest], parseMarkdown(whole));
    }),
    { numRuns: 2000 },
  );
});

Deno.test("texts made to be slow are read in steps that grow with their length", () => {
  // No time is asserted: a reader that is quadratic would not end here.
  const n = 40_000;
  for (
    const unit of [
      "[",
      "*a ",
      "_",
      "`",
      "``a",
      "$",
      "\\(",
      "<",
      "> ",
      "- ",
      "![",
      "](",
      "~~",
      "|a",
      "&",
      "[a](",
      "**a*",
      "\\[",
      "#",
    ]
  ) {
    parseMarkdown(unit.repeat(n / unit.length));
    parseMarkdown(`${unit}\n`.repeat(2000));
  }
});
