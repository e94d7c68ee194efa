/**
 * What tests of commands share.
 * @module
 */
import { repoDir } from "../tests/shared.ts";

/** Runs the command line in a process of its own, with `input` as its standard input. */
export async function bloomery(args: string[], input = ""): Promise<{ code: number; out: string; err: string }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", repoDir + "cli/main.ts", ...args],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(input)).catch(() => {}); // it may end before it reads
  await writer.close().catch(() => {});
  const { code, stdout, stderr } = await child.output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}
