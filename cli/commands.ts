/**
 * The subcommands, in the order of help.
 * @module
 */
import type { Command } from "./command.ts";
import { bench } from "./bench.ts";
import { evaluate } from "./eval.ts";
import { run } from "./run.ts";
import { score } from "./score.ts";

export const commands: readonly Command[] = [run, score, evaluate, bench];
