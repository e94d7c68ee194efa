/**
 * The parts of a model's name: organisation, base name, size, fine-tune and version, by the naming habits of the Hugging Face
 * hub; and the label of a number of parameters. The rules are those of llama.cpp's converter, because the keys they fill
 * are part of the file.
 * @module
 */

export interface NameParts {
  readonly name?: string;
  readonly organization?: string;
  readonly basename?: string;
  readonly finetune?: string;
  readonly version?: string;
  readonly size_label?: string;
}

const VERSION = /^(v|iter)?\d+([.]\d+)*$/i;
const QUANT = /^(i?q\d(_\w)*|b?fp?(16|32))$/i;
const SIZE = /^((a|\d+x)?\d+([._]\d+)?[kmbt]\d?|small|mini|medium|large|x?xl)$/i;
const FINETUNE = /^(chat|instruct|vision|lora)$/i;

const isDigit = (ch: string | undefined) => ch !== undefined && ch >= "0" && ch <= "9";

/** `bloom-7b1` means 7.1B; suffixes are upper case. */
function normalizeSize(part: string): string {
  let p = part.replaceAll("_", ".");
  if (isDigit(p.at(-1))) p = p.slice(0, -2) + "." + p.at(-1) + p.at(-2);
  if (p.length > 1 && isDigit(p.at(-2)) && "kmbt".includes(p.at(-1)!)) p = p.slice(0, -1) + p.at(-1)!.toUpperCase();
  return p;
}

/**
 * Takes a model id such as `org/Name-7B-Instruct-v0.1` apart.
 *
 * @param n_param Parameters of the model; a size far from it is taken for a context length. 0 where unknown.
 */
export function nameParts(id: string, n_param: number): NameParts {
  if (id.includes(" ")) return { name: id }; // a sentence, not an id
  const slash = id.indexOf("/");
  let organization = slash < 0 ? undefined : id.slice(0, slash);
  const name = id.slice(slash + 1);
  if (organization?.startsWith(".")) organization = undefined;

  const parts = name.split("-").filter((p) => p.length > 0);
  const kinds = parts.map((part, i) => {
    const kind = new Set<string>();
    if (VERSION.test(part)) kind.add("version");
    else if (QUANT.test(part)) {
      kind.add("type");
      parts[i] = part.toUpperCase();
    } else if (i > 0 && SIZE.test(part)) {
      let p = normalizeSize(part);
      const label = Number(p.slice(0, -1)) * 1000 ** " KMBT".indexOf(p.at(-1)!);
      if (n_param > 0 && Math.abs(label - n_param) > Math.floor((7 * n_param) / 8)) {
        kind.add("finetune");
        p = p.slice(0, -1) + p.at(-1)!.toLowerCase();
      }
      if (kind.size === 0) kind.add("size_label");
      parts[i] = p;
    } else if (i > 0 && FINETUNE.test(part)) kind.add("finetune");
    return kind;
  });

  // A size in words counts only where none in digits does.
  if (parts.some((p, i) => kinds[i].has("size_label") && /\d/.test(p))) {
    parts.forEach((p, i) => {
      if (kinds[i].has("size_label") && /^\p{L}+$/u.test(p)) kinds[i].delete("size_label");
    });
  }
  let atStart = true;
  parts.forEach((part, i) => {
    const kind = kinds[i];
    if (atStart && ((kind.size === 0 && /^\p{L}/u.test(part)) || kind.has("version"))) kind.add("basename");
    else {
      atStart = false;
      if (kind.size === 0) kind.add("finetune");
    }
  });
  for (const kind of kinds.toReversed()) {
    if (!kind.has("basename") || kind.size === 1) break;
    kind.delete("basename");
  }

  const join = (want: (kind: Set<string>) => boolean) => parts.filter((_, i) => want(kinds[i])).join("-");
  const size_label = [...new Set(parts.filter((_, i) => kinds[i].has("size_label")))].join("-");
  const finetune = join((k) => k.has("finetune"));
  const version = join((k) => k.has("version") && !k.has("basename"));
  const known = size_label !== "" || finetune !== "" || version !== "";
  const basename = known ? join((k) => k.has("basename")) : "";
  return {
    name,
    ...(organization ? { organization } : {}),
    ...(basename ? { basename } : {}),
    ...(finetune ? { finetune } : {}),
    ...(version ? { version } : {}),
    ...(size_label ? { size_label } : {}),
  };
}

/** `bloom-nano` as a title: words with capitals, but versions and words that have capitals as they are. */
export function titleOf(name: string): string {
  return name.replaceAll("-", " ").trim().split(/\s+/).map((w) => {
    const lower = w !== w.toUpperCase() && w === w.toLowerCase();
    if (!lower || /^(v\d+(\.\d+)*|\d.*)$/.test(w)) return w;
    return w.replaceAll(/\p{L}+/gu, (letters) => letters[0].toUpperCase() + letters.slice(1));
  }).join(" ");
}

/** A number with `digits` decimals, halves to even. */
function fixed(x: number, digits: number): string {
  const scaled = x * 10 ** digits;
  const floor = Math.floor(scaled);
  if (scaled - floor === 0.5 && floor % 2 === 0) return (floor / 10 ** digits).toFixed(digits);
  return x.toFixed(digits);
}

/** Parameters in short, at least two digits: `6.8M`. */
export function countLabel(n: number): string {
  const [unit, suffix] = n > 1e12 ? [1e-12, "T"] : n > 1e9 ? [1e-9, "B"] : n > 1e6 ? [1e-6, "M"] : [1e-3, "K"];
  const scaled = n * unit;
  const digits = Math.max(2 - fixed(scaled, 0).replace(/^0+/, "").length, 0);
  return fixed(scaled, digits) + suffix;
}

/**
 * The size of a model from its tensors: all parameters, or `16x4.5M` with experts, where one expert and all that is shared
 * are counted.
 */
export function sizeLabel(
  tensors: Iterable<{ name: string; ne: readonly number[] }>,
): { label: string; total: number } {
  let total = 0;
  let perExpert = 0;
  let experts = 0;
  let n_stack = 0;
  for (const { name, ne } of tensors) {
    const size = ne.reduce((a, b) => a * b, 1);
    total += size;
    if (name.includes("_exps.") && ne.length >= 3) {
      const n_expert = ne[name.includes(".bias") ? 1 : 2];
      perExpert += Math.floor(size / n_expert);
      experts += n_expert;
      n_stack++;
    } else perExpert += size;
  }
  const n_expert = n_stack > 0 ? Math.floor(experts / n_stack) : 0;
  return { label: n_expert > 0 ? `${n_expert}x${countLabel(perExpert)}` : countLabel(total), total };
}
