/**
 * The forms of calls: of an answer that must be a call (`tool_choice` "required" or a named function), and of calls that the
 * model may make.
 * @module
 */
import { TextError } from "../core/errors.ts";
import type { Rules } from "../core/sampling/grammar/expr.ts";
import { Grammar } from "../core/sampling/grammar/mod.ts";
import { badRequest, unsupported } from "./errors.ts";
import type { ChatFormat } from "./chat_format.ts";
import type { Conversation } from "./schemas.ts";

/** A form: the key under which its grammar is cached, and how to compile it. */
export interface CallForm {
  param: "tool_choice";
  key: string;
  /** Whether a keyword of the tools' parameters must be enforced, by its place. */
  strict: (ignored: string) => boolean;
  compile: () => Grammar;
}

/**
 * The form of a call that the request insists on, undefined where it leaves the choice to the model. One call, or several
 * where the request asks for parallel calls.
 * @throws ApiError 400 where there is no such tool, or where the family's calls cannot be forced.
 */
export function forcedCall(request: Conversation, chat: ChatFormat): CallForm | undefined {
  const { tool_choice: choice, tools = [] } = request;
  if (choice === "none" || (choice ?? "auto") === "auto") return undefined;
  if (tools.length === 0) throw badRequest("tool_choice: requires a call, but the request has no tools", "tool_choice");
  const named = typeof choice === "object" ? tools.filter((t) => t.function.name === choice.function.name) : tools;
  if (typeof choice === "object" && named.length === 0) {
    const param = "tool_choice.function.name";
    throw badRequest(`${param}: expected the name of a tool of the request, found "${choice.function.name}"`, param);
  }
  return formOf(named, choice === "required" && request.parallel_tool_calls === true, chat);
}

/** The form of calls that the model may make or not; undefined without tools. */
export function possibleCall(request: Conversation, chat: ChatFormat): CallForm | undefined {
  const { tool_choice: choice, tools = [] } = request;
  if (tools.length === 0 || (choice ?? "auto") !== "auto") return undefined;
  return formOf(tools, request.parallel_tool_calls ?? true, chat, true);
}

type Tools = NonNullable<Conversation["tools"]>;

/** @param lenient A tool whose parameters cannot be compiled may get any arguments; the others are held to theirs. */
function formOf(named: Tools, many: boolean, chat: ChatFormat, lenient = false): CallForm {
  const strict = named.filter((tool) => tool.function.strict === true).map((tool) => `${tool.function.name}: `);
  return {
    param: "tool_choice",
    strict: (ignored) => strict.some((name) => ignored.startsWith(name)),
    key: `\0calls ${many} ${lenient} ${JSON.stringify(named)} ${chat.source}`,
    compile() {
      const rules = lenient ? lenientRules(named, many, chat) : chat.callRules(named, many);
      if (rules === undefined) {
        throw unsupported("tool_choice", 'this model\'s calls cannot be forced; use "auto" or "none"');
      }
      return new Grammar(rules);
    },
  };
}

function lenientRules(tools: Tools, many: boolean, chat: ChatFormat): Rules | undefined {
  try {
    return chat.callRules(tools, many);
  } catch (cause) {
    if (!(cause instanceof TextError)) throw cause;
    const free: string[] = [];
    const possible = tools.map((tool) => {
      try {
        chat.callRules([tool], many);
        return tool;
      } catch (error) {
        if (!(error instanceof TextError)) throw error;
        free.push(`${tool.function.name}: # (${error.message})`);
        return { ...tool, function: { ...tool.function, parameters: { type: "object", additionalProperties: true } } };
      }
    });
    if (free.length === 0) throw cause; // too large together
    const rules = chat.callRules(possible, many);
    return rules && { ...rules, ignored: [...free, ...rules.ignored ?? []] };
  }
}
