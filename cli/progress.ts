/**
 * Progress bars; the only module that knows `cli-progress`. On a terminal a bar with rate and ETA appears once the work has
 * taken a while; elsewhere one plain line says that a stage was done.
 * @module
 */
import cliProgress from "cli-progress";
import process from "node:process";

export interface Bar {
  /** @param from What an earlier run had done: it counts for the bar, and not for the rate. */
  update(done: number, from?: number): void;
  /** Ends the bar, and says how it went. */
  stop(): void;
  /** Takes the bar away without a word. */
  cancel(): void;
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

/** A duration as an ETA shows it: `4s`, `3m05s`, `2h10m`; `-` where it is not known. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "-";
  const s = Math.round(seconds);
  const two = (n: number) => String(n).padStart(2, "0");
  if (s < 60) return `${s}s`;
  return s < 3600
    ? `${Math.floor(s / 60)}m${two(s % 60)}s`
    : `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
}

/** Rate and remaining time of work, where some of it may have been done before it began. */
export class Progress {
  #done = 0;
  #from = 0;

  constructor(readonly total: number, readonly start: number) {}

  update(done: number, from?: number): void {
    this.#done = done;
    if (from !== undefined) this.#from = from;
  }

  get done(): number {
    return this.#done;
  }

  /** Done in this run. */
  get ownWork(): number {
    return Math.max(0, this.#done - this.#from);
  }

  rate(now: number): number {
    return this.ownWork / Math.max(now - this.start, 1) * 1000;
  }

  /** Seconds until the end at this rate. */
  remaining(now: number): number {
    return (this.total - this.#done) / this.rate(now);
  }
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
  const progress = new Progress(total, performance.now());
  if (options.quiet) return { update() {}, stop() {}, cancel() {} };
  if (!options.terminal) {
    return {
      update: (n, from) => progress.update(n, from),
      stop: () => {
        const now = performance.now();
        if (now - progress.start < LOG_MS) return;
        const seconds = ((now - progress.start) / 1000).toFixed(1);
        options.write(
          `${label}: ${formatAmount(progress.ownWork, unit)} in ${seconds} s, ${
            formatAmount(progress.rate(now), unit)
          }/s\n`,
        );
      },
      cancel() {},
    };
  }
  let bar: cliProgress.SingleBar | undefined;
  let over = false;
  const stop = () => {
    over = true;
    bar?.stop();
    bar = undefined;
  };
  return {
    update: (n, from) => {
      progress.update(n, from);
      const now = performance.now();
      if (over) return;
      if (!bar && now - progress.start > DELAY_MS) {
        bar = new cliProgress.SingleBar({
          format: `${label} {bar} {percentage}% | {amount} of {all} | {rate}/s | ETA {left}`,
          stream: process.stderr,
          clearOnComplete: true,
          hideCursor: true,
          noTTYOutput: false,
        }, Deno.noColor ? cliProgress.Presets.legacy : cliProgress.Presets.shades_classic);
        bar.start(total, n, { amount: "", all: formatAmount(total, unit), rate: "", left: "" });
      }
      bar?.update(n, {
        amount: formatAmount(n, unit),
        rate: formatAmount(progress.rate(now), unit),
        left: formatDuration(progress.remaining(now)),
      });
    },
    stop,
    cancel: stop,
  };
}
