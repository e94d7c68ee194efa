/**
 * `bloomery man`: the manual page, from the same table as help.
 * @module
 */
import { type Command, EXIT } from "./command.ts";
import { describeFlag, shownForms } from "./flag_text.ts";

/** A text for troff: nothing in it is a request or an escape. */
function plain(text: string): string {
  return text.replaceAll("\\", "\\e").replaceAll("-", "\\-").replaceAll("~", "\\(ti").replaceAll("^", "\\(ha")
    .replace(/^([.'])/gm, "\\&$1");
}

function section(command: Command): string {
  const names = command.arguments.map((a) => {
    const name = a.variadic ? `${a.name}...` : a.name;
    return a.optional ? `[${name}]` : name;
  });
  const lines = [
    `.SS bloomery ${plain(command.name)} ${plain(["[flags]", ...names].join(" "))}`,
    `${plain(command.summary)}.`,
  ];
  for (const a of command.arguments) lines.push(".TP", `\\fI${plain(a.name)}\\fR`, plain(a.help));
  for (const flag of command.flags) {
    if (flag.noEffect !== undefined) continue;
    const forms = shownForms(flag).map((form) => `\\fB${plain(form)}\\fR`).join(", ");
    const value = flag.type === "bool" ? "" : ` \\fI${plain(flag.value ?? "VALUE")}\\fR`;
    lines.push(".TP", forms + value, plain(describeFlag(flag)));
  }
  const idle = command.flags.filter((flag) => flag.noEffect !== undefined);
  if (idle.length > 0) {
    lines.push(".PP", "Accepted as llama.cpp's tools have them, without effect here:");
    for (const flag of idle) lines.push(".TP", `\\fB${plain(`--${flag.name}`)}\\fR`, plain(flag.noEffect!));
  }
  if (command.epilog) lines.push(".PP", ".nf", plain(command.epilog), ".fi");
  return lines.join("\n");
}

/** The whole page. @param version Of the program. */
export function manPage(commands: readonly Command[], version: string): string {
  return `.TH BLOOMERY 1 "" "bloomery ${plain(version)}" "User Commands"
.SH NAME
bloomery \\- prepare, quantize, serve and score language models
.SH SYNOPSIS
\\fBbloomery\\fR \\fIcommand\\fR [flags] [arguments]
.SH DESCRIPTION
Results go to standard output, everything else to standard error.
A command never writes over a file that exists, unless \\fB\\-\\-overwrite\\fR is given.
The value of a flag comes from the command line, else from its environment variable, else from the file of
\\fB\\-\\-config\\fR, else it is the default.
.SH COMMANDS
${commands.map(section).join("\n")}
.SH EXIT STATUS
.TP
0
done
.TP
1
failed
.TP
2
the command line is not right
.TP
3
done, and a limit was not met (eval, inspect)
.TP
130
interrupted
.SH FILES
.TP
\\fI~/.cache/bloomery/models\\fR
downloaded models
`;
}

/** @param commands All commands; asked when the page is printed. */
export const man = (commands: () => readonly Command[]): Command => ({
  name: "man",
  summary: "Print the manual page",
  arguments: [],
  flags: [],
  epilog: "Example:\n  bloomery man > bloomery.1 && man ./bloomery.1",

  async run({ io }) {
    const { VERSION } = await import("./version.ts");
    io.out(manPage(commands(), VERSION));
    return EXIT.done;
  },
});
