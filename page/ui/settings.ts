/// <reference lib="dom" />
/**
 * The panel of a chat's settings: system prompt, sampler, reasoning, probabilities, tools. Empty fields are the server's.
 * @module
 */
import type { App } from "../app.ts";
import type { Settings } from "../chat/types.ts";
import { shortcutsDialog } from "./dialog.ts";
import { h, iconButton, toast } from "./h.ts";

interface NumberField {
  readonly name: keyof Settings;
  readonly label: string;
  readonly help: string;
  readonly min?: number;
  readonly max?: number;
  readonly step: number;
  /** Its name in /props. */
  readonly prop?: string;
}

const SAMPLER: readonly NumberField[] = [
  {
    name: "temperature",
    label: "Temperature",
    help: "Spread of the choice; 0 takes the likeliest token",
    min: 0,
    step: 0.05,
  },
  { name: "top_k", label: "Top k", help: "Choose among so many tokens; 0 = all", min: 0, step: 1 },
  {
    name: "top_p",
    label: "Top p",
    help: "Among tokens that have this probability together",
    min: 0,
    max: 1,
    step: 0.01,
  },
  { name: "min_p", label: "Min p", help: "Drop tokens below this share of the best", min: 0, max: 1, step: 0.01 },
  { name: "repeat_penalty", label: "Repeat penalty", help: "1 = off", min: 0.01, step: 0.01 },
  { name: "presence_penalty", label: "Presence penalty", help: "0 = off", step: 0.1 },
  { name: "frequency_penalty", label: "Frequency penalty", help: "0 = off", step: 0.1 },
  { name: "seed", label: "Seed", help: "The same seed gives the same answer; -1 = a fresh one", step: 1 },
  {
    name: "max_tokens",
    label: "Most tokens",
    help: "Of an answer; -1 = as many as fit",
    min: -1,
    step: 1,
    prop: "n_predict",
  },
];
const REASONING: NumberField = {
  name: "reasoning_budget_tokens",
  label: "Most tokens of reasoning",
  help: "0 = none, -1 = no limit",
  min: -1,
  step: 1,
};
const PROBABILITIES: NumberField = {
  name: "n_probs",
  label: "Rivals of each token",
  help: "How many to ask for; 0 = no probabilities",
  min: 0,
  max: 20,
  step: 1,
};

export class SettingsPanel {
  readonly element: HTMLElement;
  readonly #app: App;
  readonly #form = h("div", { class: "form" });

  constructor(app: App, close: () => void) {
    this.#app = app;
    this.element = h(
      "aside",
      { class: "panel", "aria-label": "Settings of this chat", hidden: true },
      h("header", {}, h("h2", {}, "Settings"), iconButton("close", "Close the settings", close)),
      this.#form,
    );
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  toggle(open: boolean): void {
    this.element.hidden = !open;
    if (!open) return;
    this.update();
    this.#form.querySelector("textarea")?.focus();
  }

  /** Shows the settings in force. */
  update(): void {
    if (this.element.hidden) return;
    const { system, settings } = this.#app.options;
    this.#form.replaceChildren(
      this.#text(
        "System prompt",
        "What the model is told before the conversation",
        system,
        5,
        (value) => this.#app.setOptions({ system: value }),
      ),
      h("h3", {}, "Sampler"),
      h("div", { class: "grid" }, ...SAMPLER.map((field) => this.#number(field, settings))),
      h("h3", {}, "Reasoning"),
      this.#reasoning(settings),
      this.#number(REASONING, settings),
      h("h3", {}, "Probabilities"),
      this.#number(PROBABILITIES, settings),
      h("h3", {}, "Request"),
      this.#text(
        "Tools",
        "JSON: OpenAI's list of functions. You give their results by hand",
        settings.tools ?? "",
        3,
        (value) => this.#set("tools", value),
      ),
      this.#text(
        "Further fields",
        'JSON object added to each request, such as {"xtc_probability": 0.5}',
        settings.extra ?? "",
        2,
        (value) => this.#set("extra", value),
      ),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: "plain", onclick: () => this.#reset() }, "Reset"),
        h("button", {
          type: "button",
          class: "plain",
          onclick: () => {
            this.#app.keepAsDefault();
            toast("New chats begin with these settings");
          },
        }, "Use for new chats"),
      ),
      h("h3", {}, "This browser"),
      h(
        "div",
        { class: "buttons" },
        h("button", {
          type: "button",
          class: "plain",
          disabled: !this.#app.api.hasKey,
          onclick: () => {
            this.#app.api.forgetKey();
            toast("The API key is gone from this browser");
            this.update();
          },
        }, "Forget the API key"),
        h("button", { type: "button", class: "plain", onclick: () => shortcutsDialog() }, "Keyboard"),
      ),
    );
  }

  #set<K extends keyof Settings>(name: K, value: Settings[K] | undefined): void {
    const settings = { ...this.#app.options.settings };
    if (value === undefined || value === "") delete settings[name];
    else settings[name] = value;
    this.#app.setOptions({ settings });
  }

  async #reset(): Promise<void> {
    await this.#app.setOptions({ system: "", settings: {} });
    this.update();
  }

  #number({ name, label, help, min, max, step, prop }: NumberField, settings: Settings): HTMLElement {
    const params = this.#app.props?.default_generation_settings?.params;
    const own = params?.[prop ?? name];
    const input = h("input", {
      type: "number",
      id: `set-${name}`,
      value: settings[name] ?? "",
      // The server's floats have 32 bits: 0.1 is told as 0.10000000149.
      placeholder: typeof own === "number" ? String(Number(own.toPrecision(6))) : "",
      min,
      max,
      step: step === 1 ? 1 : "any",
      "aria-describedby": `help-${name}`,
      onchange: () => {
        if (!input.reportValidity()) return;
        this.#set(name, input.value === "" ? undefined : Number(input.value));
      },
    });
    return h(
      "div",
      { class: "field" },
      h("label", { for: `set-${name}` }, label),
      input,
      h("small", { id: `help-${name}` }, help),
    );
  }

  #text(label: string, help: string, value: string, rows: number, change: (value: string) => void): HTMLElement {
    const id = `set-${label.toLowerCase().replace(/\W/g, "-")}`;
    const box = h("textarea", {
      id,
      rows,
      spellcheck: "false",
      "aria-describedby": `${id}-help`,
      onchange: () => change(box.value),
    });
    box.value = value;
    return h("div", { class: "field" }, h("label", { for: id }, label), box, h("small", { id: `${id}-help` }, help));
  }

  #reasoning(settings: Settings): HTMLElement {
    const options: [string, string][] = [["", "As the model does"], ["on", "On"], ["off", "Off"]];
    const select = h("select", {
      id: "set-reasoning",
      onchange: () => this.#set("reasoning", select.value === "" ? undefined : select.value as "on" | "off"),
    }, ...options.map(([value, text]) => h("option", { value, selected: (settings.reasoning ?? "") === value }, text)));
    return h("div", { class: "field" }, h("label", { for: "set-reasoning" }, "Reasoning"), select);
  }
}
