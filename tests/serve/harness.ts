/**
 * A server on the fake model for one test, and small things that tests of it share.
 * @module
 */
import OpenAI from "npm:openai@7.59.0";
import { type RunningServer, type ServerOptions, startServer } from "../../serve/server.ts";
import { type FakeEngine, fakeModel, type FakeOptions } from "./fake.ts";

export interface Harness {
  server: RunningServer;
  engine: FakeEngine;
  client: OpenAI;
  /** POSTs a body and reads JSON. */
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<{ status: number; body: any }>;
  /** POSTs a body and reads the events of the answer. */
  events(path: string, body: unknown): Promise<any[]>;
}

/** Runs a test against a fresh server, and stops it. */
export async function withServer(
  options: Omit<ServerOptions, "model" | "port"> & FakeOptions,
  test: (harness: Harness) => Promise<void>,
): Promise<void> {
  const model = fakeModel(options);
  const server = await startServer({ ...options, model, port: 0 });
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: options.apiKeys?.[0] ?? "none", maxRetries: 0 });
  const send = (path: string, body: unknown, headers = {}) =>
    fetch(server.url + path, {
      method: "POST",
      headers,
      body: typeof body === "string" || body instanceof Uint8Array ? body as BodyInit : JSON.stringify(body),
    });
  try {
    await test({
      server,
      engine: model.engine,
      client,
      post: async (path, body, headers) => {
        const response = await send(path, body, headers);
        const text = await response.text();
        return { status: response.status, body: text === "" ? undefined : JSON.parse(text) };
      },
      events: async (path, body) => readEvents(await (await send(path, body)).text()),
    });
  } finally {
    await server.stop();
  }
}

/** The data of an event stream; "[DONE]" stays a string. */
export function readEvents(text: string): any[] {
  return text.split("\n\n").filter((e) => e !== "").map((e) => {
    if (!e.startsWith("data: ")) throw new Error(`not an event: ${e}`);
    return e === "data: [DONE]" ? "[DONE]" : JSON.parse(e.slice(6));
  });
}

/** Waits until a condition holds; fails after a second, which is what clients are promised. */
export async function soon(condition: () => boolean, what: string): Promise<void> {
  const start = performance.now();
  while (!condition()) {
    if (performance.now() - start > 1000) throw new Error(`not within a second: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
