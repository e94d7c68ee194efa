/**
 * Qwen3-Coder, Qwen 3.5, Nemotron 3, StepFun 3.5: `<tool_call>`, `<function=NAME>`, `<parameter=KEY>` with the value
 * between newlines. Seed-OSS writes the same under tags of its own, without the newlines.
 * @module
 */
import { alt, seq, text } from "../../sampling/grammar/expr.ts";
import type { Family } from "./family.ts";
import { closing } from "./stream.ts";
import { taggedCall, taggedCalls, taggedForm, type TaggedFormat } from "./tagged.ts";

const qwen: TaggedFormat = {
  sectionEnd: "</tool_call>",
  call: ["<function=", ">", "</function>"],
  argument: ["<parameter=", ">", "</parameter>"],
  padded: true,
};

export const qwenXml: Family = {
  name: "qwen-xml",
  reasoning: { start: "<think>", end: "</think>" },
  callEndsReasoning: true,
  // The first opening tag may be missing: models that do not think begin with the function at times.
  starts: ["<tool_call>", "<function="],
  *calls(s, marker, tools, w) {
    if (marker === "<tool_call>") return yield* taggedCalls(s, qwen, tools, w);
    if (!(yield* taggedCall(s, qwen, tools, w))) return false;
    yield* closing(s, [qwen.sectionEnd]);
    return true;
  },
  form: () => ({
    between: alt([text("\n"), text("")]),
    call: (tool) => seq(text("<tool_call>\n"), taggedForm(tool, qwen), text("\n</tool_call>")),
  }),
  preserved: ["<tool_call>", "</tool_call>", "<think>", "</think>"],
};

const seed: TaggedFormat = { ...qwen, sectionEnd: "</seed:tool_call>", padded: false };

export const seedOss: Family = {
  name: "seed-oss",
  reasoning: { start: "<seed:think>", end: "</seed:think>" },
  starts: ["<seed:tool_call>"],
  calls: (s, _marker, tools, w) => taggedCalls(s, seed, tools, w),
  form: () => ({
    between: text("\n"),
    call: (tool) => seq(text("<seed:tool_call>\n"), taggedForm(tool, seed), text("\n</seed:tool_call>")),
  }),
  preserved: ["<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"],
};
