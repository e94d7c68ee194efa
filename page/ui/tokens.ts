/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/**
 * The probabilities view: an answer token by token, each with its rivals. Choosing a rival goes on from there.
 * @module
 */
import { type Prefill, TokenPlaces, tokenText } from "../chat/token_places.ts";
import type { Message, Rival, TokenRecord } from "../chat/types.ts";
import { h } from "./h.ts";

/** Called with what the new answer begins with, and its tokens. */
export type Choose = (prefill: Prefill, tokens: TokenRecord[]) => void;

/** A colour from sure to doubtful, in steps that the style sheet has. */
function shade(logprob: number): string {
  const p = Math.exp(logprob);
  return p >= 0.9 ? "p5" : p >= 0.7 ? "p4" : p >= 0.45 ? "p3" : p >= 0.2 ? "p2" : "p1";
}

function percent(logprob: number): string {
  const p = Math.exp(logprob) * 100;
  return p >= 99.95 ? "100 %" : p >= 10 ? `${p.toFixed(1)} %` : p >= 0.01 ? `${p.toFixed(2)} %` : "< 0.01 %";
}

/** White space in a form that one sees. */
function visible(text: string): string {
  return text === "" ? "∅" : text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

export class TokenView {
  readonly element: HTMLElement;
  readonly #message: Message;
  readonly #choose: Choose;
  readonly #panel = h("div", { class: "rivals", role: "group", "aria-label": "Rivals of the token" });
  readonly #places: TokenPlaces;
  readonly #spans: HTMLElement[] = [];
  #current = 0;

  constructor(message: Message, choose: Choose) {
    this.#message = message;
    this.#choose = choose;
    this.#places = new TokenPlaces(message);
    const list = h("div", {
      class: "tokens",
      role: "listbox",
      "aria-label": "Tokens of the answer; arrows move, Enter goes to the rivals",
      onkeydown: (event) => this.#key(event),
      onmouseover: (event) => this.#over(event),
      onclick: (event) => this.#over(event),
    });
    (message.tokens ?? []).forEach((token, i) => {
      const span = h("span", {
        class: `token ${shade(token.logprob)}`,
        role: "option",
        "data-at": i,
        tabindex: i === 0 ? 0 : -1,
        "aria-selected": "false",
        "aria-label": `${tokenText(token)}, ${percent(token.logprob)}`,
      }, tokenText(token));
      span.addEventListener("focus", () => this.#select(i));
      this.#spans.push(span);
      list.append(span);
    });
    this.element = h("div", { class: "token-view" }, list, this.#panel);
    this.#panel.append(h("p", { class: "hint" }, "Point at a token to see what else could have stood there."));
  }

  #over({ target }: MouseEvent): void {
    const at = target instanceof HTMLElement ? target.dataset.at : undefined;
    if (at !== undefined) this.#select(Number(at));
  }

  #key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.#spans[Math.min(this.#spans.length - 1, Math.max(0, this.#current + step))]?.focus();
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.#panel.querySelector("button")?.focus();
    }
  }

  #select(i: number): void {
    const before = this.#spans[this.#current];
    before.setAttribute("aria-selected", "false");
    before.tabIndex = -1;
    this.#current = i;
    this.#spans[i].setAttribute("aria-selected", "true");
    this.#spans[i].tabIndex = 0;
    const token = this.#message.tokens![i];
    const others = token.top.some((rival) => rival.id === token.id) ? token.top : [token, ...token.top];
    this.#panel.replaceChildren(
      h("p", { class: "hint" }, "Token ", h("code", {}, visible(tokenText(token))), `, ${percent(token.logprob)}`),
      h("ul", {}, ...others.map((rival) => this.#rival(i, token, rival))),
    );
  }

  #rival(i: number, token: TokenRecord, rival: Rival): HTMLLIElement {
    const text = visible(tokenText(rival)), chosen = rival.id === token.id;
    const prefill = chosen ? undefined : this.#places.prefill(i, rival);
    const bar = h("span", { class: "bar" });
    bar.style.setProperty("--part", String(Math.exp(rival.logprob)));
    const content = [bar, h("code", {}, text), h("span", { class: "percent" }, percent(rival.logprob))];
    if (prefill === undefined) {
      return h("li", { class: chosen ? "chosen" : "" }, h("span", { class: "rival" }, ...content));
    }
    const onclick = () => {
      const tokens = [...this.#message.tokens!.slice(0, i), { ...rival, top: token.top }];
      this.#choose(prefill, tokens);
    };
    const title = `Go on from ${text} instead`;
    return h(
      "li",
      {},
      h("button", {
        type: "button",
        class: "rival",
        title,
        "aria-label": `${title}, ${percent(rival.logprob)}`,
        onclick,
      }, ...content),
    );
  }
}
