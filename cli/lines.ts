/**
 * Lines of standard input, for commands that answer one JSON object a line.
 * @module
 */

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
