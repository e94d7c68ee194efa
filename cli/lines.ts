/**
 * Commands that answer one JSON object a line of standard input.
 * @module
 */
import { BloomeryError } from "../core/errors.ts";
import { EXIT, type Invocation } from "./command.ts";

/**
 * Answers every line, in order; a line that cannot be answered gives `{"error"}` and does not end the rest.
 * @returns the exit code
 */
export async function answerLines(io: Invocation["io"], answer: (line: string) => unknown): Promise<number> {
  for await (const line of inputLines()) {
    if (io.signal.aborted) return EXIT.interrupted;
    try {
      io.json(answer(line));
    } catch (error) {
      if (!(error instanceof BloomeryError)) throw error;
      io.json(error.toJSON());
    }
  }
  return EXIT.done;
}

/** Lines as they come, without their ends; a last line without an end counts, empty lines do not. */
export async function* inputLines(input: ReadableStream<Uint8Array> = Deno.stdin.readable): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of input.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop()!;
    for (const line of lines) if (line.trim() !== "") yield line;
  }
  if (rest.trim() !== "") yield rest;
}
