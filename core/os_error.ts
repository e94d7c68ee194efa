/**
 * Errors of the operating system in plain words: the one place that knows their codes.
 * @module
 */
import { type ErrorCode, OsError } from "./errors.ts";

interface Problem {
  readonly code: ErrorCode;
  /** Completes "Cannot read FILE: ...". */
  readonly reason: string;
  readonly hint: string;
}

const PROBLEMS: Readonly<Record<string, Problem>> = {
  ENOENT: {
    code: "os.not_found",
    reason: "there is no such file or folder",
    hint: "check the path; a relative one begins at the folder the command runs in",
  },
  EACCES: {
    code: "os.permission",
    reason: "permission denied",
    hint: "check who owns it and what others may do with it",
  },
  EPERM: {
    code: "os.permission",
    reason: "the system does not permit it",
    hint: "check who owns it and what others may do with it",
  },
  EISDIR: { code: "os.is_folder", reason: "it is a folder", hint: "give the path of a file" },
  ENOTDIR: { code: "os.not_folder", reason: "a part of its path is a file, not a folder", hint: "check the path" },
  EEXIST: { code: "os.exists", reason: "it exists already", hint: "choose another name" },
  ENOTEMPTY: { code: "os.exists", reason: "the folder is not empty", hint: "choose another name" },
  ENOSPC: {
    code: "os.disk_full",
    reason: "the disk is full",
    hint: "make room, or choose a folder on another disk",
  },
  EDQUOT: {
    code: "os.disk_full",
    reason: "the user's share of the disk is used up",
    hint: "make room, or choose a folder on another disk",
  },
  EFBIG: {
    code: "os.file_too_large",
    reason: "the file system takes no file of this size",
    hint: "choose a folder on another disk, or write a set of files with --split-max-size",
  },
  EROFS: { code: "os.read_only", reason: "the file system is read-only", hint: "choose another folder" },
  ENAMETOOLONG: { code: "os.bad_path", reason: "the name is too long", hint: "choose a shorter name" },
  ELOOP: { code: "os.bad_path", reason: "its symbolic links lead in a circle", hint: "check the links" },
  EINVAL: { code: "os.bad_path", reason: "the system does not take such a name", hint: "check the path" },
  EMFILE: { code: "os.too_many_files", reason: "too many files are open", hint: "raise the limit: ulimit -n 4096" },
  ENFILE: {
    code: "os.too_many_files",
    reason: "too many files are open on this machine",
    hint: "close other programs",
  },
  EBUSY: { code: "os.busy", reason: "it is in use", hint: "close the program that uses it" },
  ETXTBSY: { code: "os.busy", reason: "it is a program that runs", hint: "end the program, or choose another name" },
  EXDEV: {
    code: "os.other_disk",
    reason: "the two names are on different disks",
    hint: "choose an output on the same disk",
  },
  EIO: { code: "os.device", reason: "the disk reports an error", hint: "check the disk; copy the file to another one" },
  ENXIO: { code: "os.device", reason: "there is no such device", hint: "give the path of a file" },
  ESTALE: { code: "os.device", reason: "the network drive lost the file", hint: "mount the drive again" },
  ENOMEM: { code: "os.memory", reason: "the memory is full", hint: "close other programs, or use a smaller model" },
  EADDRINUSE: {
    code: "os.address_in_use",
    reason: "another program listens there",
    hint: "choose another --port; 0 takes a free one",
  },
  EADDRNOTAVAIL: {
    code: "os.address",
    reason: "it is no address of this machine",
    hint: "use --host 127.0.0.1 for this machine alone, 0.0.0.0 for all its addresses",
  },
  ECONNREFUSED: { code: "os.network", reason: "the connection was refused", hint: "check the address and the network" },
  ECONNRESET: { code: "os.network", reason: "the connection was cut", hint: "try again" },
  ETIMEDOUT: { code: "os.network", reason: "nothing answered in time", hint: "check the address and the network" },
  EHOSTUNREACH: { code: "os.network", reason: "the host cannot be reached", hint: "check the address and the network" },
  ENETUNREACH: { code: "os.network", reason: "the network cannot be reached", hint: "check the network" },
};

