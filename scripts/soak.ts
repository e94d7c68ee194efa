/**
 * Loads a server for a while with what real clients do, good and bad, and says whether it stayed as it was: answers equal to those of the
 * same requests alone, memory flat, no slot lost, every connection still answered.
 *
 *   deno run -A scripts/soak.ts [--minutes 10] [--connections 1000] [--clients 96] [--slots 64] [--device cpu] [-m FILE]
 *
 * Starts `bloomery serve` on its own (bloom-nano of this repository unless -m names a model), takes the answers of a set of requests one
 * after the other, then mixes them: chats, streams, completions, calls, schemas, streams that are left in the middle, bodies that are wrong.
 * Prints a line every ten seconds and a table; exit code 1 where something is not as it was.
 * @module
 */
import { prepare } from "../quantize/prepare/mod.ts";

const root = new URL("../", import.meta.url).pathname;

function flag(name: string, fallback: string): string {
  const i = Deno.args.findIndex((a) => a === `--${name}` || (name.length === 1 && a === `-${name}`));
  return i < 0 ? fallback : Deno.args[i + 1];
}

const minutes = Number(flag("minutes", "10")), n_connections = Number(flag("connections", "1000"));
const n_clients = Number(flag("clients", "96")), n_slots = Number(flag("slots", "64"));
const CONTEXT = 256;

interface Kind {
  readonly name: string;
  readonly path: string;
  readonly body: Record<string, unknown>;
  /** What of an answer has to be the same each time; undefined: the answer is not looked at. */
  readonly read?: (answer: any) => unknown;
  readonly status: number;
}

const chat = (text: string, more: Record<string, unknown> = {}) => ({
  messages: [{ role: "user", content: text }],
  temperature: 0,
  max_tokens: 24,
  ...more,
});
const tools = [{
  type: "function",
  function: { name: "add", parameters: { type: "object", properties: { a: { type: "integer" } }, required: ["a"] } },
}];
const format = {
  type: "json_schema",
  json_schema: { schema: { type: "object", properties: { x: { type: "integer" } }, required: ["x"] } },
};

/** Requests whose answers are compared, and requests that have to be refused. */
function kinds(): Kind[] {
  const answer = (a: any) => a.choices?.[0]?.message;
  const numbers = Array.from({ length: 12 }, (_, i) => `What is ${17 + i} + ${58 - i}?`);
  return [
    ...numbers.map((text) => ({
      name: "chat",
      path: "/v1/chat/completions",
      body: chat(text),
      read: answer,
      status: 200,
    })),
    ...numbers.slice(0, 6).map((text) => ({
      name: "completion",
      path: "/completion",
      body: { prompt: text, n_predict: 16, temperature: 0, cache_prompt: text.length % 2 === 0 },
      read: (a: any) => a.content,
      status: 200,
    })),
    ...numbers.slice(0, 4).map((text) => ({
      name: "schema",
      path: "/v1/chat/completions",
      body: chat(text, { response_format: format }),
      read: answer,
      status: 200,
    })),
    ...numbers.slice(0, 4).map((text) => ({
      name: "call",
      path: "/v1/chat/completions",
      body: chat(text, { tools, tool_choice: "required" }),
      read: (a: any) => a.choices?.[0]?.message.tool_calls?.[0]?.function,
      status: 200,
    })),
    { name: "bad field", path: "/v1/chat/completions", body: chat("x", { temperature: "hot" }), status: 400 },
    { name: "too long", path: "/completion", body: { prompt: "word ".repeat(2000) }, status: 400 },
    { name: "no route", path: "/nothing", body: {}, status: 404 },
  ];
}

async function start(): Promise<{ url: string; process: Deno.ChildProcess }> {
  const given = flag("m", "");
  let model = given;
  if (given === "") {
    model = `${Deno.makeTempDirSync()}/bloom-nano.gguf`;
    await prepare(`${root}models/bloom-nano`, model, { outtype: "bf16" });
  }
  const args = ["run", "-A", "--no-check", `${root}cli/main.ts`, "serve", "-m", model, "--port", "0", "--metrics"];
  const process = new Deno.Command(Deno.execPath(), {
    args: [
      ...args,
      "--device",
      flag("device", "cpu"),
      "-np",
      String(n_slots),
      "-c",
      String(CONTEXT * n_slots),
      "--log-file",
      "/dev/null",
    ],
    stdout: "null",
    stderr: "piped",
  }).spawn();
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  (async () => {
    let log = "";
    for await (const part of process.stderr.pipeThrough(new TextDecoderStream())) {
      log = (log + part).slice(-4000);
      const url = /serving on (http:\S+):/.exec(log)?.[1];
      if (url !== undefined) resolve(url);
    }
    reject(new Error(`the server ended: ${log}`));
  })();
  return { url: await promise, process };
}

