/**
 * What the parsers of all families share: what a call is, what is known of the request's tools, and loose JSON.
 * @module
 */

/** A complete call: `arguments` is JSON text of an object. */
export interface Call {
  name: string;
  arguments: string;
  /** Where the format carries one. */
  id?: string;
}

/** What is known of the request's tools. */
export interface ToolSet {
  /** Whether a call of this name is one of the request's tools; all names where the request's are not known. */
  has(name: string): boolean;
  /** Whether a tool's name begins so. */
  begins(text: string): boolean;
  /** Whether the schema says that this argument is a string; undefined where it says nothing. */
  isString(name: string, argument: string): boolean | undefined;
}

/** Parses JSON, undefined where it is none. */
export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** JSON text of a value that is JSON, Python's `True`, `None` or single-quoted strings, or plain text. */
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
