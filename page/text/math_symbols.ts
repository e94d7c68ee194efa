/**
 * LaTeX's names of symbols, with the characters that MathML has for them.
 * @module
 */

function table(text: string): ReadonlyMap<string, string> {
  const words = text.trim().split(/\s+/);
  return new Map(words.map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
}

/** Letters and other names: `<mi>`. */
export const LETTERS = table(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν
  xi=ξ omicron=ο pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω
  Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω
  hbar=ℏ ell=ℓ Re=ℜ Im=ℑ wp=℘ aleph=ℵ beth=ℶ infty=∞ partial=∂ nabla=∇ emptyset=∅ varnothing=∅ imath=ı jmath=ȷ
  forall=∀ exists=∃ nexists=∄ top=⊤ bot=⊥ angle=∠ triangle=△ square=□ Box=□ degree=° dagger=† ddagger=‡ checkmark=✓
  ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ dotsc=… dotsb=⋯ prime=′ complement=∁ clubsuit=♣ diamondsuit=♢ heartsuit=♡ spadesuit=♠
  N=ℕ Z=ℤ Q=ℚ R=ℝ C=ℂ
`);

/** Operators and relations: `<mo>`. */
export const OPERATORS = table(`
  pm=± mp=∓ times=× div=÷ cdot=⋅ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ oslash=⊘ odot=⊙ cap=∩ cup=∪ uplus=⊎
  sqcap=⊓ sqcup=⊔ vee=∨ lor=∨ wedge=∧ land=∧ setminus=∖ wr=≀ amalg=⨿ neg=¬ lnot=¬
  le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ ll=≪ gg=≫ equiv=≡ sim=∼ simeq=≃ cong=≅ approx=≈ propto=∝ asymp=≍ doteq=≐
  prec=≺ succ=≻ preceq=⪯ succeq=⪰ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊ supsetneq=⊋ sqsubseteq=⊑ sqsupseteq=⊒
  in=∈ notin=∉ ni=∋ mid=∣ nmid=∤ parallel=∥ nparallel=∦ perp=⟂ models=⊨ vdash=⊢ dashv=⊣ vDash=⊨ bowtie=⋈ coloneqq=≔ triangleq=≜
  to=→ rightarrow=→ leftarrow=← gets=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐ Leftrightarrow=⇔ implies=⟹ impliedby=⟸ iff=⟺
  longrightarrow=⟶ longleftarrow=⟵ Longrightarrow=⟹ Longleftarrow=⟸ Longleftrightarrow=⟺ longleftrightarrow=⟷ mapsto=↦ longmapsto=⟼
  uparrow=↑ downarrow=↓ updownarrow=↕ Uparrow=⇑ Downarrow=⇓ nearrow=↗ searrow=↘ swarrow=↙ nwarrow=↖ hookrightarrow=↪ hookleftarrow=↩
  rightharpoonup=⇀ rightleftharpoons=⇌ leadsto=⇝ rightsquigarrow=⇝ therefore=∴ because=∵ colon=: lt=< gt=> And=& surd=√ backslash=∖
`);

/** Operators whose limits stand above and below where there is room. */
export const LARGE = table(`
  sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigvee=⋁ bigwedge=⋀ bigoplus=⨁ bigotimes=⨂ bigodot=⨀ biguplus=⨄ bigsqcup=⨆
`);

/** Integrals: their limits stand beside them. */
export const INTEGRALS = table("int=∫ iint=∬ iiint=∭ oint=∮");

/** Names that are set upright. */
export const FUNCTIONS: ReadonlySet<string> = new Set(
  ("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth exp log ln lg det dim ker deg arg hom gcd lcm Pr " +
    "lim liminf limsup max min sup inf argmax argmin softmax").split(" "),
);

/** Of these, what stands below them and not beside them. */
export const LIMITS: ReadonlySet<string> = new Set(
  "lim liminf limsup max min sup inf argmax argmin det gcd Pr".split(" "),
);

/** What may be stretched around a formula. */
export const FENCES = table(`
  langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lbrace={ rbrace=} lbrack=[ rbrack=] lvert=| rvert=| lVert=‖ rVert=‖ vert=| Vert=‖
  lgroup=⟮ rgroup=⟯
`);

export const ACCENTS = table(`
  hat=^ widehat=^ bar=¯ overline=¯ vec=→ overrightarrow=→ overleftarrow=← tilde=~ widetilde=~ dot=˙ ddot=¨ dddot=⃛ acute=´ grave=\`
  check=ˇ breve=˘ mathring=˚ overbrace=⏞ underbrace=⏟ underline=_
`);

/** Widths of spaces, in em. */
export const SPACES: ReadonlyMap<string, string> = new Map([
  [",", "0.167em"],
  ["thinspace", "0.167em"],
  [":", "0.222em"],
  [">", "0.222em"],
  [";", "0.278em"],
  ["thickspace", "0.278em"],
  ["!", "-0.167em"],
  [" ", "0.333em"],
  ["~", "0.333em"],
  ["enspace", "0.5em"],
  ["quad", "1em"],
  ["qquad", "2em"],
]);

/** First code points of an alphabet's capital letters, small letters and digits; letters that stand elsewhere. */
interface Alphabet {
  readonly upper: number;
  readonly lower?: number;
  readonly digit?: number;
  readonly elsewhere?: Readonly<Record<string, string>>;
}

const BOLD: Alphabet = { upper: 0x1d400, lower: 0x1d41a, digit: 0x1d7ce };
const SCRIPT: Alphabet = {
  upper: 0x1d49c,
  elsewhere: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ" },
};

/** What a letter is replaced by under the commands that choose an alphabet. */
export const ALPHABETS: ReadonlyMap<string, Alphabet> = new Map([
  ["mathbf", BOLD],
  ["bm", { upper: 0x1d468, lower: 0x1d482, digit: 0x1d7ce }],
  ["boldsymbol", { upper: 0x1d468, lower: 0x1d482, digit: 0x1d7ce }],
  ["mathbb", {
    upper: 0x1d538,
    lower: 0x1d552,
    digit: 0x1d7d8,
    elsewhere: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  }],
  ["mathcal", SCRIPT],
  ["mathscr", SCRIPT],
  ["mathfrak", {
    upper: 0x1d504,
    lower: 0x1d51e,
    elsewhere: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
  }],
  ["mathsf", { upper: 0x1d5a0, lower: 0x1d5ba, digit: 0x1d7e2 }],
  ["mathtt", { upper: 0x1d670, lower: 0x1d68a, digit: 0x1d7f6 }],
]);

/** A text in an alphabet; letters that it does not have stay. */
export function inAlphabet(text: string, { upper, lower, digit, elsewhere }: Alphabet): string {
  return Array.from(text, (char) => {
    if (elsewhere !== undefined && Object.hasOwn(elsewhere, char)) return elsewhere[char];
    const code = char.charCodeAt(0);
    if (/^[A-Z]$/.test(char)) return String.fromCodePoint(upper + code - 65);
    if (/^[a-z]$/.test(char) && lower !== undefined) return String.fromCodePoint(lower + code - 97);
    if (/^[0-9]$/.test(char) && digit !== undefined) return String.fromCodePoint(digit + code - 48);
    return char;
  }).join("");
}
