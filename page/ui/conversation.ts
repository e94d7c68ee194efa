/// <reference lib="dom" />
/**
 * The messages of the open chat. Of a long one only the end is made; the rest follows as one scrolls up.
 * @module
 */
import type { App } from "../app.ts";
import type { Message } from "../chat/types.ts";
import { h, iconButton } from "./h.ts";
import { MessageView } from "./message.ts";

/** Messages that are made at once. */
const BATCH = 40;
/** So near to its beginning earlier messages are made, in pixels. */
const EARLIER = 600;
/** So near to its end the view follows what comes, in pixels. */
const NEAR = 80;

export class Conversation {
  readonly element: HTMLElement;
  readonly #app: App;
  readonly #log = h("div", { class: "log", role: "log", "aria-live": "off", "aria-label": "Conversation" });
  readonly #earlier: HTMLButtonElement;
  readonly #scroller: HTMLElement;
  readonly #down: HTMLButtonElement;
  readonly #welcome: HTMLElement;
  /** Read out by screen readers: sentences of the answer as they become complete. */
  readonly #live = h("div", { class: "hidden", "aria-live": "polite", role: "status" });
  #views = new Map<string, MessageView>();
  #shown = BATCH;
  #chat: string | undefined;
  #follows = true;
  #frame = 0;
  readonly #changed = new Set<string>();
  #spoken = { id: "", to: 0 };

  constructor(app: App, welcome: HTMLElement) {
    this.#app = app;
    this.#welcome = welcome;
    this.#earlier = h(
      "button",
      { type: "button", class: "link earlier", onclick: () => this.#showEarlier() },
      "Show earlier messages",
    );
    this.#down = iconButton("down", "Go to the end", () => this.#toEnd(), { class: "quiet to-end" });
    this.#scroller = h("div", { class: "scroller", tabindex: -1 }, welcome, this.#earlier, this.#log);
    this.element = h("div", { class: "conversation" }, this.#scroller, this.#down, this.#live);
    this.#scroller.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
      this.#follows = scrollTop + clientHeight > scrollHeight - NEAR;
      this.#down.hidden = this.#follows;
      if (scrollTop < EARLIER) this.#showEarlier();
    }, { passive: true });
    new ResizeObserver(() => this.#follows && this.#stick()).observe(this.#log);
  }

  /** Shows the branch of the open chat. */
  update(): void {
    const id = this.#app.chat?.id;
    const other = id !== this.#chat;
    if (other) {
      this.#chat = id;
      this.#shown = BATCH;
      this.#views = new Map();
      this.#follows = true;
    }
    const { path } = this.#app;
    const from = Math.max(0, path.length - this.#shown);
    const views = path.slice(from).map((message) => this.#views.get(message.id) ?? new MessageView(this.#app, message));
    this.#views = new Map(views.map((view) => [view.message.id, view]));
    const kept = views.length > 0 && this.#log.contains(views[0].element) && !other;
    // Elements that stay are not moved: they keep the focus and the selection.
    for (const child of [...this.#log.children]) if (!views.some((view) => view.element === child)) child.remove();
    views.forEach((view, i) => {
      if (this.#log.children[i] !== view.element) this.#log.insertBefore(view.element, this.#log.children[i] ?? null);
      if (kept) view.update();
    });
    this.#earlier.hidden = from === 0;
    this.#welcome.hidden = path.length > 0;
    if (this.#app.running !== undefined || !kept) this.#follows = true;
    if (this.#follows) this.#stick();
  }

  /** Shows what has come, once a frame. */
  messageChanged(message: Message): void {
    this.#changed.add(message.id);
    if (document.hidden) return this.#showChanged(); // there are no frames then
    this.#frame ||= requestAnimationFrame(() => this.#showChanged());
  }

  #showChanged(): void {
    this.#frame = 0;
    for (const id of this.#changed) {
      const view = this.#views.get(id);
      view?.update();
      if (view !== undefined) this.#speak(view.message);
    }
    this.#changed.clear();
    if (this.#follows) this.#stick();
  }

  /** Says the sentences that are complete. */
  #speak({ id, content, status }: Message): void {
    if (this.#spoken.id !== id) {
      if (status !== "running") return;
      this.#spoken = { id, to: content.length > 200 ? content.length : 0 };
    }
    const rest = content.slice(this.#spoken.to);
    const end = status === "running" ? /[^]*(?:[.!?:]\s|\n)/.exec(rest)?.[0].length ?? 0 : rest.length;
    if (end > 0) {
      this.#live.append(h("p", {}, rest.slice(0, end)));
      this.#spoken.to += end;
    }
    while (this.#live.childElementCount > 20) this.#live.firstElementChild!.remove();
    if (status !== "running") this.#spoken.id = "";
  }

  editLast(): void {
    const last = this.#app.path.findLast((message) => message.role === "user");
    if (last !== undefined) this.#views.get(last.id)?.edit();
  }

  #showEarlier(): void {
    if (this.#earlier.hidden) return;
    const { scrollHeight, scrollTop } = this.#scroller;
    this.#follows = false;
    this.#shown += BATCH;
    const { path } = this.#app;
    const from = Math.max(0, path.length - this.#shown);
    const first = this.#log.firstElementChild;
    for (const message of path.slice(from, path.length - this.#views.size)) {
      const view = new MessageView(this.#app, message);
      this.#views.set(message.id, view);
      this.#log.insertBefore(view.element, first);
    }
    this.#earlier.hidden = from === 0;
    this.#scroller.scrollTop = scrollTop + this.#scroller.scrollHeight - scrollHeight;
  }

  #stick(): void {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#down.hidden = true;
  }

  #toEnd(): void {
    this.#follows = true;
    this.#stick();
  }
}
