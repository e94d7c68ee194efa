/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/**
 * One message: its text, reasoning, calls and files, and what can be done with it.
 * @module
 */
import type { App } from "../app.ts";
import type { Message, ToolCall } from "../chat/types.ts";
import { append, copyButton, formatNumber, h, icon, iconButton, toast } from "./h.ts";
import { MarkdownView } from "./mount.ts";
import { TokenView } from "./tokens.ts";

/** Files longer than this are shown up to here. */
const MAX_SHOWN = 20_000;

export class MessageView {
  readonly element: HTMLElement;
  readonly message: Message;
  readonly #app: App;
  readonly #body = h("div", { class: "body" });
  readonly #foot = h("div", { class: "actions", role: "group", "aria-label": "What to do with the message" });
  readonly #text = new MarkdownView();
  readonly #thoughts = new MarkdownView();
  readonly #reasoning: HTMLDetailsElement;
  readonly #summary = h("summary", {});
  readonly #calls = h("div", { class: "calls" });
  readonly #note = h("p", { class: "note" });
  #tokens = false;
  #editing = false;
  /** What the calls and the actions were made for: they are made again when this changes. */
  #made = "";

  constructor(app: App, message: Message) {
    this.#app = app;
    this.message = message;
    this.#reasoning = h("details", { class: "reasoning" }, this.#summary, this.#thoughts.element);
    const name = { user: "You", assistant: "Model", tool: "Result of a tool" }[message.role];
    this.element = h("article", { class: `message ${message.role}`, "aria-label": name }, this.#body, this.#foot);
    if (message.role === "assistant") this.#body.append(this.#reasoning, this.#text.element, this.#calls, this.#note);
    this.update();
  }

  /** Shows the message as it is now. */
  update(): void {
    if (this.#editing) return;
    const { message } = this, running = message.status === "running";
    this.element.setAttribute("aria-busy", String(running));
    if (message.role === "assistant") this.#updateAnswer(running);
    else this.#updateQuestion();
    const siblings = this.#app.tree.siblings(message);
    const made = [
      message.status,
      message.finish,
      siblings.length,
      siblings.indexOf(message),
      this.#tokens,
      this.#isLast,
    ].join();
    if (made === this.#made) return;
    this.#made = made;
    this.#foot.replaceChildren();
    append(this.#foot, this.#actions(siblings));
  }

  get #isLast(): boolean {
    return this.#app.chat?.leaf === this.message.id;
  }

  #updateAnswer(running: boolean): void {
    const { message } = this;
    this.element.classList.toggle("waiting", running && message.content === "" && message.calls.length === 0);
    this.#reasoning.hidden = message.reasoning === "";
    if (message.reasoning !== "") {
      const thinks = running && message.content === "" && message.calls.length === 0;
      this.#summary.textContent = thinks ? "Reasoning…" : "Reasoning";
      if (this.#reasoning.open || !running) this.#thoughts.update(message.reasoning, !running);
      else this.#reasoning.ontoggle = () => this.#thoughts.update(message.reasoning, message.status !== "running");
    }
    const tokens = this.#tokens && !running && message.tokens !== undefined;
    const shown = this.#body.querySelector(".token-view");
    this.#text.element.hidden = tokens;
    if (tokens && shown === null) {
      this.#text.element.after(
        new TokenView(message, (prefill, begin) => this.#app.goOnFrom(message, prefill, begin)).element,
      );
    } else if (!tokens) shown?.remove();
    this.#text.update(message.content, !running);
    this.#showCalls();
    const note = noteOf(message);
    this.#note.hidden = note === undefined;
    this.#note.textContent = note ?? "";
    this.#note.classList.toggle("error", message.status === "failed");
  }

  #updateQuestion(): void {
    const { message } = this;
    this.#body.replaceChildren();
    if (message.files.length > 0) {
      this.#body.append(h(
        "ul",
        { class: "files" },
        ...message.files.map(({ name, text }) => {
          const cut = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}\n…` : text;
          return h("li", {}, h("details", {}, h("summary", {}, icon("file"), name), h("pre", { tabindex: 0 }, cut)));
        }),
      ));
    }
    if (message.role === "tool") this.#body.append(h("div", { class: "label" }, "Result"));
    if (message.content !== "") {
      this.#body.append(h("div", { class: "plain-text", tabindex: 0 }, message.content));
    }
  }

  #showCalls(): void {
    const { calls, status } = this.message;
    const key = JSON.stringify([calls, status, this.#isLast]);
    if (this.#calls.dataset.key === key) return;
    this.#calls.dataset.key = key;
    const open = new Set(
      [...this.#calls.querySelectorAll("details[open]")].map((d) => (d as HTMLElement).dataset.call),
    );
    this.#calls.replaceChildren(...calls.map((call, i) =>
      h(
        "details",
        { class: "call", open: open.has(String(i)) || status === "done", "data-call": i },
        h("summary", {}, "Calls ", h("code", {}, call.name)),
        h("pre", { tabindex: 0 }, pretty(call)),
      )
    ));
    if (calls.length > 0 && status === "done" && this.#isLast) this.#calls.append(this.#resultForm(calls));
  }

  /** The page runs no tools: the user tells what they gave. */
  #resultForm(calls: readonly ToolCall[]): HTMLFormElement {
    const boxes = calls.map(({ name }) =>
      h("textarea", { rows: 2, "aria-label": `Result of ${name}`, placeholder: `Result of ${name}` })
    );
    return h(
      "form",
      {
        class: "results",
        onsubmit: (event) => {
          event.preventDefault();
          this.#app.answerCalls(this.message, boxes.map((box) => box.value));
        },
      },
      ...boxes,
      h("button", { class: "primary" }, "Send result"),
    );
  }

  #actions(siblings: readonly Message[]): (Node | undefined | false)[] {
    const { message } = this, app = this.#app, running = message.status === "running";
    const at = siblings.indexOf(message);
    const branches = siblings.length > 1 && h(
      "span",
      { class: "branches" },
      iconButton("left", "Previous version", () => app.show(siblings[at - 1]), { disabled: at === 0 }),
      h("span", { "aria-label": `Version ${at + 1} of ${siblings.length}` }, `${at + 1} / ${siblings.length}`),
      iconButton("chevron", "Next version", () => app.show(siblings[at + 1]), { disabled: at === siblings.length - 1 }),
    );
    if (running) return [branches];
    const copy = copyButton("Copy message", () => message.content);
    const branch = iconButton("branch", "Branch into a new chat", async () => {
      const chat = await app.copyBranch(message);
      location.hash = `#/chat/${chat.id}`;
      toast("Branched into a new chat");
    });
    const edit = message.role !== "tool" && iconButton("edit", "Edit", () => this.edit());
    if (message.role !== "assistant") return [branches, copy, edit, branch];
    const early = message.status === "stopped" || message.status === "cut" || message.finish === "length";
    return [
      branches,
      copy,
      iconButton("retry", "Retry: another answer", () => app.retry(message)),
      early && message.calls.length === 0 && iconButton("go", "Continue the answer", () => app.goOn(message)),
      message.tokens !== undefined && iconButton("probability", "Probabilities of the tokens", () => {
        this.#tokens = !this.#tokens;
        this.update();
      }, { "aria-pressed": String(this.#tokens) }),
      edit,
      branch,
      message.stats !== undefined && h("span", { class: "stats" }, statsText(message)),
    ];
  }

  /** Lets the user change the text. */
  edit(): void {
    if (this.#editing || this.message.status === "running") return;
    this.#editing = true;
    const { message } = this, asks = message.role === "user";
    const box = h("textarea", {
      "aria-label": "Edit the message",
      rows: Math.min(16, message.content.split("\n").length + 1),
    });
    box.value = message.content;
    const before = [...this.#body.childNodes];
    const close = () => {
      this.#editing = false;
      this.#body.replaceChildren(...before);
      this.update();
    };
    const save = () => {
      close();
      if (asks) this.#app.editQuestion(message, box.value);
      else this.#app.editAnswer(message, box.value);
    };
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    });
    const buttons = h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", class: "plain", onclick: close }, "Cancel"),
      h("button", { type: "button", class: "primary", onclick: save }, asks ? "Ask again" : "Save as a version"),
    );
    this.#body.replaceChildren(h("div", { class: "edit" }, box, buttons));
    box.focus();
  }
}

/** What there is to say about how an answer ended. */
function noteOf({ status, error, finish }: Message): string | undefined {
  switch (status) {
    case "failed":
      return error ?? "The answer failed";
    case "stopped":
      return "Stopped";
    case "cut":
      return `${error ?? "The answer was interrupted"}. What came is here; it can be continued.`;
    case "running":
      return undefined;
    case "done":
      return finish === "length" ? "The limit of tokens ended the answer" : undefined;
  }
}

function pretty({ arguments: text }: ToolCall): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text; // not complete yet
  }
}

function statsText({ stats, model }: Message): string {
  const { n_predicted, predicted_rate, n_prompt, n_cached } = stats!;
  const parts = [`${formatNumber(n_predicted)} tokens`];
  if (predicted_rate > 0) parts.push(`${formatNumber(predicted_rate)}/s`);
  parts.push(`prompt ${formatNumber(n_prompt)}${n_cached > 0 ? `, ${formatNumber(n_cached)} cached` : ""}`);
  if (model !== undefined && model !== "") parts.push(model);
  return parts.join(" · ");
}