/** Classes whose errors may carry no code. */
const CODES: Readonly<Record<string, string>> = {
  NotFound: "ENOENT",
  PermissionDenied: "EACCES",
  NotCapable: "EACCES",
  AlreadyExists: "EEXIST",
  IsADirectory: "EISDIR",
  NotADirectory: "ENOTDIR",
  FilesystemLoop: "ELOOP",
  AddrInUse: "EADDRINUSE",
  AddrNotAvailable: "EADDRNOTAVAIL",
  ConnectionRefused: "ECONNREFUSED",
  ConnectionReset: "ECONNRESET",
  Busy: "EBUSY",
};

const HOST: Problem = {
  code: "os.host",
  reason: "no host has this name",
  hint: "check the spelling; use --host 127.0.0.1 for this machine alone, 0.0.0.0 for all its addresses",
};

function problemOf(error: unknown): Problem | undefined {
  if (!(error instanceof Error)) return undefined;
  if (/^failed to lookup address/.test(error.message)) return HOST;
  const { code } = error as { code?: unknown };
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return HOST;
  if (typeof code === "string" && Object.hasOwn(PROBLEMS, code)) return PROBLEMS[code];
  const number = /\(os error (\d+)\)/.exec(error.message);
  const known = CODES[error.name];
  if (known !== undefined) return PROBLEMS[known];
  return number
    ? { code: "os.other", reason: error.message.replace(/ \(os error \d+\).*$/s, ""), hint: "check the path" }
    : undefined;
}

/** Why the system refused, without the path: completes "Cannot read FILE: ...". Other errors give their message. */
export function osReason(error: unknown): string {
  return problemOf(error)?.reason ?? (error instanceof Error ? error.message : String(error));
}

/** What the user can do about it, where that is known. */
export function osHint(error: unknown): string | undefined {
  return problemOf(error)?.hint;
}

const VERBS: Readonly<Record<string, string>> = {
  readfile: "read",
  readdir: "read the folder",
  scandir: "read the folder",
  read: "read",
  writefile: "write",
  write: "write",
  mkdir: "make the folder",
  rename: "rename",
  remove: "remove",
  unlink: "remove",
  truncate: "write",
  open: "open",
  symlink: "write",
  link: "write",
};

/** Path and operation that the runtime appends to its messages. */
function operation(error: Error): { verb: string; path?: string } {
  const node = error as { path?: unknown; syscall?: unknown };
  if (typeof node.path === "string") return { verb: VERBS[String(node.syscall)] ?? "use", path: node.path };
  const m = /\(os error \d+\): (\w+) '(.*)'$/s.exec(error.message) ??
    /unexpected NUL byte: (\w+) '(.*)'$/s.exec(error.message);
  if (!m) return { verb: "use" };
  // `rename 'a' -> 'b'`: the second is what was to be made.
  const path = /^.*' -> '(.*)$/s.exec(m[2])?.[1] ?? m[2];
  return { verb: VERBS[m[1]] ?? "use", path };
}

/**
 * An error of the system as one of ours, or undefined for anything else.
 * @param what What could not be done, where the error does not say it.
 */
export function osError(error: unknown, what = "go on"): OsError | undefined {
  const problem = problemOf(error);
  if (problem === undefined) return undefined;
  const { verb, path } = operation(error as Error);
  const shown = path?.replace(/[\x00-\x1f\x7f]/g, "\u{fffd}");
  const message = shown === undefined
    ? `Cannot ${what}: ${problem.reason}`
    : `Cannot ${verb} ${shown}: ${problem.reason}`;
  return new OsError(problem.code, message, {
    at: shown === undefined ? {} : { file: shown },
    hint: problem.hint,
    cause: error,
  });
}
