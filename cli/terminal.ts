/**
 * Lines typed on a terminal, with editing and history.
 * @module
 */
import process from "node:process";
import readline from "node:readline";

export interface Terminal {
  /**
   * The next line without its end.
   * @returns undefined at the end of the input; `"interrupted"` when Ctrl-C was pressed on an empty line.
   */
  readLine(prompt: string): Promise<{ readonly line: string } | "interrupted" | undefined>;
}

const HISTORY = 1000;

/** The terminal of this process; prompts go to stderr. */
export function openTerminal(): Terminal {
  let history: string[] = [];
  return {
    readLine: (prompt) => {
      // An interface a line: while one is open the terminal is raw, and Ctrl-C would not reach an answer.
      const { promise, resolve } = Promise.withResolvers<{ line: string } | "interrupted" | undefined>();
      const lines = readline.createInterface({
        input: process.stdin,
        output: process.stderr,
        terminal: true,
        history: [...history],
        historySize: HISTORY,
        removeHistoryDuplicates: true,
        prompt,
      });
      lines.on("history", (entries: string[]) => void (history = [...entries]));
      lines.on("line", (line: string) => {
        resolve({ line });
        lines.close();
      });
      lines.on("SIGINT", () => {
        if (lines.line !== "") {
          // As a shell does: the line is given up.
          lines.write(null, { ctrl: true, name: "e" });
          lines.write(null, { ctrl: true, name: "u" });
          return;
        }
        process.stderr.write("\n");
        resolve("interrupted");
        lines.close();
      });
      lines.on("close", () => resolve(undefined));
      lines.prompt();
      return promise;
    },
  };
}
