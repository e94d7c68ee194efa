/// <reference lib="dom" />
/**
 * The list of chats: new, search, rename, remove, and the way to everything else.
 * @module
 */
import type { App, Found } from "../app.ts";
import type { Chat } from "../chat/types.ts";
import { confirmDialog, promptDialog } from "./dialog.ts";
import { h, icon, iconButton, toast } from "./h.ts";

/** Entries that are made at once; further ones when the list is scrolled to its end. */
const BATCH = 60;

export class Sidebar {
  readonly element: HTMLElement;
  readonly #app: App;
  readonly #list = h("ul", { class: "chats", "aria-label": "Chats" });
  readonly #search: HTMLInputElement;
  readonly #machine = h("a", { href: "#/machine", class: "entry" }, icon("machine"), "Machine");
  #shown = BATCH;
  #found: Found[] | undefined;
  #searching = 0;

  /** @param actions What lies outside of the list. */
  constructor(app: App, actions: { exportAll: () => void; importFile: () => void; close: () => void }) {
    this.#app = app;
    this.#search = h("input", {
      type: "search",
      placeholder: "Search",
      "aria-label": "Search chats",
      autocomplete: "off",
      oninput: () => this.#runSearch(),
      onkeydown: (event) => {
        if (event.key === "ArrowDown") this.#list.querySelector("a")?.focus();
      },
    });
    const scroller = h("div", { class: "scroller" }, this.#list);
    scroller.addEventListener("scroll", () => {
      if (scroller.scrollTop + scroller.clientHeight < scroller.scrollHeight - 200) return;
      if (this.#shown >= this.#entries().length) return;
      this.#shown += BATCH;
      this.update();
    });
    this.element = h(
      "nav",
      { class: "sidebar", "aria-label": "Chats" },
      h(
        "div",
        { class: "brand" },
        h("a", { href: "#/", class: "logo" }, h("span", { class: "ember", "aria-hidden": "true" }), "bloomery"),
        iconButton("close", "Close the list", actions.close, { class: "quiet only-phone" }),
      ),
      h("a", { href: "#/", class: "new" }, icon("plus"), "New chat"),
      h("div", { class: "search" }, icon("search"), this.#search),
      scroller,
      h(
        "div",
        { class: "foot" },
        this.#machine,
        h(
          "div",
          { class: "pair" },
          h("button", { type: "button", class: "link", onclick: actions.exportAll }, "Export all"),
          h("button", { type: "button", class: "link", onclick: actions.importFile }, "Import"),
        ),
      ),
    );
  }

  focusSearch(): void {
    this.#search.focus();
    this.#search.select();
  }

  async #runSearch(): Promise<void> {
    const text = this.#search.value.trim(), turn = ++this.#searching;
    if (text === "") this.#found = undefined;
    else {
      await new Promise((resolve) => setTimeout(resolve, 120));
      if (turn !== this.#searching) return;
      const found = await this.#app.search(text);
      if (turn !== this.#searching) return;
      this.#found = found;
    }
    this.#shown = BATCH;
    this.update();
  }

  #entries(): Found[] {
    return this.#found ?? this.#app.chats.map((chat) => ({ chat, excerpt: "" }));
  }

  update(): void {
    const onMachine = location.hash === "#/machine";
    if (onMachine) this.#machine.setAttribute("aria-current", "page");
    else this.#machine.removeAttribute("aria-current");
    const entries = this.#entries();
    const items = entries.slice(0, this.#shown).map(({ chat, excerpt }) => this.#item(chat, excerpt));
    if (items.length === 0) {
      items.push(h("li", { class: "none" }, this.#found === undefined ? "No chats yet" : "Nothing found"));
    }
    this.#list.replaceChildren(...items);
  }

  #item(chat: Chat, excerpt: string): HTMLLIElement {
    const current = chat.id === this.#app.chat?.id && location.hash !== "#/machine";
    const busy = this.#app.runs.ofChat(chat.id) !== undefined;
    return h(
      "li",
      {},
      h(
        "a",
        { href: `#/chat/${chat.id}`, class: "entry", "aria-current": current ? "page" : undefined },
        h("span", { class: "title" }, chat.title || "Chat"),
        excerpt !== "" && h("span", { class: "excerpt" }, excerpt),
      ),
      busy && h("span", { class: "busy", role: "img", "aria-label": "being answered", title: "being answered" }),
      iconButton("edit", `Rename ${chat.title}`, () => this.#rename(chat)),
      iconButton("trash", `Delete ${chat.title}`, () => this.#remove(chat)),
    );
  }

  async #rename(chat: Chat): Promise<void> {
    const title = await promptDialog("Rename chat", "Title", chat.title, "Rename");
    if (title) await this.#app.rename(chat, title);
  }

  async #remove(chat: Chat): Promise<void> {
    if (!await confirmDialog("Delete chat?", `“${chat.title}” and all of its branches will be gone.`, "Delete")) return;
    const open = chat === this.#app.chat;
    await this.#app.remove(chat);
    if (open) location.hash = "#/";
    toast("Chat deleted");
  }
}
