import assert from "node:assert/strict";
import * as fc from "npm:fast-check@4.11.0";
import { renderMath } from "./math.ts";
import { MATH_TAGS, type Node } from "./node.ts";

function xml(node: Node): string {
  if (typeof node === "string") return node;
  const attributes = Object.entries(node.attributes).map(([name, value]) => ` ${name}="${value}"`).join("");
  return `<${node.tag}${attributes}>${node.children.map(xml).join("")}</${node.tag}>`;
}
/** The formula without what surrounds it; undefined where it is shown as its source. */
function formula(source: string, display = false): string | undefined {
  return /^<math[^>]*><semantics>([^]*)<annotation/.exec(xml(renderMath(source, { display })))?.[1];
}

Deno.test("renderMath() knows scripts, fractions, roots and names", () => {
  assert.equal(formula("x_1^2"), "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>");
  assert.equal(formula("f'"), "<msup><mi>f</mi><mo>′</mo></msup>");
  assert.equal(formula("\\frac12"), "<mfrac><mn>1</mn><mn>2</mn></mfrac>");
  assert.equal(formula("\\frac{a}{b}"), "<mfrac><mi>a</mi><mi>b</mi></mfrac>");
  assert.equal(formula("\\sqrt[3]{x}"), "<mroot><mi>x</mi><mn>3</mn></mroot>");
  assert.equal(formula("\\sin 3.14"), '<mrow><mi mathvariant="normal">sin</mi><mn>3.14</mn></mrow>');
  assert.equal(
    formula("\\mathrm{CO_2}"),
    '<mrow><mi mathvariant="normal">C</mi><msub><mi mathvariant="normal">O</mi><mn>2</mn></msub></mrow>',
  );
  assert.equal(formula("\\mathbb{R}\\mathbf{x}"), "<mrow><mi>ℝ</mi><mi>𝐱</mi></mrow>");
  assert.equal(formula("\\text{if } x"), "<mrow><mtext>if\u00a0</mtext><mi>x</mi></mrow>");
  assert.equal(
    formula("\\sum_{i}^n", true),
    '<munderover><mo movablelimits="false">∑</mo><mi>i</mi><mi>n</mi></munderover>',
  );
  assert.equal(formula("\\not="), "<mo>≠</mo>");
});

Deno.test("renderMath() knows brackets and environments", () => {
  const bracket = (char: string) => `<mo fence="true" stretchy="true">${char}</mo>`;
  assert.equal(formula("\\left( x \\right]"), `<mrow>${bracket("(")}<mi>x</mi>${bracket("]")}</mrow>`);
  assert.equal(
    formula("\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}")?.replaceAll(' class="center"', ""),
    `<mrow>${bracket("(")}<mtable columnalign="center"><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr>` +
      `<mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable>${bracket(")")}</mrow>`,
  );
  for (
    const source of [
      "f(x) = \\begin{cases} 1 & x > 0 \\\\ 0 & \\text{else} \\end{cases}",
      "\\begin{aligned} a &= b \\\\ &= c \\end{aligned}",
      "\\begin{array}{l|r} a & b \\end{array}",
      "\\nabla \\cdot \\vec{E} = \\dfrac{\\rho}{\\varepsilon_0}",
      "\\hat{\\theta} = \\operatorname*{arg\\,max}_\\theta \\prod_{i=1}^{N} p(x_i \\mid \\theta)",
      "\\overbrace{a+b}^{n} \\ge \\binom{n}{k} \\pmod{p}",
      "\\mathcal{L} = -\\mathbb{E}_{x \\sim p}\\big[\\log q(x)\\big]",
      "a \\xrightarrow{f} b \\implies \\boxed{c}",
      "\\lim_{x \\to 0} \\frac{\\sin x}{x} = 1 \\tag{1}",
      "\\left\\lfloor \\frac{n}{2} \\right\\rfloor, \\|v\\|, \\{1, \\ldots\\}",
    ]
  ) assert.ok(formula(source, true) !== undefined, source);
});

Deno.test("renderMath() shows the source of what it does not know, or what is not whole", () => {
  for (
    const source of [
      "\\unknown",
      "\\frac{a}",
      "{a",
      "a}",
      "x^",
      "x_1_2",
      "\\left( a",
      "\\begin{pmatrix} a",
      "\\begin{foo}a\\end{foo}",
      "a & ^",
      "\\href{javascript:x}{y}",
    ]
  ) {
    assert.deepEqual(renderMath(source, { display: false }), {
      tag: "code",
      attributes: { class: "tex" },
      children: [source],
    });
  }
});

Deno.test("renderMath() never throws, gives MathML only, and keeps the source", () => {
  const sources = fc.array(
    fc.oneof(
      fc.constantFrom(
        "\\frac",
        "{",
        "}",
        "^",
        "_",
        "\\left(",
        "\\right)",
        "\\begin{cases}",
        "\\end{cases}",
        "&",
        "\\\\",
        "\\text{",
        "\\sqrt[",
        "]",
        "\\not",
        "'",
        "x",
        "12.5",
        "\\alpha",
        "\\sum",
        "\\mathbb{",
        "\\unknown",
        "\\",
        " ",
        "%",
        "\\,",
        "\\begin{array}{",
        "\\displaystyle",
        "\\limits",
        "<b>",
        "\\constructor",
        "\\hat",
        "\\big",
      ),
      fc.string({ unit: "binary", maxLength: 6 }),
    ),
    { maxLength: 40 },
  ).map((parts) => parts.join(""));
  fc.assert(
    fc.property(sources, fc.boolean(), (source, display) => {
      const node = renderMath(source, { display });
      assert.ok(xml(node).includes(source));
      const check = (n: Node): void => {
        if (typeof n === "string") return;
        assert.ok(MATH_TAGS.includes(n.tag as never) || (n === node && n.tag === "code"), n.tag);
        n.children.forEach(check);
      };
      check(node);
    }),
    { numRuns: 3000 },
  );
  renderMath("{".repeat(15_000), { display: true });
  renderMath("x^".repeat(7_000), { display: true });
});
