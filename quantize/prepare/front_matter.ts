/**
 * The front matter of a model card: the part of YAML that cards use. Mappings, lists (block and flow), plain, quoted and
 * folded scalars. All scalars stay texts, so that `no`, `1.0` and dates mean what they say.
 * @module
 */

export type Yaml = string | null | Yaml[] | { [key: string]: Yaml };

interface Line {
  readonly indent: number;
  readonly text: string;
}

/** The mapping between the first two `---` lines of a card, or an empty one. */
export function frontMatter(card: string): { [key: string]: Yaml } {
  const lines = card.split(/\r\n|[\n\r]/);
  if (lines[0] !== "---") return {};
  const end = lines.indexOf("---", 1);
  const body = lines.slice(1, end < 0 ? undefined : end);
  const value = parseYaml(body.join("\n"));
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

/** Parses the YAML subset; what it does not understand it skips. */
export function parseYaml(text: string): Yaml {
  const lines: Line[] = [];
  for (const raw of text.replaceAll("\t", "  ").split("\n")) {
    const trimmed = raw.trimEnd();
    lines.push({ indent: trimmed.length - trimmed.trimStart().length, text: trimmed.trimStart() });
  }
  return new Parser(lines).block(0);
}

const KEY = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#"'\[\]{},&*!|>%@`-][^#]*?|-[^\s#][^#]*?)\s*:(?:\s+(.*))?$/;

class Parser {
  #at = 0;
  constructor(readonly lines: readonly Line[]) {}

  #skip(): Line | undefined {
    while (this.#at < this.lines.length) {
      const l = this.lines[this.#at];
      if (l.text !== "" && !l.text.startsWith("#")) return l;
      this.#at++;
    }
    return undefined;
  }

  /** A list, mapping or scalar whose lines are indented by `indent` or more. */
  block(indent: number): Yaml {
    const first = this.#skip();
    if (!first || first.indent < indent) return null;
    if (first.text === "-" || first.text.startsWith("- ")) return this.#list(first.indent);
    if (KEY.test(first.text)) return this.#mapping(first.indent);
    return this.#plain(indent);
  }

  #list(indent: number): Yaml[] {
    const items: Yaml[] = [];
    for (let l = this.#skip(); l && l.indent === indent && /^-( |$)/.test(l.text); l = this.#skip()) {
      const rest = l.text.slice(1).trimStart();
      if (rest === "" || rest.startsWith("#")) {
        this.#at++;
        items.push(this.block(indent + 1));
      } else if (KEY.test(rest) || rest.startsWith("- ")) {
        // The item is a mapping or list that begins on this line.
        const inner = indent + (l.text.length - rest.length);
        (this.lines as Line[])[this.#at] = { indent: inner, text: rest };
        items.push(this.block(inner));
      } else {
        this.#at++;
        items.push(this.#scalar(rest, indent + 1));
      }
    }
    return items;
  }

  #mapping(indent: number): { [key: string]: Yaml } {
    const map: { [key: string]: Yaml } = {};
    for (let l = this.#skip(); l && l.indent >= indent; l = this.#skip()) {
      const m = l.indent === indent ? KEY.exec(l.text) : null;
      this.#at++;
      if (!m) continue;
      const key = String(unquote(m[1]));
      const value = (m[2] ?? "").trim();
      if (value === "" || value.startsWith("#")) {
        const next = this.#skip();
        // A list may stand at the indentation of its key.
        const nested = next && (next.indent > indent || (next.indent === indent && /^-( |$)/.test(next.text)));
        map[key] = nested ? this.block(next.indent) : null;
      } else map[key] = this.#scalar(value, indent + 1);
    }
    return map;
  }

  /** A scalar that begins with `text`; deeper lines continue it. */
  #scalar(text: string, indent: number): Yaml {
    const style = /^([|>])[+-]?\d*\s*(#.*)?$/.exec(text);
    if (style) {
      const parts: string[] = [];
      let base = -1;
      while (this.#at < this.lines.length) {
        const l = this.lines[this.#at];
        if (l.text !== "" && l.indent < indent) break;
        if (base < 0 && l.text !== "") base = l.indent;
        parts.push(" ".repeat(Math.max(0, l.indent - Math.max(base, 0))) + l.text);
        this.#at++;
      }
      while (parts.at(-1) === "") parts.pop();
      const keep = text.includes("-") ? "" : "\n";
      return style[1] === "|" ? parts.join("\n") + keep : fold(parts) + keep;
    }
    const open = (t: string) => {
      if (t.startsWith("[")) return !balanced(t, "[", "]");
      if (t.startsWith("{")) return !balanced(t, "{", "}");
      if (t.startsWith('"')) return !/^"(?:[^"\\]|\\.)*"/.test(t);
      if (t.startsWith("'")) return !/^'(?:[^']|'')*'/.test(t);
      return false;
    };
    const quoted = /^[\["'{]/.test(text);
    for (let l = this.lines[this.#at]; l; l = this.lines[this.#at]) {
      if (quoted ? !open(text) : l.text === "" || l.indent < indent || l.text.startsWith("#")) break;
      text += " " + l.text;
      this.#at++;
    }
    return flow(text);
  }

  #plain(indent: number): Yaml {
    const first = this.lines[this.#at++].text;
    return this.#scalar(first, indent);
  }
}

function fold(parts: readonly string[]): string {
  return parts.join("\n").replaceAll(/([^\n])\n(?=[^\n ])/g, "$1 ");
}

function balanced(t: string, open: string, close: string): boolean {
  let depth = 0;
  for (const ch of t) depth += ch === open ? 1 : ch === close ? -1 : 0;
  return depth <= 0;
}

function unquote(t: string): Yaml {
  const s = t.trim();
  if (s.length >= 2 && s.startsWith('"') && s.endsWith('"')) {
    try {
      return JSON.parse(s);
    } catch {
      return s.slice(1, -1);
    }
  }
  if (s.length >= 2 && s.startsWith("'") && s.endsWith("'")) return s.slice(1, -1).replaceAll("''", "'");
  return s === "~" || s === "null" || s === "" ? null : s;
}

/** A scalar or a flow list or mapping on one line. */
function flow(text: string): Yaml {
  const t = text.trim();
  if (t.startsWith("[") && t.includes("]")) return items(t.slice(1, t.lastIndexOf("]"))).map(flow);
  if (t.startsWith("{") && t.includes("}")) {
    const map: { [key: string]: Yaml } = {};
    for (const item of items(t.slice(1, t.lastIndexOf("}")))) {
      const colon = item.indexOf(":");
      if (colon > 0) map[String(unquote(item.slice(0, colon)))] = flow(item.slice(colon + 1));
    }
    return map;
  }
  if (/^["']/.test(t)) {
    const m = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')/.exec(t);
    return unquote(m ? m[1] : t);
  }
  return unquote(t.replace(/\s+#.*$/, ""));
}

/** Splits at commas outside quotes and brackets. */
function items(t: string): string[] {
  const out: string[] = [];
  let depth = 0;
  let quote = "";
  let from = 0;
  for (let i = 0; i < t.length; i++) {
    const ch = t[i];
    if (quote) quote = ch === quote ? "" : quote;
    else if (ch === '"' || ch === "'") quote = ch;
    else if ("[{".includes(ch)) depth++;
    else if ("]}".includes(ch)) depth--;
    else if (ch === "," && depth === 0) {
      out.push(t.slice(from, i));
      from = i + 1;
    }
  }
  out.push(t.slice(from));
  return out.map((s) => s.trim()).filter((s) => s !== "");
}
