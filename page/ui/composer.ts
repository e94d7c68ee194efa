/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/**
 * Where the user writes: the message, its files, send and stop.
 * @module
 */
import type { App } from "../app.ts";
import type { TextFile } from "../chat/types.ts";
import { h, icon, iconButton, toast } from "./h.ts";

/** Larger files are refused: they would not fit a context. */
const MAX_FILE_BYTES = 4 << 20;

export class Composer {
  readonly element: HTMLElement;
  readonly #app: App;
  readonly #box: HTMLTextAreaElement;
  readonly #send: HTMLButtonElement;
  readonly #files = h("ul", { class: "files", "aria-label": "Attached files" });
  #attached: TextFile[] = [];
  /** What was not sent yet, by chat. */
  readonly #drafts = new Map<string, string>();
  #chat: string | undefined;
  /** A message is on its way, and its answer has not begun. */
  #sending = false;

  /** @param editLast Edits the user's last message. */
  constructor(app: App, editLast: () => void) {
    this.#app = app;
    this.#box = h("textarea", {
      rows: 1,
      id: "message",
      placeholder: "Write a message",
      "aria-label": "Message",
      autocomplete: "off",
      oninput: () => this.#fit(),
      onkeydown: (event) => this.#key(event, editLast),
      onpaste: (event) => {
        const { files } = event.clipboardData!;
        if (files.length === 0) return;
        event.preventDefault();
        this.attach(files);
      },
    });
    this.#send = h("button", { type: "button", class: "send", onclick: () => this.#act() });
    const picker = h("input", { type: "file", multiple: true, hidden: true });
    picker.addEventListener("change", () => {
      this.attach(picker.files!);
      picker.value = "";
    });
    this.element = h(
      "div",
      { class: "composer" },
      this.#files,
      h(
        "div",
        { class: "row" },
        iconButton("attach", "Attach text files", () => picker.click()),
        picker,
        this.#box,
        this.#send,
      ),
    );
    this.update();
  }

  focus(): void {
    this.#box.focus();
  }

  /** Shows whether there is something to stop, and the draft of the chat that is open. */
  update(): void {
    const id = this.#app.chat?.id ?? "";
    if (id !== this.#chat) {
      if (this.#chat !== undefined) this.#drafts.set(this.#chat, this.#box.value);
      this.#chat = id;
      this.#box.value = this.#drafts.get(id) ?? "";
      this.#fit();
    }
    const running = this.#app.running !== undefined;
    if (running) this.#sending = false;
    const label = running ? "Stop the answer" : "Send";
    if (this.#send.title !== label) {
      this.#send.title = label;
      this.#send.setAttribute("aria-label", label);
      this.#send.replaceChildren(icon(running ? "stop" : "send"));
    }
    this.#send.classList.toggle("stops", running);
    this.#enable();
  }

  #enable(): void {
    this.#send.disabled = this.#app.running === undefined && this.#box.value.trim() === "" &&
      this.#attached.length === 0;
  }

  #fit(): void {
    this.#box.style.height = "auto";
    this.#box.style.height = `${Math.min(this.#box.scrollHeight, innerHeight * 0.4)}px`;
    this.#enable();
  }

  #key(event: KeyboardEvent, editLast: () => void): void {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (this.#app.running === undefined) this.#act();
    } else if (event.key === "ArrowUp" && this.#box.value === "") {
      event.preventDefault();
      editLast();
    }
  }

  #act(): void {
    const { running } = this.#app;
    if (running !== undefined) return this.#app.runs.stop(running.id);
    const text = this.#box.value;
    if (this.#sending) return;
    if (text.trim() === "" && this.#attached.length === 0) return;
    const files = this.#attached;
    this.#box.value = "";
    this.#attached = [];
    this.#showFiles();
    this.#fit();
    this.#sending = true;
    this.#app.send(text, files).catch((error) => toast(String(error))).finally(() => this.#sending = false);
    this.focus();
  }

  /** Reads files as text; others are refused. */
  async attach(files: Iterable<File>): Promise<void> {
    for (const file of [...files]) { // the browser empties its own list
      if (file.size > MAX_FILE_BYTES) {
        toast(`${file.name} is larger than 4 MiB`);
        continue;
      }
      try {
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        if (text.includes("\0")) throw new TypeError("no text");
        this.#attached.push({ name: file.name, text });
      } catch {
        toast(`${file.name} is not a text file`);
      }
    }
    this.#showFiles();
    this.#enable();
    this.focus();
  }

  #showFiles(): void {
    this.#files.replaceChildren(...this.#attached.map((file, i) =>
      h(
        "li",
        {},
        icon("file"),
        file.name,
        iconButton("close", `Remove ${file.name}`, () => {
          this.#attached.splice(i, 1);
          this.#showFiles();
          this.#enable();
        }),
      )
    ));
  }
}
