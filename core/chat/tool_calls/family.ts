/**
 * What a family of templates must say of itself, and what its readers work with.
 * @module
 */
import type { ToolSet } from "./call.ts";
import type { CallForm } from "./form.ts";
import type { Reading, Source } from "./stream.ts";
import type { CallSink, CallWriter } from "./writer.ts";

/** Where the readers put what they found. */
export interface Sink extends CallSink {
  content(text: string, malformed?: boolean): void;
  reasoning(text: string): void;
}

/** What a reader of a whole answer must know. */
export interface AnswerSetup {
  /** Reasoning stays in content, tags and all. */
  keepReasoning: boolean;
  startsInReasoning: boolean;
  /** Undefined where the request has no tools. */
  tools: ToolSet | undefined;
  parallel: boolean;
  writer: CallWriter;
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
