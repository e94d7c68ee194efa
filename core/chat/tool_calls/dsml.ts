/**
 * DeepSeek V3.2 (`function_calls`) and V4 (`tool_calls`): tags written `<｜DSML｜invoke name="…">`, parameters with
 * `string="true"` (literal) or `"false"` (JSON).
 * @module
 */
import { text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { taggedCalls, taggedForm } from "./tagged.ts";

export function dsml(block: "function_calls" | "tool_calls"): Family {
  const mark = "｜DSML｜";
  const format = {
    sectionEnd: `</${mark}${block}>`,
    call: [`<${mark}invoke name="`, '">', `</${mark}invoke>`] as [string, string, string],
    argument: [`<${mark}parameter name="`, ">", `</${mark}parameter>`] as [string, string, string],
    literal: (attributes: string) => {
      const said = /string="(true|false)"/.exec(attributes);
      return said ? said[1] === "true" : undefined;
    },
  };
  return {
    name: `dsml-${block}`,
    reasoning: { start: "<think>", end: "</think>" },
    callEndsReasoning: true,
    starts: [`<${mark}${block}>`],
    calls: (s, _marker, tools, w) => taggedCalls(s, format, tools, w),
    form: () => ({
      begin: text(`<${mark}${block}>\n`),
      end: text(`\n</${mark}${block}>`),
      between: text("\n"),
      call: (tool) => taggedForm(tool, format, (m) => `" string="${m.isString}"`),
    }),
    preserved: [mark, "<think>", "</think>"],
  };
}
