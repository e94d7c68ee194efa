/**
 * Model text to content, reasoning and tool calls, as it streams.
 *
 * What is shown depends on the text alone: any split into chunks gives the same deltas once concatenated. Markup is
 * held back until it is sure to be none. What only began like a call becomes content, with `malformed` set on it; see
 * `tool_calls/writer.ts` for when a call is sure to be one.
 * @module
 */
import type { Family, ToolSet } from "./tool_calls/call.ts";
import { detectFamily } from "./tool_calls/detect.ts";
import { harmony } from "./tool_calls/harmony.ts";
import { kimiK3 } from "./tool_calls/kimi_k3.ts";
import { literal, type Reading, Source, space, until } from "./tool_calls/stream.ts";
import { type CallSink, CallWriter } from "./tool_calls/writer.ts";

/** What becomes of reasoning: left in the answer, or put apart. */
export type ReasoningFormat = "none" | "auto" | "deepseek" | "deepseek-legacy";

/** A piece of an answer. */
export interface Delta {
  /** Text of the answer. */
  content?: string;
  /** Text of the reasoning. */
  reasoning_content?: string;
  /** A call's beginning, with `id` and `name`, and in it and further pieces more of the text of its arguments. */
  tool_call?: { index: number; id?: string; name?: string; arguments: string };
  /** The content looks like a tool call that could not be read, or the call's arguments are no JSON. */
  malformed?: boolean;
}

export interface OutputParserOptions {
  /** The chat template's text, from which the family is found. */
  template: string;
  /** `none` leaves everything in content; `deepseek-legacy` does so while streaming. */
  reasoningFormat: ReasoningFormat;
  /** The request's tools; true where only their presence is known. Without, nothing is read as a call. */
  tools?: boolean | readonly unknown[];
  /** Reads one call and takes further ones for content. */
  parallelToolCalls?: boolean;
  /** The prompt's end opened a reasoning block. */
  startsInReasoning: boolean;
  /** Whether deltas are sent as they come: `deepseek-legacy` asks, and calls are held until complete otherwise. */
  streaming?: boolean;
  /** Ids for calls whose format has none; random letters and digits otherwise, 32 or what the family takes. */
  newId?: () => string;
}

/** Takes an answer apart while it streams. */
export interface OutputParser {
  /** Takes text and gives what became certain. */
  push(text: string): Delta[];
  /** Gives what was held back. To be called once, at the end. */
  finish(): Delta[];
}

/** Where the readers put what they found. */
export interface Sink extends CallSink {
  content(text: string, malformed?: boolean): void;
  reasoning(text: string): void;
}

