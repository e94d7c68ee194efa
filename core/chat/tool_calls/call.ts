/**
 * What the parsers of all families share: what a call is, what a family must say of itself, and loose JSON.
 * @module
 */
import type { Reading, Source } from "./stream.ts";
import type { AnswerSetup, Sink } from "../reasoning.ts";
import type { CallForm } from "./form.ts";
import type { CallWriter } from "./writer.ts";

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

/** Where and how a family writes calls. */
export interface Family {
  name: string;
  /** Tags around reasoning at the start of an answer. */
  reasoning?: { start: string; end: string };
  /** Tags around the answer proper, which are no part of it. */
  content?: { start: string; end: string };
  /** A call may end the reasoning without its closing tag. */
  callEndsReasoning?: boolean;
  /** Markers that open calls; none where a family has no calls that could be told from text. */
  starts: readonly string[];
  /** What calls surely begin with, where a start alone may be ordinary text: from there on a grammar may be in force. */
  triggers?: readonly string[];
  /**
   * Reads the calls behind a marker, all up to where content may go on.
   * @returns false where it is no call after all, or no further one: what was read from the mark on is content then.
   */
  calls?(s: Source, marker: string, tools: ToolSet, w: CallWriter): Reading<boolean>;
  /** Reads a whole answer, where it is not text with calls between markers. */
  whole?(s: Source, sink: Sink, setup: AnswerSetup): Reading<void>;
  /** Calls may stand without marker where the answer begins with one of these. */
  bareStarts?: readonly string[];
  bare?(s: Source, tools: ToolSet, w: CallWriter): Reading<boolean>;
  /** Markers that are control tokens and must reach the parser as text. */
  preserved: readonly string[];
  /** Strings that end an answer besides the end tokens. */
  stops?: readonly string[];
  /** How calls are written, where a grammar can say it; the template may decide between ways. */
  form?(template: string): CallForm;
  /** Length of made-up ids, where the template takes no other. */
  idLength?: number;
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
