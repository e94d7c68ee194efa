/// <reference lib="dom" />
/**
 * Questions to the user, in the browser's own modal dialogs: they keep the keyboard inside and end with Escape.
 * @module
 */
import { h } from "./h.ts";

/** Shows a dialog until it is closed; gives the value of the button that closed it, "" for Escape. */
function show(title: string, ...content: (Node | string)[]): Promise<string> {
  const heading = h("h2", { id: "dialog-title" }, title);
  const form = h("form", { method: "dialog" }, heading, ...content);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    dialog.showModal();
  });
}

function buttons(action: string, danger = false): HTMLElement {
  return h(
    "div",
    { class: "buttons" },
    // No submit button: the first of those is what Enter presses.
    h("button", {
      type: "button",
      class: "plain",
      onclick: (event) => (event.target as Element).closest("dialog")!.close(""),
    }, "Cancel"),
    h("button", { value: "ok", class: danger ? "danger" : "primary" }, action),
  );
}

export async function confirmDialog(title: string, text: string, action: string): Promise<boolean> {
  return await show(title, h("p", {}, text), buttons(action, true)) === "ok";
}

/** Asks for a line of text. */
export async function promptDialog(
  title: string,
  label: string,
  value: string,
  action: string,
): Promise<string | undefined> {
  const input = h("input", { type: "text", value, required: true, autofocus: true, "aria-label": label });
  return await show(title, input, buttons(action)) === "ok" ? input.value.trim() : undefined;
}

/** Asks for the server's key. */
export async function keyDialog(wasWrong: boolean): Promise<{ key: string; keep: boolean } | undefined> {
  const key = h("input", {
    type: "password",
    required: true,
    autofocus: true,
    autocomplete: "off",
    id: "key",
    "aria-describedby": "key-help",
  });
  const keep = h("input", { type: "checkbox", id: "keep" });
  const help = wasWrong
    ? "The server refused this key."
    : "This server answers only requests that carry one of its keys.";
  const answer = await show(
    "API key",
    h("p", { id: "key-help", class: wasWrong ? "wrong" : "" }, help),
    h("label", { for: "key" }, "Key"),
    key,
    h("label", { class: "check" }, keep, "Keep it in this browser, until I remove it in the settings"),
    buttons("Use key"),
  );
  return answer === "ok" && key.value.trim() !== "" ? { key: key.value.trim(), keep: keep.checked } : undefined;
}

export async function shortcutsDialog(): Promise<void> {
  const rows: [string, string][] = [
    ["Enter", "send"],
    ["Shift + Enter", "new line"],
    ["Escape", "stop the answer, close a panel"],
    ["↑ in an empty box", "edit the last message"],
    ["Ctrl + K", "search chats"],
    ["Ctrl + Shift + O", "new chat"],
    ["/", "go to the message box"],
    ["← → on a token", "the token beside it, in the probabilities view"],
    ["?", "this list"],
  ];
  const list = h(
    "dl",
    { class: "keys" },
    ...rows.flatMap(([k, what]) => [h("dt", {}, h("kbd", {}, k)), h("dd", {}, what)]),
  );
  await show("Keyboard", list, h("div", { class: "buttons" }, h("button", { value: "ok", class: "primary" }, "Close")));
}