/** A parser for one answer of a model with this template. */
export function createOutputParser(options: OutputParserOptions): OutputParser {
  const family = detectFamily(options.template);
  const tools = toolSet(options.tools);
  const streaming = options.streaming ?? true;
  const keep = options.reasoningFormat === "none" || (options.reasoningFormat === "deepseek-legacy" && streaming);
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
      const idLength = typeof family === "string" ? undefined : family.idLength;
      id ??= options.newId?.() ?? randomId(idLength ?? 32);
      out.push({ tool_call: { index, id, name, arguments: "" } });
    },
    argumentsText(index, text, malformed) {
      const last = out.at(-1);
      if (last?.tool_call?.index === index && (!malformed || last.malformed)) last.tool_call.arguments += text;
      else out.push({ tool_call: { index, arguments: text }, ...(malformed ? { malformed } : {}) });
    },
  };
  const source = new Source();
  const setup = {
    keepReasoning: keep,
    startsInReasoning: options.startsInReasoning,
    tools,
    parallel: options.parallelToolCalls ?? true,
    writer: new CallWriter(source, sink, streaming, options.parallelToolCalls ?? true),
  };
  const reading = family === "harmony"
    ? harmony(source, sink, setup)
    : family === "kimi-k3"
    ? kimiK3(source, sink, setup)
    : family.whole
    ? family.whole(source, sink, setup)
    : answer(source, sink, family, setup);
  let over = false;
  const step = () => {
    if (!over) over = reading.next().done ?? false;
    return out.splice(0);
  };
  return {
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

/** Reads an answer: reasoning at its start, then content and calls. */
function* answer(s: Source, sink: Sink, family: Family, setup: AnswerSetup): Reading<void> {
  const tags = family.reasoning;
  let marker: string | undefined;
  const starts = setup.tools ? family.starts : [];
  if (tags) {
    let opened = setup.startsInReasoning;
    if (!opened || !setup.keepReasoning) {
      // A model may open the block once more although the prompt did.
      yield* space(s);
      if ((yield* literal(s, [tags.start])) !== undefined) opened = true;
      else if (!opened) s.pos = 0;
      if (setup.keepReasoning || !opened) s.pos = 0;
    }
    if (opened) {
      const ends = family.callEndsReasoning ? [tags.end, ...starts] : [tags.end];
      if (setup.keepReasoning) {
        marker = yield* until(s, ends, (text) => sink.content(text), false);
        if (marker === tags.end) sink.content(tags.end);
      } else {
        yield* space(s);
        marker = yield* until(s, ends, (text) => sink.reasoning(text), true);
        if (marker === tags.end) yield* space(s);
      }
      if (marker === undefined) return;
      if (marker === tags.end) marker = undefined;
    }
  }
  if (family.content && marker === undefined) {
    const from = s.pos;
    yield* space(s);
    if ((yield* literal(s, [family.content.start])) === undefined) s.pos = from;
  }
  if (setup.tools && family.bare && family.bareStarts && marker === undefined) {
    const from = s.pos;
    yield* space(s);
    const opener = yield* literal(s, family.bareStarts);
    s.pos -= opener?.length ?? 0;
    if (opener !== undefined) {
      s.mark = from;
      if (yield* family.bare(s, setup.tools, setup.writer)) yield* space(s);
      // What a bare object turns out to be instead is an ordinary answer, not a failed call.
      else sink.content(s.since(s.mark));
    } else s.pos = from;
  }
  yield* body(s, sink, family, setup, starts, marker);
}

function* body(
  s: Source,
  sink: Sink,
  family: Family,
  setup: AnswerSetup,
  starts: readonly string[],
  first: string | undefined,
): Reading<void> {
  const ends = family.content ? [family.content.end] : [];
  let marker = first;
  let open = true; // further calls are read
  while (true) {
    if (marker === undefined) {
      marker = yield* until(
        s,
        [...(open ? starts : []), ...ends],
        (text) => sink.content(text),
        starts.length > 0 || ends.length > 0,
      );
      if (marker === undefined) return;
      if (ends.includes(marker)) {
        marker = undefined;
        yield* space(s);
        continue;
      }
    }
    if (yield* family.calls!(s, marker, setup.tools!, setup.writer)) {
      open = setup.parallel;
      yield* space(s);
    } else sink.content(s.since(s.mark), true);
    s.forget();
    marker = undefined;
  }
}

/** Looks tools up by name; `true` accepts every name. */
function toolSet(tools: boolean | readonly unknown[] | undefined): ToolSet | undefined {
  if (tools === true) return { has: (name) => name !== "", begins: () => true, isString: () => undefined };
  if (tools === undefined || tools === false || tools.length === 0) return undefined;
  const schemas = new Map<string, any>();
  for (const tool of tools as any[]) {
    const f = tool?.function ?? tool;
    if (typeof f?.name === "string") schemas.set(f.name, f.parameters ?? {});
  }
  return {
    has: (name) => schemas.has(name),
    begins: (text) => schemas.keys().some((name) => name.startsWith(text)),
    isString(name, argument) {
      const type = schemas.get(name)?.properties?.[argument]?.type;
      return type === undefined ? undefined : Array.isArray(type) ? undefined : type === "string";
    },
  };
}

function randomId(length: number): string {
  const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return Array.from(crypto.getRandomValues(new Uint8Array(length)), (b) => letters[b % letters.length]).join("");
}
