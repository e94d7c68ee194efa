/**
 * `tool_choice` "required" or a named function: the answer has to be a call, so its form is the call's.
 * @module
 */
import { rule, seq, text } from "../core/sampling/grammar/expr.ts";
import { parseJsonSchema } from "../core/sampling/grammar/json_schema.ts";
import { Grammar } from "../core/sampling/grammar/mod.ts";
import { badRequest, unsupported } from "./errors.ts";
import type { Conversation } from "./schemas.ts";

/** How a family writes one call as a JSON object between two texts. */
const WRITING: Record<string, { before: string; args: "arguments" | "parameters"; after: string }> = {
  hermes: { before: "<tool_call>\n", args: "arguments", after: "\n</tool_call>" },
  "llama-3": { before: "", args: "parameters", after: "" },
};

/** A form by its text, for grammars that are kept, and how to make it. */
export interface CallForm {
  param: "tool_choice";
  key: string;
  compile: () => Grammar;
}

/**
 * The form of a call that the request insists on, undefined where it leaves the choice to the model.
 * @param family Name of the template's family.
 * @throws ApiError 400 where there is no such tool, or where the family's calls cannot be forced.
 */
export function forcedCall(request: Conversation, family: string): CallForm | undefined {
  const { tool_choice: choice, tools = [] } = request;
  if (choice !== "required" && typeof choice !== "object") return undefined;
  if (tools.length === 0) throw badRequest("tool_choice: asks for a call, and the request has no tools", "tool_choice");
  const named = typeof choice === "object" ? tools.filter((t) => t.function.name === choice.function.name) : tools;
  if (typeof choice === "object" && named.length === 0) {
    const param = "tool_choice.function.name";
    throw badRequest(`${param}: expected the name of a tool of the request, found "${choice.function.name}"`, param);
  }
  const writing = WRITING[family];
  if (writing === undefined) {
    throw unsupported("tool_choice", 'this model\'s calls cannot be forced; use "auto" or "none"');
  }
  const { before, args, after } = writing;
  const schema = {
    anyOf: named.map(({ function: { name, parameters } }) => ({
      type: "object",
      properties: { name: { const: name }, [args]: parameters ?? { type: "object" } },
      required: ["name", args],
      additionalProperties: false,
    })),
    // References within a tool's parameters start at the root.
    $defs: Object.assign({}, ...named.map((t) => t.function.parameters?.$defs ?? {})),
  };
  return {
    param: "tool_choice",
    key: `\0call ${before}${JSON.stringify(schema)}`,
    compile() {
      const { root, rules } = parseJsonSchema(schema);
      return new Grammar({
        root: "call",
        rules: new Map([...rules, ["call", seq(text(before), rule(root), text(after))]]),
      });
    },
  };
}
