/** Where a server listens: several addresses, Unix sockets, HTTPS. */
import assert from "node:assert/strict";
import { startServer } from "../../serve/server.ts";
import { fakeModel } from "./fake.ts";

const CASES = new URL("cases/", import.meta.url);
const TLS = {
  cert: Deno.readTextFileSync(new URL("localhost.cert.pem", CASES)),
  key: Deno.readTextFileSync(new URL("localhost.key.pem", CASES)),
};

/** GET /health over a connection. */
async function health(options: Deno.ConnectOptions | Deno.UnixConnectOptions): Promise<string> {
  using connection = "path" in options ? await Deno.connect(options) : await Deno.connect(options);
  await connection.write(new TextEncoder().encode("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
  let text = "";
  for await (const part of connection.readable.pipeThrough(new TextDecoderStream())) text += part;
  return text;
}

Deno.test("a server listens on every address of its list, with one port", async () => {
  const server = await startServer({ model: fakeModel(), host: "127.0.0.1, 127.0.0.2", port: 0 });
  try {
    for (const hostname of ["127.0.0.1", "127.0.0.2"]) {
      assert.match(await health({ hostname, port: server.port }), /^HTTP\/1\.1 200 [^]*"status":"ok"/);
    }
    await assert.rejects(health({ hostname: "127.0.0.3", port: server.port }));
    // Where one address cannot be had, none is kept.
    const taken = startServer({ model: fakeModel(), host: "127.0.0.3,127.0.0.2", port: server.port });
    await assert.rejects(taken, Deno.errors.AddrInUse);
    await assert.rejects(health({ hostname: "127.0.0.3", port: server.port }));
  } finally {
    await server.stop();
  }
  await assert.rejects(health({ hostname: "127.0.0.2", port: server.port }));
});

Deno.test("a server listens on a Unix socket, takes one over that was left behind, and leaves others alone", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/server.sock`;
  try {
    const server = await startServer({ model: fakeModel(), host: path });
    assert.deepEqual([server.url, server.port], [`unix:${path}`, 0]);
    assert.match(await health({ transport: "unix", path }), /"status":"ok"/);
    await assert.rejects(startServer({ model: fakeModel(), host: path }), "somebody listens there");
    await server.stop();
    await assert.rejects(Deno.stat(path), Deno.errors.NotFound);
    // A process that ends at once leaves its socket.
    const left = `const l = Deno.listen({ transport: "unix", path: ${JSON.stringify(path)} }); l; Deno.exit(0);`;
    await new Deno.Command(Deno.execPath(), { args: ["eval", left] }).output();
    assert.ok((await Deno.lstat(path)).isSocket);
    const both = await startServer({ model: fakeModel(), host: `${path},127.0.0.1`, port: 0 });
    assert.equal(both.url, `http://127.0.0.1:${both.port}`);
    assert.match(await health({ transport: "unix", path }), /"status":"ok"/);
    assert.equal((await (await fetch(`${both.url}/health`)).json()).status, "ok");
    await both.stop();
    await Deno.writeTextFile(path, "a file");
    await assert.rejects(startServer({ model: fakeModel(), host: path }));
    assert.equal(await Deno.readTextFile(path), "a file");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a server with a certificate speaks HTTPS, streams too, and frees the slot of a client that leaves", async () => {
  const server = await startServer({ model: fakeModel({ stepMs: 2 }), tls: TLS, port: 0 });
  using client = Deno.createHttpClient({ caCerts: [TLS.cert] });
  const url = `https://localhost:${server.port}`;
  try {
    assert.match(server.url, /^https:/);
    assert.equal((await (await fetch(`${url}/health`, { client })).json()).status, "ok");
    const body = JSON.stringify({ prompt: "[[[hello]]]", stream: true });
    assert.match(await (await fetch(`${url}/completion`, { method: "POST", body, client })).text(), /"stop":true/);
    const leave = new AbortController();
    const endless = JSON.stringify({ prompt: "babble", n_predict: 400, ignore_eos: true });
    const answer = fetch(`${url}/completion`, { method: "POST", body: endless, client, signal: leave.signal });
    while (server.scheduler.n_active === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    leave.abort();
    await assert.rejects(answer);
    while (server.scheduler.n_active > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.ok(!/"status"/.test(await health({ hostname: "127.0.0.1", port: server.port }).catch(() => "")));
  } finally {
    await server.stop();
  }
});

Deno.test("a server that drains does not wait for connections without a request, and finishes those with one", async () => {
  const server = await startServer({ model: fakeModel({ stepMs: 5 }), port: 0, n_slots: 2 });
  const { port } = server;
  /** All that a connection gets until it is closed. */
  const open = async (text: string) => {
    const connection = await Deno.connect({ hostname: "127.0.0.1", port });
    if (text !== "") await connection.write(new TextEncoder().encode(text));
    let got = "";
    const closed = (async () => {
      for await (const part of connection.readable.pipeThrough(new TextDecoderStream())) got += part;
    })().catch(() => {}); // a connection may be reset
    return { closed, got: () => got };
  };
  const until = async (ok: () => boolean) => {
    for (let i = 0; i < 500 && !ok(); i++) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.ok(ok());
  };
  const silent = await open(""), asked = await open("GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
  const body = JSON.stringify({ prompt: "x[[[" + "word ".repeat(40) + "]]]", stream: true });
  const running = await open(`POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
  await until(() => /"status":"ok"/.test(asked.got()) && /data: /.test(running.got()));
  // Were one of them waited for, this would take as long as a connection is kept: 75 seconds.
  await server.drain();
  await Promise.all([silent.closed, asked.closed, running.closed]);
  assert.match(running.got(), /"stop":true/);
});
