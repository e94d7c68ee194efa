/**
 * `deno task demo`: the whole job on the model in the repository. Builds the native library, prepares the checkpoint, quantizes
 * it, serves it and asks it a question over HTTP, scores a text and says how far the quantization is from the original.
 *
 * Results go to stdout, progress to stderr; files go to a temporary folder that is removed at the end, Ctrl-C included.
 * @module
 */

const root = new URL("../", import.meta.url).pathname;
const children = new Set<Deno.ChildProcess>();
const folder = Deno.makeTempDirSync({ prefix: "bloomery-demo-" });

function cleanUp(): void {
  for (const c of children) {
    try {
      c.kill("SIGKILL");
    } catch {
      // it has ended
    }
  }
  try {
    Deno.removeSync(folder, { recursive: true });
  } catch {
    // it is gone
  }
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  Deno.addSignalListener(signal, () => {
    cleanUp();
    Deno.exit(130);
  });
}

/** Runs a script in the temporary folder, so that everything it prints has short paths. */
function spawn(script: string, args: string[], stdout: "inherit" | "piped" = "inherit"): Deno.ChildProcess {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", "--config", `${root}deno.json`, root + script, ...args],
    cwd: folder,
    stdin: "null",
    stdout,
    stderr: "inherit",
  })
    .spawn();
  children.add(child);
  child.status.then(() => children.delete(child));
  return child;
}

/** Runs a command. Its results go to stdout, or are the fields of its JSON document where `tell` makes a line of them. */
async function step(
  title: string,
  args: string[],
  tell?: (result: Record<string, unknown>) => string,
): Promise<void> {
  console.error(`\n== ${title}\n$ bloomery ${args.join(" ").replaceAll(root, "")}`);
  const start = performance.now();
  const child = spawn("cli/main.ts", [...args, "--quiet", ...tell ? ["--json"] : []], tell ? "piped" : "inherit");
  const text = tell ? await new Response(child.stdout).text() : "";
  const { success, code } = await child.status;
  if (!success) throw new Error(`${title}: exit code ${code}`);
  if (tell) console.log(tell(JSON.parse(text.trim().split("\n").at(-1)!)));
  console.error(`(${((performance.now() - start) / 1000).toFixed(1)} s)`);
}

/** A port nobody listens on. */
function freePort(): number {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  return port;
}

async function ready(url: string, server: Deno.ChildProcess): Promise<void> {
  let ended = false;
  server.status.then(() => ended = true);
  for (let i = 0; i < 300 && !ended; i++) {
    try {
      const response = await fetch(`${url}/health`);
      await response.body?.cancel();
      if (response.ok) return;
    } catch {
      // not listening yet
    }
    await new Promise((r) => setTimeout(r, 100));
  }
  throw new Error("the server did not become ready");
}

/** Asks over HTTP and prints the answer as it streams. */
async function ask(url: string, question: string): Promise<void> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      messages: [{ role: "user", content: question }],
      stream: true,
      temperature: 0,
      max_tokens: 200,
    }),
  });
  if (!response.ok || !response.body) {
    throw new Error(`the server answered ${response.status}: ${await response.text()}`);
  }
  console.log(`user:      ${question}`);
  let part = "";
  const print = (name: string, text: string) => {
    if (part !== name) Deno.stdout.writeSync(new TextEncoder().encode(`${part ? "\n" : ""}${name.padEnd(11)}`));
    part = name;
    Deno.stdout.writeSync(new TextEncoder().encode(text));
  };
  let rest = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    rest += chunk;
    const events = rest.split("\n\n");
    rest = events.pop()!;
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") continue;
      const delta = JSON.parse(data).choices?.[0]?.delta ?? {};
      if (delta.reasoning_content) print("reasoning:", delta.reasoning_content);
      if (delta.content) print("answer:", delta.content);
    }
  }
  console.log();
}

try {
  const checkpoint = `${root}models/bloom-nano`;
  const original = "bloom-nano-BF16.gguf", small = "bloom-nano-Q4_K_M.gguf";
  const text = `${root}ARCHITECTURE.md`;
  console.error("== build the native library");
  // A card's library takes minutes to compile: the demo uses it where `deno task build` has made it.
  const build = await spawn("scripts/build_native.ts", ["--only", "cpu"]).status;
  if (!build.success) throw new Error("the native library could not be built: it needs g++ or clang++");
  const start = performance.now();
  const megabytes = (n: unknown) => `${(n as number / 1e6).toFixed(1)} MB`;
  await step(
    "prepare the checkpoint",
    ["prepare", checkpoint, "-o", original],
    (r) => `${original}: ${r.architecture}, ${r.n_tensors} tensors, ${megabytes(r.bytes)}`,
  );
  await step(
    "quantize it",
    ["quantize", original, small, "Q4_K_M"],
    (r) => `${small}: ${megabytes(r.bytes)}, ${(r.bpw as number).toFixed(2)} bits per weight`,
  );

  const port = freePort();
  const url = `http://127.0.0.1:${port}`;
  console.error(`\n== serve it, and ask it two questions over HTTP\n$ bloomery serve -m ${small} --port ${port}`);
  const server = spawn("cli/main.ts", ["serve", "-m", small, "--port", String(port), "--quiet"]);
  await ready(url, server);
  await ask(url, "What does the word “city” mean?");
  await ask(url, "What is 27 + 58?");
  server.kill("SIGTERM");
  await server.status;

  await step("score a text", ["score", "-m", small, "-f", text, "-o", "score.jsonl"]);
  await step("compare with the original", ["eval", "-m", small, "--against", original, "-f", text]);
  console.error(`\nall of it took ${((performance.now() - start) / 1000).toFixed(1)} s after the build`);
} catch (error) {
  console.error(`demo: ${(error as Error).message}`);
  Deno.exitCode = 1;
} finally {
  cleanUp();
}
