/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/**
 * The page: puts its parts together, and listens to the address and the keyboard.
 * @module
 */
import { App } from "./app.ts";
import { Api, HttpError } from "./net/api.ts";
import { openStore } from "./store/database.ts";
import { Composer } from "./ui/composer.ts";
import { Conversation } from "./ui/conversation.ts";
import { keyDialog, shortcutsDialog } from "./ui/dialog.ts";
import { h, iconButton, toast } from "./ui/h.ts";
import { MachineView } from "./ui/machine.ts";
import { SettingsPanel } from "./ui/settings.ts";
import { Sidebar } from "./ui/sidebar.ts";

/** Between two questions to a server that loads its model. */
const LOADING_MS = 1000;

const api = new Api(location.href);
api.askKey = keyDialog;
const app = new App(api, await openStore());

const closeSide = () => root.classList.remove("side-open");
const sidebar = new Sidebar(app, {
  close: closeSide,
  exportAll: async () => download("bloomery-chats.json", await app.export()),
  importFile: () => picker.click(),
});
const picker = h("input", { type: "file", accept: "application/json,.json", hidden: true, id: "import" });
picker.addEventListener("change", async () => {
  const [file] = picker.files!;
  picker.value = "";
  if (file === undefined) return;
  try {
    const n = await app.import(await file.text());
    toast(`${n} ${n === 1 ? "chat" : "chats"} imported`);
  } catch (error) {
    toast(`Cannot import ${file.name}: ${(error as Error).message}`);
  }
});

const welcome = h(
  "div",
  { class: "welcome" },
  h("span", { class: "ember big", "aria-hidden": "true" }),
  h("h1", {}, "What shall we forge?"),
  h("p", { id: "about" }, "Chats stay in this browser. Enter sends, Shift + Enter begins a new line."),
);
const conversation = new Conversation(app, welcome);
const composer = new Composer(app, () => conversation.editLast());
const settings = new SettingsPanel(app, () => toggleSettings(false));
const settingsButton = iconButton("gear", "Settings of this chat", () => toggleSettings(!settings.isOpen), {
  "aria-expanded": "false",
});
const machine = new MachineView(app);
const title = h("h1", { class: "title" });
const models = h("select", { "aria-label": "Model", hidden: true, onchange: () => app.model = models.value });
const banner = h("div", { class: "banner", role: "status", hidden: true });
const exportButton = iconButton("download", "Export this chat", async () => {
  if (app.chat !== undefined) {
    download(
      `${app.chat.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40) || "chat"}.json`,
      await app.export(app.chat),
    );
  }
});
const chatView = h("main", { class: "chat", "aria-label": "Chat" }, conversation.element, composer.element);
const root = h(
  "div",
  { class: "app" },
  h(
    "a",
    { href: "#message", class: "skip", onclick: (event) => (event.preventDefault(), composer.focus()) },
    "Skip to the message box",
  ),
  sidebar.element,
  h("div", { class: "shade", onclick: closeSide }),
  h(
    "div",
    { class: "page" },
    h(
      "header",
      { class: "top" },
      iconButton("menu", "Chats", () => root.classList.add("side-open"), { class: "quiet only-phone" }),
      title,
      models,
      exportButton,
      settingsButton,
    ),
    banner,
    chatView,
    machine.element,
  ),
  settings.element,
  picker,
  h("div", { id: "toasts", role: "status", "aria-live": "polite" }),
);
document.body.append(root);

function toggleSettings(open: boolean): void {
  settings.toggle(open);
  settingsButton.setAttribute("aria-expanded", String(open));
  if (!open) settingsButton.focus();
}

function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Shows what the address names: a chat, the machine, or a new chat. */
async function route(): Promise<void> {
  const [, view, id] = location.hash.split("/");
  const isMachine = view === "machine";
  machine.element.hidden = !isMachine;
  chatView.hidden = isMachine;
  root.classList.toggle("on-machine", isMachine);
  closeSide();
  if (isMachine) machine.show();
  else {
    machine.hide();
    const wanted = view === "chat" ? id : undefined;
    if (wanted !== app.chat?.id || wanted === undefined) await app.open(wanted);
    if (matchMedia("(hover: hover)").matches) composer.focus(); // a phone's keyboard would cover the chat
  }
  showTitle();
  sidebar.update();
}

function showTitle(): void {
  const name = machine.element.hidden ? app.chat?.title || "New chat" : "Machine";
  title.textContent = name;
  document.title = `${name} – bloomery`;
  exportButton.hidden = app.chat === undefined || !machine.element.hidden;
  settingsButton.hidden = !machine.element.hidden;
}

app.listen((change) => {
  switch (change.kind) {
    case "message":
      conversation.messageChanged(change.message);
      break;
    case "chat":
      conversation.update();
      settings.update();
      // A new chat gets its address with its first message.
      if (app.chat !== undefined && machine.element.hidden && !location.hash.endsWith(app.chat.id)) {
        history.replaceState(null, "", `#/chat/${app.chat.id}`);
      }
      break;
    case "chats":
      sidebar.update();
      showTitle();
      break;
    case "server":
      models.replaceChildren(...app.models.map(({ id }) => h("option", { value: id, selected: id === app.model }, id)));
      models.hidden = app.models.length < 2;
      settings.update();
      break;
  }
  composer.update();
});

addEventListener("hashchange", route);
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer?.files.length) composer.attach(event.dataTransfer.files);
});
addEventListener("keydown", (event) => {
  const { key } = event, command = event.ctrlKey || event.metaKey;
  const typing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (document.querySelector("dialog[open]") !== null) return;
  if (command && key.toLowerCase() === "k") {
    event.preventDefault();
    if (matchMedia("(max-width: 760px)").matches) root.classList.add("side-open");
    sidebar.focusSearch();
  } else if (command && event.shiftKey && key.toLowerCase() === "o") {
    event.preventDefault();
    location.hash = "#/";
  } else if (key === "Escape") {
    if (root.classList.contains("side-open")) closeSide();
    else if (settings.isOpen) toggleSettings(false);
    else if (app.running !== undefined) app.runs.stop(app.running.id);
    composer.focus();
  } else if (key === "/" && !typing) {
    event.preventDefault();
    composer.focus();
  } else if (key === "?" && !typing) shortcutsDialog();
});

/** Asks the server until its model is loaded. */
async function connect(): Promise<void> {
  for (;;) {
    try {
      await app.loadServer();
      banner.hidden = true;
      return;
    } catch (error) {
      const loading = error instanceof HttpError && error.status === 503;
      banner.textContent = loading
        ? "The server loads its model…"
        : error instanceof HttpError
        ? error.message
        : "The server cannot be reached. Trying again…";
      banner.hidden = false;
      if (error instanceof HttpError && !loading) return; // no key: the next message asks again
      await new Promise((resolve) => setTimeout(resolve, LOADING_MS));
    }
  }
}

if (!app.store.keeps) toast("This browser keeps no data for this page: chats will be gone with it");
await app.load();
await route();
await connect();
