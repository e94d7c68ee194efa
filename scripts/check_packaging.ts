/**
 * Checks what is in packaging/ where neither Docker nor systemd is: every command line in it is taken by the program, every file that the
 * image adds is one that a release makes, and keys of the unit are systemd's.
 *
 *   deno run -A scripts/check_packaging.ts
 * @module
 */
import config from "../deno.json" with { type: "json" };
import { commands } from "../cli/commands.ts";
import { parseArgs } from "../cli/parse.ts";
import { repoDir } from "../tests/shared.ts";

/** Keys of systemd.unit(5), systemd.service(5), systemd.exec(5) and systemd.kill(5) that the unit may use. */
const KEYS: Readonly<Record<string, readonly string[]>> = {
  Unit: ["Description", "Documentation", "After", "Wants"],
  Service: [
    ...["Type", "ExecStart", "ExecReload", "KillSignal", "TimeoutStopSec", "Restart", "RestartSec", "DynamicUser"],
    ...["StateDirectory", "CacheDirectory", "Environment", "LimitMEMLOCK", "LimitNOFILE", "NoNewPrivileges"],
    ...["ProtectSystem", "ProtectHome", "PrivateTmp"],
  ],
  Install: ["WantedBy"],
};

/** The flags of a command line of this program. */
function takes(line: readonly string[]): void {
  parseArgs([...line], commands, "", { readConfig: () => "{}" });
}

/** What is wrong with a unit file. */
export function unitProblems(text: string): string[] {
  const problems: string[] = [], found = new Map<string, string>();
  let section = "";
  for (const line of text.split("\n")) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const name = /^\[(\w+)\]$/.exec(line)?.[1], m = /^(\w+)=(.*)$/.exec(line);
    if (name !== undefined) section = name;
    else if (m === null) problems.push(`"${line}" is no setting`);
    else {
      if (!KEYS[section]?.includes(m[1])) problems.push(`[${section}] has no ${m[1]}`);
      found.set(m[1], m[2]);
    }
  }
  const [program, ...words] = (found.get("ExecStart") ?? "").split(/\s+/);
  if (!program.startsWith("/")) problems.push(`ExecStart is "${program}", expected an absolute path`);
  try {
    takes(words);
  } catch (e) {
    problems.push(`ExecStart: ${(e as Error).message}`);
  }
  if (!/-HUP \$MAINPID$/.test(found.get("ExecReload") ?? "")) problems.push("ExecReload sends no SIGHUP");
  return problems;
}

/** What is wrong with a Dockerfile. */
export function dockerProblems(text: string): string[] {
  const problems: string[] = [];
  const lines = text.replaceAll("\\\n", " ").split("\n").filter((l) => l.trim() !== "" && !l.startsWith("#"));
  const known = [
    "FROM",
    "ARG",
    "ADD",
    "RUN",
    "USER",
    "ENV",
    "EXPOSE",
    "HEALTHCHECK",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
  ];
  for (const line of lines) if (!known.includes(line.split(" ")[0])) problems.push(`"${line}" is no instruction`);
  if (!lines[0]?.startsWith("FROM ")) problems.push("it does not begin with FROM");
  const json = (name: string): string[] => {
    const line = lines.find((l) => l.startsWith(`${name} `));
    try {
      return JSON.parse(line?.slice(name.length + 1) ?? "");
    } catch {
      problems.push(`${name} is no list of words`);
      return [];
    }
  };
  if (json("ENTRYPOINT").join() !== "bloomery") problems.push("ENTRYPOINT is not the program");
  try {
    takes(json("CMD"));
  } catch (e) {
    problems.push(`CMD: ${(e as Error).message}`);
  }
  const tarball = `bloomery-${config.version}-linux-x86_64.tar.gz`;
  if (!text.includes(`TARBALL=${tarball}`)) problems.push(`it does not name the tarball of this version, ${tarball}`);
  return problems;
}

if (import.meta.main) {
  const problems = [
    ...unitProblems(Deno.readTextFileSync(`${repoDir}packaging/bloomery.service`)).map((p) => `bloomery.service: ${p}`),
    ...dockerProblems(Deno.readTextFileSync(`${repoDir}packaging/Dockerfile`)).map((p) => `Dockerfile: ${p}`),
  ];
  for (const p of problems) console.error(p);
  console.log(`packaging: ${problems.length} problems`);
  if (problems.length > 0) Deno.exitCode = 1;
}
