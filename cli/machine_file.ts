/**
 * Machines as files: the one that was measured here, and those that flags name.
 * @module
 */
import type { ExpertRank } from "../core/engine/residency.ts";
import { UsageError } from "../core/errors.ts";
import { type Machine, parseMachine } from "../core/plan/machine.ts";
import type { Prediction } from "../core/plan/predict.ts";
import type { Flag } from "./command.ts";
import { formatAmount } from "./progress.ts";
import { readText } from "./text_file.ts";

export const MACHINE_FLAG: Flag = {
  name: "machine",
  type: "string",
  value: "FILE",
  help: "predict rates for this machine, measured with bloomery machine -o FILE; here = the one that it keeps",
};

/** Where `bloomery machine` keeps what it measured. */
export function keptMachinePath(env: (name: string) => string | undefined): string {
  const base = env("XDG_CACHE_HOME") || (env("HOME") ? `${env("HOME")}/.cache` : undefined) || env("LOCALAPPDATA");
  if (base) return `${base}/bloomery/machine.json`;
  throw new UsageError("usage.machine", "Cannot keep what is measured: neither XDG_CACHE_HOME nor HOME is set", {
    hint: "give -o FILE",
  });
}

/** The machine that was measured here; undefined where none was. @throws {FormatError} `format.machine` */
export function keptMachine(): Machine | undefined {
  try {
    const path = keptMachinePath((name) => Deno.env.get(name));
    return parseMachine(path, Deno.readTextFileSync(path));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || (error instanceof UsageError && error.code === "usage.machine")) {
      return undefined;
    }
    throw error;
  }
}

/**
 * The machine of `--machine`.
 * @throws {FormatError} `format.machine` · {@link UsageError} `usage.machine`
 */
export function machineOf(value: string): Machine {
  if (value !== "here") return parseMachine(value, readText(value, "machine"));
  const kept = keptMachine();
  if (kept !== undefined) return kept;
  throw new UsageError("usage.machine", "Cannot use --machine here: this machine was not measured", {
    hint: "run bloomery machine first",
  });
}

/** What a prediction depends on besides plan and machine. */
export interface Predicted {
  readonly depth?: number;
  readonly n_prompt?: number;
  readonly n_ubatch: number;
  readonly rank?: ExpertRank | undefined;
}

/** A prediction as lines of text. */
export function describePrediction(p: Prediction, options: Predicted): string {
  const terms = (list: Prediction["decode"]["terms"]) =>
    list.filter((t) => t.seconds > 0).map((t) =>
      `${t.what}${t.place === t.what ? "" : ` on the ${t.place}`} ${(t.seconds * 1000).toFixed(2)} ms${
        t.bytes > 0 ? ` (${formatAmount(t.bytes, "B")})` : ""
      }`
    ).join(" + ");
  const rate = (n: number) => n >= 100 ? n.toFixed(0) : n.toFixed(1);
  return [
    `decode   ${rate(p.decode.tokens_per_second)} tokens a second after ${options.depth ?? 0}: ${
      terms(p.decode.terms)
    }`,
    `prompt   ${rate(p.prompt.tokens_per_second)} tokens a second for ${options.n_prompt ?? 512}: ${
      terms(p.prompt.terms)
    }`,
    ...p.hit_rate === 1 ? [] : [`experts  ${(100 * p.hit_rate).toFixed(1)} % of those that tokens use are in slots`],
  ].join("\n");
}
