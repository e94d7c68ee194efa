/**
 * The subcommands, in the order of help.
 * @module
 */
import type { Command } from "./command.ts";
import { bench } from "./bench.ts";
import { completions } from "./completions.ts";
import { embed } from "./embed.ts";
import { evaluate } from "./eval.ts";
import { compareEvals } from "./eval_compare.ts";
import { teach } from "./eval_teach.ts";
import { imatrix, mergeMatrices } from "./imatrix.ts";
import { collectMatrix } from "./imatrix_collect.ts";
import { inspect } from "./inspect.ts";
import { machine } from "./machine.ts";
import { man } from "./man.ts";
import { measureLosses } from "./measure.ts";
import { merge } from "./merge.ts";
import { pack } from "./pack.ts";
import { pipeline } from "./pipeline.ts";
import { plan } from "./plan.ts";
import { prepare } from "./prepare.ts";
import { quantize } from "./quantize.ts";
import { run } from "./run.ts";
import { pull } from "./pull.ts";
import { rank } from "./rank.ts";
import { score } from "./score.ts";
import { serve } from "./serve.ts";
import { splice } from "./splice.ts";
import { split } from "./split.ts";
import { template } from "./template.ts";
import { tokenize } from "./tokenize.ts";

/** The shell's completions and the manual page describe all commands, themselves among them. */
export const commands: readonly Command[] = [
  prepare,
  quantize,
  imatrix,
  collectMatrix,
  mergeMatrices,
  measureLosses,
  pull,
  run,
  serve,
  embed,
  score,
  evaluate,
  teach,
  compareEvals,
  plan,
  rank,
  pack,
  machine,
  bench,
  inspect,
  split,
  merge,
  splice,
  pipeline(() => commands),
  tokenize,
  template,
  completions(() => commands),
  man(() => commands),
];
