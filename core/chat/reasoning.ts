/**
 * Model text to content, reasoning and tool calls, as it streams.
 *
 * The output depends on the text alone: any split into chunks gives the same deltas once they are concatenated. Text that
 * may become markup is held back. Text that only began like a call becomes content with `malformed` set, or stays
 * reasoning within reasoning; `tool_calls/writer.ts` says when a call is certain.
 * @module
 */
import { ArgumentType } from "./tool_calls/argument_type.ts";
import type { ToolSet } from "./tool_calls/call.ts";
import { familyOf } from "./tool_calls/families.ts";
import type { AnswerSetup, Family, Sink } from "./tool_calls/family.ts";
import { literal, type Place, type Reading, Source, space, until } from "./tool_calls/stream.ts";
import { CallWriter } from "./tool_calls/writer.ts";

export type { Place };
/** What becomes of reasoning: left in the answer, or put apart. */
export type ReasoningFormat = "none" | "auto" | "deepseek" | "deepseek-legacy";

/** A piece of an answer. */
export interface Delta {
  /** Text of the answer. */
  content?: string;
  /** Text of the reasoning. */
  reasoning_content?: string;
  /** The first piece of a call has `id` and `name`; each piece adds text to its arguments. */
  tool_call?: { index: number; id?: string; name?: string; arguments: string };
  /** The content looks like a call that could not be read, or the call's arguments are not JSON. */
  malformed?: boolean;
}

export interface OutputParserOptions {
  /** The chat template's text, from which the family is found. */
  template: string;
  /** `none` leaves everything in content; `deepseek-legacy` does so while streaming. */
  reasoningFormat: ReasoningFormat;
  /** The request's tools, or true when only their presence is known. Without tools nothing is read as a call. */
  tools?: boolean | readonly unknown[];
  /** False reads one call and treats further ones as content. */
  parallelToolCalls?: boolean;
  /** The prompt's end opened a reasoning block. */
  startsInReasoning: boolean;
  /** Whether deltas are sent at once; otherwise a call is held until it is complete. `deepseek-legacy` depends on it too. */
  streaming?: boolean;
  /** Makes ids for calls whose format has none. Default: random letters and digits, 32 or as many as the family takes. */
  newId?: () => string;
}

/** Takes an answer apart while it streams. */
export interface OutputParser {
  /** Adds text and returns what became certain. */
  push(text: string): Delta[];
  /** Returns what was held back. Call it once, at the end. */
  finish(): Delta[];
  /** The place that the text has reached. */
  readonly where: Where;
}

/** The place that an answer's text has reached. Positions count UTF-16 units from the answer's beginning. */
export interface Where {
  /** Inside what. */
  readonly place: Place;
  /** The position behind the reasoning; undefined until it is certain. */
  readonly answerFrom: number | undefined;
  /** The position behind reasoning, tags and white space, where shown text may begin; undefined until it is certain. */
  readonly shownFrom: number | undefined;
  /** The marker behind which a call is being read, which may still turn out to be text. */
  readonly callFrom: number | undefined;
  /** The text before this position is read; the text behind it may begin a marker. */
  readonly readTo: number;
}

/** Whether reasoning is taken out of the content. */
export function splitsReasoning(format: ReasoningFormat, streaming: boolean): boolean {
  return format !== "none" && !(format === "deepseek-legacy" && streaming);
}

/** A parser for one answer of a model with this template. */
export function createOutputParser(options: OutputParserOptions): OutputParser {
  const family = familyOf(options.template);
  const tools = toolSet(options.tools);
  const streaming = options.streaming ?? true;
  const keep = !splitsReasoning(options.reasoningFormat, streaming);
  const out: Delta[] = [];
  const sink: Sink = {
    content(text, malformed) {
      const last = out.at(-1);
      if (last?.content !== undefined && (last.malformed ?? false) === (malformed ?? false)) last.content += text;
      else if (text !== "") out.push({ content: text, ...(malformed ? { malformed } : {}) });
    },
    reasoning(text) {
      const last = out.at(-1);
      if (last?.reasoning_content !== undefined) last.reasoning_content += text;
      else if (text !== "") out.push({ reasoning_content: text });
    },
    call(index, name, id) {
      id ??= options.newId?.() ?? randomId(family.idLength ?? 32);
      out.push({ tool_call: { index, id, name, arguments: "" } });
    },
    argumentsText(index, text, malformed) {
      const last = out.at(-1);
      if (last?.tool_call?.index === index && (!malformed || last.malformed)) last.tool_call.arguments += text;
      else out.push({ tool_call: { index, arguments: text }, ...(malformed ? { malformed } : {}) });
    },
  };
  const source = new Source();
  if (options.startsInReasoning) source.place = "reasoning";
  const setup = {
    keepReasoning: keep,
    startsInReasoning: options.startsInReasoning,
    tools,
    parallel: options.parallelToolCalls ?? true,
    writer: new CallWriter(source, sink, streaming, options.parallelToolCalls ?? true),
  };
  const reading = family.whole ? family.whole(source, sink, setup) : answer(source, sink, family, setup);
  let over = false;
  const step = () => {
    if (!over) over = reading.next().done ?? false;
    return out.splice(0);
  };
  step();
  return {
    where: source,
    push(text) {
      if (text === "") return [];
      source.text += text;
      return step();
    },
    finish() {
      source.ended = true;
      return step();
    },
  };
}

