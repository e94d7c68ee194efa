/**
 * The subcommands, in the order of help.
 * @module
 */
import type { Command } from "./command.ts";
import { run } from "./run.ts";

export const commands: readonly Command[] = [run];
