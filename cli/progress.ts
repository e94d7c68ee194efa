/**
 * Progress bars; the only module that knows `cli-progress`. On a terminal a bar with rate and ETA appears once the work has
 * taken a while; elsewhere one plain line says that a stage was done.
 * @module
 */
import cliProgress from "cli-progress";
import process from "node:process";

export interface Bar {
  update(done: number): void;
  /** Ends the bar, and says how it went. */
  stop(): void;
}

/** Work shorter than this shows no bar. */
const DELAY_MS = 500;
/** Work shorter than this leaves no line in a log. */
const LOG_MS = 2000;

export function formatAmount(n: number, unit: "B" | "tok" | "it"): string {
  if (unit !== "B") return `${n >= 100 ? Math.round(n) : n.toFixed(1)} ${unit}`;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return `${n.toFixed(i === 0 ? 0 : 1)} ${units[i]}`;
}

export function createBar(options: {
  label: string;
  total: number;
  unit: "B" | "tok" | "it";
  terminal: boolean;
  quiet: boolean;
  write: (text: string) => void;
}): Bar {
  const { label, total, unit } = options;
  const start = performance.now();
  let done = 0;
  const rate = () => done / Math.max(performance.now() - start, 1) * 1000;
  if (options.quiet) return { update() {}, stop() {} };
  if (!options.terminal) {
    return {
      update: (n) => {
        done = n;
      },
      stop: () => {
        const ms = performance.now() - start;
        if (ms < LOG_MS) return;
        options.write(
          `${label}: ${formatAmount(done, unit)} in ${(ms / 1000).toFixed(1)} s, ${formatAmount(rate(), unit)}/s\n`,
        );
      },
    };
  }
  let bar: cliProgress.SingleBar | undefined;
  return {
    update: (n) => {
      done = n;
      if (!bar && performance.now() - start > DELAY_MS) {
        bar = new cliProgress.SingleBar({
          format: `${label} {bar} {percentage}% | {amount} of {all} | {rate}/s | ETA {eta_formatted}`,
          stream: process.stderr,
          clearOnComplete: true,
          hideCursor: true,
          noTTYOutput: false,
        }, Deno.noColor ? cliProgress.Presets.legacy : cliProgress.Presets.shades_classic);
        bar.start(total, n, { amount: "", all: formatAmount(total, unit), rate: "" });
      }
      bar?.update(n, { amount: formatAmount(done, unit), rate: formatAmount(rate(), unit) });
    },
    stop: () => bar?.stop(),
  };
}