/** Reads an answer: reasoning at its start, then content and calls. */
function* answer(s: Source, sink: Sink, family: Family, setup: AnswerSetup): Reading<void> {
  const tags = family.reasoning;
  let opened = setup.startsInReasoning;
  if (tags && (!opened || !setup.keepReasoning)) {
    // Some models open the block again although the prompt did.
    yield* space(s);
    if ((yield* literal(s, [tags.start])) !== undefined) opened = true;
    else if (!opened) s.pos = 0;
    if (setup.keepReasoning || !opened) s.pos = 0;
  }
  const ended = tags && opened ? yield* reasoning(s, sink, family, setup, tags.end) : "closed";
  if (ended === undefined) return;
  s.beginShown();
  if (ended === "call") return yield* body(s, sink, family, setup, setup.keepReasoning ? undefined : tags!.end);
  if (family.content) {
    const from = s.pos;
    yield* space(s);
    if ((yield* literal(s, [family.content.start])) === undefined) s.pos = from;
  }
  if (setup.tools && family.bare && family.bareStarts) {
    const from = s.pos;
    yield* space(s);
    s.callFrom = s.offset(s.pos);
    const opener = yield* literal(s, family.bareStarts);
    s.pos -= opener?.length ?? 0;
    if (opener !== undefined) {
      s.mark = from;
      if (yield* family.bare(s, setup.tools, setup.writer)) yield* space(s);
      // An object that is no call is an ordinary answer, not a failed call.
      else sink.content(s.since(s.mark));
    } else s.pos = from;
  }
  yield* body(s, sink, family, setup);
}

/**
 * Reads reasoning up to its closing tag. In families whose calls may end it, a whole call ends it, and text that only
 * looks like a call is reasoning.
 * @returns What ended it; undefined when the text ended first.
 */
function* reasoning(
  s: Source,
  sink: Sink,
  family: Family,
  setup: AnswerSetup,
  end: string,
): Reading<"closed" | "call" | undefined> {
  const { keepReasoning: keep, tools, writer } = setup;
  const show = (text: string) => keep ? sink.content(text) : sink.reasoning(text);
  const starts = tools && family.callEndsReasoning ? family.starts : [];
  s.place = "reasoning";
  if (!keep) yield* space(s);
  while (true) {
    const marker = yield* until(s, [end, ...starts], show, !keep, keep ? [] : [end]);
    if (marker === undefined) return undefined;
    if (marker === end) {
      s.beginAnswer();
      if (keep) sink.content(end);
      else yield* space(s);
      return "closed";
    }
    const from = s.mark, behind = s.pos, n_calls = writer.count;
    const called = yield* writer.cautiously(family.calls!(s, marker, tools!, writer));
    if (called || writer.count > n_calls) {
      if (called) yield* space(s);
      else sink.content(s.since(s.mark), true);
      return "call";
    }
    s.place = "reasoning";
    s.callFrom = undefined;
    s.pos = s.mark = behind;
    show(s.text.slice(from, behind));
  }
}

/**
 * Reads content and calls.
 * @param unclosed The closing tag of reasoning that a call ended. It may still come, and is not shown then.
 */
function* body(s: Source, sink: Sink, family: Family, setup: AnswerSetup, unclosed?: string): Reading<void> {
  const starts = setup.tools ? family.starts : [];
  const ends = family.content ? [family.content.end] : [];
  if (unclosed !== undefined) ends.push(unclosed);
  let open = setup.parallel || setup.writer.count === 0; // further calls are read
  while (true) {
    s.beginAnswer();
    s.forget();
    const marker = yield* until(
      s,
      [...(open ? starts : []), ...ends],
      (text) => sink.content(text),
      starts.length > 0 || ends.length > 0,
      ends,
    );
    if (marker === undefined) return;
    if (ends.includes(marker)) {
      if (marker === unclosed) ends.pop();
      yield* space(s);
      continue;
    }
    s.place = "head";
    if (yield* family.calls!(s, marker, setup.tools!, setup.writer)) {
      open = setup.parallel;
      yield* space(s);
    } else sink.content(s.since(s.mark), true);
  }
}

/** Looks tools up by name; `true` accepts every name. */
function toolSet(tools: boolean | readonly unknown[] | undefined): ToolSet | undefined {
  if (tools === true) {
    const any = new ArgumentType(true);
    return { has: (name) => name !== "", begins: (text) => text.length <= MAX_NAME, type: () => any };
  }
  if (tools === undefined || tools === false || tools.length === 0) return undefined;
  const schemas = new Map<string, ArgumentType>();
  for (const tool of tools as any[]) {
    const f = tool?.function ?? tool;
    if (typeof f?.name === "string") schemas.set(f.name, new ArgumentType(f.parameters ?? {}));
  }
  return {
    has: (name) => schemas.has(name),
    begins: (text) => schemas.keys().some((name) => name.startsWith(text)),
    type: (name, argument) => schemas.get(name)!.property(argument),
  };
}

/** Longest tool name when the request's tools are not known. */
const MAX_NAME = 256;

function randomId(length: number): string {
  const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return Array.from(crypto.getRandomValues(new Uint8Array(length)), (b) => letters[b % letters.length]).join("");
}