function memoryOf(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(Deno.readTextFileSync(`/proc/${pid}/status`))?.[1] ?? NaN) / 1024;
}

const { url, process } = await start();
const list = kinds(), counts = new Map<string, number>(), wrong: string[] = [];
const post = (kind: Kind, signal?: AbortSignal, more: Record<string, unknown> = {}) =>
  fetch(url + kind.path, {
    method: "POST",
    body: JSON.stringify({ ...kind.body, ...more }),
    ...(signal === undefined ? {} : { signal }),
  });
const count = (name: string) => counts.set(name, (counts.get(name) ?? 0) + 1);

const alone: string[] = [];
for (const kind of list) {
  const response = await post(kind), answer = await response.json();
  if (response.status !== kind.status) {
    wrong.push(`${kind.name} alone: status ${response.status}, expected ${kind.status}`);
  }
  alone.push(JSON.stringify(kind.read?.(answer)) ?? "");
}

// Connections that send nothing stay open beside those at work.
const { hostname, port } = new URL(url);
const idle: Deno.TcpConn[] = [];
for (let i = 0; i < n_connections; i++) idle.push(await Deno.connect({ hostname, port: Number(port) }));

const until = performance.now() + minutes * 60_000;
async function client(): Promise<void> {
  while (performance.now() < until) {
    const i = Math.floor(Math.random() * list.length), kind = list[i], way = Math.random();
    try {
      if (kind.read !== undefined && way < 0.15) { // left in the middle
        const leave = new AbortController();
        const response = await post(kind, leave.signal, { stream: true, max_tokens: 100, n_predict: 100 });
        await response.body?.getReader().read();
        leave.abort();
        count("left");
      } else if (kind.read !== undefined && way < 0.3) {
        const text = await (await post(kind, undefined, { stream: true })).text();
        if (!/data: /.test(text) || /"error"/.test(text)) wrong.push(`${kind.name} stream: ${text.slice(0, 200)}`);
        count("stream");
      } else {
        const response = await post(kind), answer = await response.json();
        const got = JSON.stringify(kind.read?.(answer)) ?? "";
        if (response.status !== kind.status) {
          wrong.push(`${kind.name}: status ${response.status}: ${JSON.stringify(answer).slice(0, 200)}`);
        } else if (got !== alone[i]) wrong.push(`${kind.name}: ${got} is not ${alone[i]}`);
        count(kind.name);
      }
    } catch (e) {
      wrong.push(`${kind.name}: ${e instanceof Error ? e.message : String(e)}`);
    }
    if (wrong.length > 50) return;
  }
}

const memory: number[] = [];
const watch = setInterval(() => {
  memory.push(memoryOf(process.pid));
  const n = [...counts.values()].reduce((a, b) => a + b, 0);
  console.error(
    `${Math.round((until - performance.now()) / 1000)} s left, ${n} requests, ${
      memory.at(-1)!.toFixed(0)
    } MB, ${wrong.length} wrong`,
  );
}, 10_000);
await Promise.all(Array.from({ length: n_clients }, client));
clearInterval(watch);

for (const c of idle) c.close();
await new Promise((resolve) => setTimeout(resolve, 2000));
const slots = await (await fetch(`${url}/slots`)).json();
const busy = slots.filter((s: { is_processing: boolean }) => s.is_processing).length;
if (busy > 0) wrong.push(`${busy} slots are still at work`);
// Caches fill and code is compiled in the first third.
const third = Math.floor(memory.length / 3),
  early = Math.max(...memory.slice(third, 2 * third)),
  late = Math.max(...memory.slice(2 * third));
if (third > 0 && late > 1.15 * early + 16) wrong.push(`memory grew from ${early.toFixed(0)} to ${late.toFixed(0)} MB`);
process.kill("SIGTERM");
const { code } = await process.status;
if (code !== 0) wrong.push(`the server ended with ${code}`);

console.log("| requests | number |\n| --- | --- |");
for (const [name, n] of [...counts].sort()) console.log(`| ${name} | ${n} |`);
console.log(
  `\n${n_slots} slots, ${n_clients} clients, ${n_connections} idle connections, ${minutes} minutes: memory ${
    memory[0]?.toFixed(0)
  } MB at first, ${early.toFixed(0)} in the middle, ${
    late.toFixed(0)
  } at the end; ${wrong.length} answers or states not as expected`,
);
for (const w of wrong.slice(0, 20)) console.log(`  ${w}`);
if (wrong.length > 0) Deno.exitCode = 1;
