/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
/**
 * Makes the page's own elements. Texts become text nodes: nothing here reads HTML.
 * @module
 */

type Child = Node | string | undefined | false;
type Listeners = { [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K]) => void };
/** Attributes, with listeners under `onclick` and the like. False and undefined leave an attribute out, true gives an empty one. */
export type Props = Listeners & { [name: string]: unknown };

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value as EventListener);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

export function append(node: Element, children: readonly Child[]): void {
  for (const child of children) if (child !== undefined && child !== false) node.append(child);
}

/** Strokes on a field of 24 by 24. */
const ICONS = {
  attach: "M20 11.5 12.3 19a5 5 0 0 1-7-7l8-8a3.3 3.3 0 0 1 4.7 4.7l-8 8a1.7 1.7 0 0 1-2.4-2.4l7.2-7.2",
  branch: "M6 4v9a4 4 0 0 0 4 4h7M14 13.5 17.5 17 14 20.5M6 4h0",
  check: "m5 12.5 4.5 4.5L19 7.5",
  chevron: "m9 6 6 6-6 6",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h10v11H9zM5 15V4h10",
  down: "M12 5v14m-6-6 6 6 6-6",
  download: "M12 4v11m-5-5 5 5 5-5M5 20h14",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  gear: "M4 7h9m4 0h3M4 17h3m4 0h9M15 4.5v5M9 14.5v5",
  go: "M8 5v14l11-7z",
  left: "m15 6-6 6 6 6",
  machine: "M4 6h16v5H4zM4 13h16v5H4zM7 8.5h.01M7 15.5h.01",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  plus: "M12 5v14M5 12h14",
  probability: "M5 20v-6m5 6V9m5 11V4m5 16v-8",
  retry: "M19 12a7 7 0 1 1-2-5l2 2M19 4.5V9h-4.5",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM20 20l-4.8-4.8",
  send: "M12 19V5m-6 6 6-6 6 6",
  stop: "M7 7h10v10H7z",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
} as const;
export type Icon = keyof typeof ICONS;
const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, attributes: Record<string, string | number>, ...children: Element[]): SVGElement {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

export function icon(name: Icon): SVGElement {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** A button with a picture; `label` is what it does, shown on hover and read out. */
export function iconButton(
  name: Icon,
  label: string,
  onclick: (event: MouseEvent) => void,
  props: Props = {},
): HTMLButtonElement {
  return h(
    "button",
    { type: "button", class: "quiet", "aria-label": label, title: label, onclick, ...props },
    icon(name),
  );
}

/** Says something for a moment, to eyes and ears. */
export function toast(text: string): void {
  const place = document.getElementById("toasts")!;
  const note = h("div", { class: "toast" }, text);
  place.append(note);
  setTimeout(() => note.remove(), 4000);
}

/** Copies a text; browsers have the clipboard only for pages of this machine or over TLS. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A button that copies and says so. */
export function copyButton(label: string, text: () => string): HTMLButtonElement {
  const button = iconButton("copy", label, async () => {
    if (!await copyText(text())) return toast("This browser does not let the page copy");
    button.replaceChildren(icon("check"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

export function formatBytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function formatNumber(n: number): string {
  return n.toLocaleString("en", { maximumFractionDigits: n < 100 ? 1 : 0 });
}
