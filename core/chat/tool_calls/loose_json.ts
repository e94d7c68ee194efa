/**
 * Values as models write them: JSON, Python's literals, or plain text.
 * @module
 */

/** Parses JSON; undefined when the text is not JSON. */
export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** JSON text of a value written as JSON, with Python's literals, or as plain text. */
export function looseJson(value: string): string {
  const text = value.trim();
  if (tryJson(text) !== undefined) return text;
  if (/^[[{'TFN]/.test(text)) {
    const json = fromPython(text);
    if (tryJson(json) !== undefined) return json;
  }
  return JSON.stringify(value);
}

/** Python's literals rewritten to JSON's; strings keep their contents. */
export function fromPython(text: string): string {
  return text.replace(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:True|False|None)\b/gs, (token) => {
    if (token[0] === "'") {
      const body = token.slice(1, -1).replace(/\\'/g, "'").replace(/(?<!\\)"/g, '\\"');
      return `"${body.replace(/\n/g, "\\n")}"`;
    }
    return { True: "true", False: "false", None: "null" }[token] ?? token;
  });
}
