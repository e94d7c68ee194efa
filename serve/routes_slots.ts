/**
 * POST /slots/{id}?action=save|restore|erase: what a slot has computed goes to a file and comes back, to the same bits.
 * @module
 */
import { z } from "zod";
import { osReason } from "../core/os_error.ts";
import { decodeSnapshot, encodeSnapshot, type SnapshotOwner } from "../core/engine/snapshot_file.ts";
import { EngineError } from "../core/errors.ts";
import { type App, json } from "./app.ts";
import { ApiError, badRequest, switchedOff } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { opt, parseBody } from "./schemas.ts";

export const slotFileSchema = z.object({ filename: opt(z.string()) });

export async function slotAction(app: App, { params, query, body }: Exchange): Promise<Response> {
  const folder = app.settings.slotSavePath;
  if (folder === undefined) throw switchedOff("POST /slots", "--slot-save-path DIR");
  const id = slotOf(app, params.id);
  const action = query.get("action");
  if (action === "erase") return json({ id_slot: id, n_erased: await app.scheduler.eraseSlot(id) });
  if (action !== "save" && action !== "restore") {
    throw badRequest(`action: expected save, restore or erase, found ${JSON.stringify(action)}`, "action");
  }
  const filename = fileName(parseBody(slotFileSchema, body).filename);
  const path = `${folder.replace(/\/+$/, "")}/${filename}`;
  const owner = { model: await app.model.digest(), build: app.settings.build };
  const act = action === "save" ? save : restore;
  return json({ id_slot: id, filename, ...await act(app, id, { path, filename, owner }) });
}

interface SlotFile {
  path: string;
  filename: string;
  owner: SnapshotOwner;
}

async function save(app: App, id: number, { path, filename, owner }: SlotFile): Promise<object> {
  const start = performance.now();
  const snapshot = await app.scheduler.saveSlot(id);
  const bytes = await encodeSnapshot(snapshot, owner);
  // Whoever reads the file meets the old one or the new one, and nothing between.
  const beside = `${path}.${crypto.randomUUID()}.part`;
  try {
    await Deno.writeFile(beside, bytes, { createNew: true });
    await Deno.rename(beside, path);
  } catch (cause) {
    await Deno.remove(beside).catch(() => {});
    throw new ApiError(500, "server_error", "slot_file", `Cannot write ${filename}: ${osReason(cause)}`, { cause });
  }
  const timings = { save_ms: performance.now() - start };
  return { n_saved: snapshot.tokens.length, n_written: bytes.length, timings };
}

async function restore(app: App, id: number, { path, filename, owner }: SlotFile): Promise<object> {
  const start = performance.now();
  let bytes: Uint8Array<ArrayBuffer>;
  try {
    bytes = await Deno.readFile(path);
  } catch (cause) {
    throw new ApiError(400, "invalid_request_error", "slot_file", `Cannot read ${filename}: ${osReason(cause)}`, {
      param: "filename",
      cause,
    });
  }
  let n_restored: number;
  try {
    const snapshot = await decodeSnapshot(bytes, owner, filename);
    await app.scheduler.restoreSlot(id, snapshot);
    n_restored = snapshot.tokens.length;
  } catch (cause) {
    if (!(cause instanceof EngineError) || !cause.code.startsWith("engine.snapshot")) throw cause;
    const hint = cause.hint === undefined ? {} : { hint: cause.hint };
    throw new ApiError(400, "invalid_request_error", "slot_file", cause.message, { param: "filename", cause, ...hint });
  }
  return { n_restored, n_read: bytes.length, timings: { restore_ms: performance.now() - start } };
}

function slotOf(app: App, text: string): number {
  const n_slots = app.scheduler.slots.length;
  if (!/^\d{1,9}$/.test(text) || Number(text) >= n_slots) {
    throw badRequest(`id: expected a slot from 0 to ${n_slots - 1}, found ${JSON.stringify(text)}`, "id");
  }
  return Number(text);
}

/** A name within the folder: no path, nothing hidden, nothing that some system reads as more than a name. */
function fileName(name: string | undefined): string {
  const fits = name !== undefined && /^[^./\\:*?"<>|\p{C}][^/\\:*?"<>|\p{C}]*$/u.test(name) &&
    new TextEncoder().encode(name).length <= 200 && !/[. ]$/.test(name);
  if (!fits) throw badRequest("filename: Invalid filename; expected the name of a file without a path", "filename");
  return name;
}
