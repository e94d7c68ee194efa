/**
 * Chats as a file, and back. A file is outside data: everything in it is checked, and what does not fit is refused by its place.
 * @module
 */
import type { Chat, Message, Status, TextFile, ToolCall } from "../chat/types.ts";

export const FORMAT = "bloomery-chats";

export interface Archive {
  chats: Chat[];
  messages: Message[];
}

/** Why a file cannot be imported, in words for people. */
export class ImportError extends Error {}

/** The text of an export. */
export function exportText({ chats, messages }: Archive): string {
  return JSON.stringify(
    { format: FORMAT, version: 1, exported: new Date().toISOString(), chats, messages },
    undefined,
    1,
  );
}

type Fields = Record<string, unknown>;

function objectAt(value: unknown, place: string): Fields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
  throw new ImportError(`${place}: expected an object`);
}

function listAt(value: unknown, place: string): unknown[] {
  if (Array.isArray(value)) return value;
  throw new ImportError(`${place}: expected a list`);
}

function textAt(fields: Fields, name: string, place: string, otherwise?: string): string {
  const value = fields[name] ?? otherwise;
  if (typeof value === "string") return value;
  throw new ImportError(`${place}.${name}: expected a text`);
}

function timeAt(fields: Fields, name: string, place: string): number {
  const value = fields[name];
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new ImportError(`${place}.${name}: expected a time in milliseconds`);
}

function idAt(fields: Fields, name: string, place: string): string {
  const id = textAt(fields, name, place);
  if (id !== "" && id.length <= 100) return id;
  throw new ImportError(`${place}.${name}: expected an id of 1 to 100 characters`);
}

/**
 * Reads an export. Chats get fresh ids where `isTaken` says so, so that an import never writes over a chat.
 * @throws {ImportError}
 */
export function importText(text: string, isTaken: (chat: string) => boolean, newId: () => string): Archive {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ImportError(`The file is not JSON: ${(cause as Error).message}`);
  }
  const file = objectAt(value, "The file");
  if (file.format !== FORMAT) throw new ImportError("The file is no export of this page");
  if (file.version !== 1) throw new ImportError(`The file has version ${String(file.version)}, expected 1`);
  const chatIds = new Map<string, string>();
  const chats = listAt(file.chats, "chats").map((entry, i) => {
    const chat = readChat(objectAt(entry, `chats[${i}]`), `chats[${i}]`);
    if (chatIds.has(chat.id)) throw new ImportError(`chats[${i}].id: occurs twice`);
    chatIds.set(chat.id, isTaken(chat.id) ? newId() : chat.id);
    return chat;
  });
  const messageIds = new Map<string, string>();
  const read = listAt(file.messages, "messages").map((entry, i) => {
    const place = `messages[${i}]`, message = readMessage(objectAt(entry, place), place);
    const chat = chatIds.get(message.chat);
    if (chat === undefined) throw new ImportError(`${place}.chat: there is no such chat in the file`);
    if (messageIds.has(message.id)) throw new ImportError(`${place}.id: occurs twice`);
    messageIds.set(message.id, chat === message.chat ? message.id : newId());
    return message;
  });
  const renamed = (id: string | null) => id === null ? null : messageIds.get(id) ?? null;
  return {
    chats: chats.map((chat) => ({ ...chat, id: chatIds.get(chat.id)!, leaf: renamed(chat.leaf) })),
    messages: read.map((message) => ({
      ...message,
      id: renamed(message.id)!,
      chat: chatIds.get(message.chat)!,
      parent: renamed(message.parent),
    })),
  };
}

function readChat(fields: Fields, place: string): Chat {
  const settings = objectAt(fields.settings ?? {}, `${place}.settings`);
  for (const [name, value] of Object.entries(settings)) {
    if (typeof value !== "number" && typeof value !== "string") {
      throw new ImportError(`${place}.settings.${name}: expected a number or a text`);
    }
  }
  return {
    id: idAt(fields, "id", place),
    title: textAt(fields, "title", place, ""),
    ...(fields.named === true ? { named: true } : {}),
    created: timeAt(fields, "created", place),
    updated: timeAt(fields, "updated", place),
    system: textAt(fields, "system", place, ""),
    settings,
    leaf: fields.leaf === null || fields.leaf === undefined ? null : idAt(fields, "leaf", place),
  };
}

const ROLES = ["user", "assistant", "tool"] as const;

function readMessage(fields: Fields, place: string): Message {
  const role = ROLES.find((r) => r === fields.role);
  if (role === undefined) throw new ImportError(`${place}.role: expected ${ROLES.join(", ")}`);
  const status: Status = fields.status === "failed" || fields.status === "stopped" || fields.status === "cut"
    ? fields.status
    : fields.status === "running"
    ? "cut" // it runs elsewhere, if at all
    : "done";
  return {
    id: idAt(fields, "id", place),
    chat: idAt(fields, "chat", place),
    parent: fields.parent === null || fields.parent === undefined ? null : idAt(fields, "parent", place),
    role,
    created: timeAt(fields, "created", place),
    content: textAt(fields, "content", place, ""),
    reasoning: textAt(fields, "reasoning", place, ""),
    calls: listAt(fields.calls ?? [], `${place}.calls`).map((entry, i) => readCall(entry, `${place}.calls[${i}]`)),
    ...(typeof fields.call === "string" ? { call: fields.call } : {}),
    files: listAt(fields.files ?? [], `${place}.files`).map((entry, i) => readFile(entry, `${place}.files[${i}]`)),
    status,
    ...(typeof fields.error === "string" ? { error: fields.error } : {}),
    ...(typeof fields.finish === "string" ? { finish: fields.finish } : {}),
    ...(typeof fields.model === "string" ? { model: fields.model } : {}),
  };
}

function readCall(entry: unknown, place: string): ToolCall {
  const call = objectAt(entry, place);
  return {
    id: textAt(call, "id", place, ""),
    name: textAt(call, "name", place),
    arguments: textAt(call, "arguments", place, ""),
  };
}

function readFile(entry: unknown, place: string): TextFile {
  const file = objectAt(entry, place);
  return { name: textAt(file, "name", place), text: textAt(file, "text", place) };
}
