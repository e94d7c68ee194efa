/**
 * `bloomery machine`: what this machine moves and computes in a second, measured once and kept.
 * @module
 */
import { dirname } from "node:path";
import { type Command, EXIT, type Flags } from "./command.ts";
import { COMMON } from "./flags.ts";
import type { Io } from "./io.ts";
import { keptMachine, keptMachinePath } from "./machine_file.ts";
import { deviceName, threadsOf } from "./open.ts";
import { refuseExisting } from "./overwrite.ts";
import { formatAmount } from "./progress.ts";
import type { Machine, Processor } from "../core/plan/machine.ts";

function describe(m: Machine): string {
  const rate = (n: number) => `${formatAmount(n, "B")}/s`;
  const lines: string[] = [];
  const add = (kind: string, p: Processor) => {
    lines.push(`${kind.padEnd(9)}${p.name}: memory ${rate(p.bandwidth)}, ${(p.op * 1e6).toFixed(1)} us an op`);
    for (const [type, { one, many }] of Object.entries(p.products)) {
      lines.push(
        `         ${type.padEnd(8)} one row ${rate(one)}, many rows ${(many / 1e9).toFixed(0)} G multiply-adds/s`,
      );
    }
  };
  add("host", m.host);
  for (const c of m.cards) {
    add("card", c);
    lines.push(`         copies ${rate(c.to_card)} to the card, ${rate(c.to_host)} from it`);
  }
  for (const d of m.drives) {
    lines.push(`drive    of ${d.path}: ${rate(d.random)} at random, ${rate(d.sequential)} in order`);
  }
  return lines.join("\n");
}

/** Bytes of the file that a drive is measured with where there is none. */
const DRIVE_FILE = 1 << 30, PIECE = 16 << 20;

/** A file to read, which is gone afterwards where it was made for this. */
function driveFile(place: string): { path: string; folder: string | undefined } {
  if (!Deno.statSync(place).isDirectory) return { path: place, folder: undefined };
  const folder = Deno.makeTempDirSync({ dir: place, prefix: ".bloomery-machine-" }), path = `${folder}/drive`;
  try {
    using file = Deno.openSync(path, { write: true, createNew: true });
    const piece = new Uint8Array(PIECE);
    for (let at = 0; at < PIECE; at += 65536) crypto.getRandomValues(piece.subarray(at, at + 65536));
    for (let done = 0; done < DRIVE_FILE;) done += file.writeSync(piece);
    file.syncSync();
    return { path, folder };
  } catch (error) {
    Deno.removeSync(folder, { recursive: true });
    throw error;
  }
}

async function measure(flags: Flags, io: Io, place: string): Promise<Machine> {
  const { openBackend } = await import("../ffi/mod.ts");
  const { measureMachine } = await import("../core/engine/measure.ts");
  using opened = openBackend(deviceName(flags), { threads: threadsOf(flags, io) });
  using _ = io.hold();
  const drive = driveFile(place);
  let bar: ReturnType<Io["bar"]> | undefined;
  try {
    const measured = await measureMachine(opened.backend, {
      drive: drive.path,
      signal: io.signal,
      ...(flags.has("size") ? { side: flags.num("size")!, bytes: 8 * flags.num("size")! ** 2 } : {}),
      onProgress: (done, total) => (bar ??= io.bar("measure", total, "it")).update(done),
    });
    // A file that is gone names no drive.
    return drive.folder === undefined
      ? measured
      : { ...measured, drives: measured.drives.map((d) => ({ ...d, path: place })) };
  } finally {
    bar?.stop();
    if (drive.folder !== undefined) Deno.removeSync(drive.folder, { recursive: true });
  }
}

/** Writes beside and renames. */
function keep(path: string, machine: Machine): void {
  Deno.mkdirSync(dirname(path), { recursive: true });
  Deno.writeTextFileSync(`${path}.partial`, JSON.stringify(machine, null, 1) + "\n");
  Deno.renameSync(`${path}.partial`, path);
}

export const machine: Command = {
  name: "machine",
  summary: "Measure what this machine moves and computes in a second, for predictions",
  arguments: [],
  flags: [
    COMMON.device,
    COMMON.threads,
    {
      name: "output",
      alias: ["o"],
      type: "string",
      value: "FILE",
      help: "where the machine goes, a .json file; default: the user's cache",
    },
    {
      name: "drive",
      type: "string",
      value: "PATH",
      default: ".",
      help: "a large file on the drive to measure, or a folder there, in which 1 GiB is written, read and removed",
    },
    { name: "again", type: "bool", help: "measure, even if the user's cache has this machine" },
    {
      name: "size",
      type: "int",
      value: "N",
      min: 256,
      max: 16384,
      help: "numbers along a side of the matrices; default: 4096",
    },
    COMMON.overwrite,
    COMMON.config,
    COMMON.json,
    COMMON.quiet,
  ],
  epilog: "Takes about a minute, on a machine that does nothing else. plan --machine and bench predict with it.\n\n" +
    "Examples:\n  bloomery machine\n  bloomery machine -o workstation.json --drive /models\n" +
    "  bloomery plan model.gguf --machine workstation.json",

  async run({ flags, io }) {
    const output = flags.str("output");
    if (output !== undefined) refuseExisting(output, flags);
    const kept = output === undefined && !flags.bool("again") ? keptMachine() : undefined;
    const path = output ?? keptMachinePath((name) => Deno.env.get(name));
    const measured = kept ?? await measure(flags, io, flags.str("drive")!);
    if (kept === undefined) keep(path, measured);
    io.note(kept === undefined ? `wrote ${path}` : `measured before: ${path}; --again measures anew`);
    if (flags.bool("json")) io.json(measured);
    else io.out(describe(measured) + "\n");
    return EXIT.done;
  },
};
