/**
 * `bloomery completions`: what a shell needs to complete bloomery's command lines, from the same table as help.
 *
 * zsh reads bash's completion through its own adapter, so that there is one list of words to get right.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import { type Command, EXIT, type Flag } from "./command.ts";
import { describeFlag, flagForms, shownForms } from "./flag_text.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;

type Shell = typeof SHELLS[number];

/** A text as one word of a shell, whatever is in it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Spellings worth completing: long ones with two dashes, and the short ones. */
function words(flag: Flag): string[] {
  return shownForms(flag).filter((form) => form.startsWith("--") || form.length === 2);
}

/** Flags that have an effect: the others are accepted, not advertised. */
const advertised = (command: Command) => command.flags.filter((flag) => flag.noEffect === undefined);

function bashCommand(command: Command): string {
  const lines = [`    ${command.name})`, `      case "$previous" in`];
  for (const flag of command.flags) {
    if (flag.type === "bool") continue;
    const forms = flagForms(flag).map((form) => form.text).join("|");
    const then = flag.choices
      ? `COMPREPLY=($(compgen -W ${quoted([...flag.choices].join(" "))} -- "$current"))`
      : flag.value === "FILE"
      ? "_bloomery_paths -f"
      : flag.value === "DIR"
      ? "_bloomery_paths -d"
      : "COMPREPLY=()";
    lines.push(`        ${forms}) ${then}; return ;;`);
  }
  lines.push("      esac");
  const flags = advertised(command).flatMap(words).join(" ");
  lines.push(`      flags=${quoted(`${flags} --help`)}`);
  const choices = command.arguments.flatMap((a) => a.choices ?? []);
  lines.push(`      arguments=${quoted(choices.join(" "))}`, "      ;;");
  return lines.join("\n");
}

export function bashCompletion(commands: readonly Command[]): string {
  const names = [...commands.map((c) => c.name), "help"].join(" ");
  return `# Completion of bloomery for bash: source it, or put it in the folder of bash-completion.
_bloomery_paths() {
  # Only paths get a slash behind a folder: the command "serve" must not where there is a folder of that name.
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen "$1" -- "$current"))
}
_bloomery() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" flags="" arguments=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W ${quoted(`${names} --help --version`)} -- "$current"))
    return
  fi
  case "\${COMP_WORDS[1]}" in
    help) COMPREPLY=($(compgen -W ${quoted(names)} -- "$current")); return ;;
${commands.map(bashCommand).join("\n")}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;
    *)
      if [ -n "$arguments" ]; then COMPREPLY=($(compgen -W "$arguments" -- "$current"))
      else _bloomery_paths -f; fi
      ;;
  esac
}
complete -F _bloomery bloomery
`;
}

export function zshCompletion(commands: readonly Command[]): string {
  const script = bashCompletion(commands);
  // zsh completes paths itself where the function offers nothing.
  const functions = script.slice(script.indexOf("_bloomery() {"), script.lastIndexOf("complete -F"));
  return `#compdef bloomery
# Completion of bloomery for zsh: source it behind compinit.
autoload -U +X bashcompinit && bashcompinit
_bloomery_paths() { COMPREPLY=() }
${functions}complete -o default -F _bloomery bloomery
`;
}

export function fishCompletion(commands: readonly Command[]): string {
  const lines = [
    "# Completion of bloomery for fish: put it in ~/.config/fish/completions/bloomery.fish.",
    "complete -c bloomery -n __fish_use_subcommand -f",
  ];
  for (const command of commands) {
    lines.push(`complete -c bloomery -n __fish_use_subcommand -a ${command.name} -d ${quoted(command.summary)}`);
  }
  for (const command of commands) {
    const within = `complete -c bloomery -n ${quoted(`__fish_seen_subcommand_from ${command.name}`)}`;
    for (const flag of advertised(command)) {
      const short = flagForms(flag).find((form) => form.text.length === 2)?.text.slice(1);
      const value = flag.type === "bool"
        ? ""
        : flag.choices
        ? ` -x -a ${quoted([...flag.choices].join(" "))}`
        : flag.value === "FILE" || flag.value === "DIR"
        ? " -r -F"
        : " -x";
      lines.push(`${within} -l ${flag.name}${short ? ` -s ${short}` : ""}${value} -d ${quoted(describeFlag(flag))}`);
      if (flag.off) lines.push(`${within} -l no-${flag.name} -d ${quoted(`turn --${flag.name} off`)}`);
    }
    for (const { choices } of command.arguments) {
      if (choices) lines.push(`${within} -f -a ${quoted(choices.join(" "))}`);
    }
  }
  return lines.join("\n") + "\n";
}

/** @param commands All commands; asked when the script is printed. */
export const completions = (commands: () => readonly Command[]): Command => ({
  name: "completions",
  summary: "Print the completion script of a shell",
  arguments: [{ name: "shell", help: SHELLS.join(", "), choices: SHELLS }],
  flags: [],
  epilog: "Examples:\n  source <(bloomery completions bash)\n" +
    "  bloomery completions fish > ~/.config/fish/completions/bloomery.fish",

  async run({ args, io }) {
    const [shell] = args;
    if (!SHELLS.includes(shell as Shell)) {
      throw new UsageError("usage.shell", `Cannot complete for ${shell}: expected ${SHELLS.join(", ")}`, {
        at: { got: shell },
      });
    }
    const script = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion }[shell as Shell];
    io.out(script(commands()));
    return EXIT.done;
  },
});
