/**
 * How much memory a command takes at its peak.
 * @module
 */

export interface Peak {
  readonly code: number;
  /** Largest resident set, in bytes. */
  readonly bytes: number;
  readonly seconds: number;
  readonly stderr: string;
}

/** Largest resident set of a running process so far, or 0 once it is gone. */
function highWater(pid: number): number {
  try {
    return 1024 * Number(/VmHWM:\s+(\d+) kB/.exec(Deno.readTextFileSync(`/proc/${pid}/status`))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/**
 * Runs a command to its end. The kernel's own high-water mark is read every few milliseconds, so only what a process takes in
 * the last of them can be missed. Linux only.
 */
export async function measurePeak(args: readonly string[]): Promise<Peak> {
  const start = performance.now();
  const child = new Deno.Command(Deno.execPath(), { args: [...args], stdout: "null", stderr: "piped" }).spawn();
  let bytes = 0;
  const timer = setInterval(() => bytes = Math.max(bytes, highWater(child.pid)), 5);
  const { code, stderr } = await child.output();
  clearInterval(timer);
  return { code, bytes, seconds: (performance.now() - start) / 1000, stderr: new TextDecoder().decode(stderr) };
}
