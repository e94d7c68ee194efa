/// <reference lib="dom" />
/**
 * The machine view: what lives where in bytes, the slots, the queue, rates and cache hits, once a second while it is shown.
 * @module
 */
import type { App } from "../app.ts";
import { formatBytes, formatNumber, h, svg } from "./h.ts";

/** The answer of /bloomery/machine. */
interface Machine {
  now_ms: number;
  model: {
    id: string;
    path: string;
    architecture: string;
    ftype?: string;
    n_params: number;
    size: number;
    n_ctx_train: number;
  };
  build: string;
  n_ctx: number;
  n_ubatch: number;
  plan: Plan | null;
  /** Null where all experts are in memory, or there are none. */
  experts: { hits: number; misses: number; read_bytes: number; wait_ms: number } | null;
  n_slots: number;
  slots: Slot[] | null;
  n_processing: number;
  n_waiting: number;
  counters: Counters;
}

interface Plan {
  device: { name: string; kind: string; memory_bytes: number; free_bytes: number };
  /** All that have a part of the model. */
  devices: { name: string; kind: string; free_bytes: number; total_bytes: number }[];
  weights: { name: string; bytes: number; n_tensors: number; types: string[] }[];
  caches: { kind: string; window: number; types: string[]; page_size: number; n_pages: number; bytes: number }[];
  pools: { slot_bytes: number; n_slots: number; n_expert: number; bytes: number }[];
  table_bytes: number;
  scratch_bytes: number;
  total_bytes: number;
}

interface Slot {
  id: number;
  is_processing: boolean;
  n_prompt_tokens: number;
  n_prompt_cached: number;
  n_decoded: number;
  n_cached: number;
}

interface Counters {
  n_prompt_tokens: number;
  n_generated_tokens: number;
  n_cached_tokens: number;
  n_steps: number;
  n_rows: number;
  n_busy: number;
}

const EVERY_MS = 1000;
/** Points of the curve: two minutes. */
const N_POINTS = 120;

export class MachineView {
  readonly element = h("main", { class: "machine", "aria-label": "Machine", tabindex: -1 });
  readonly #app: App;
  readonly #rates: { generated: number; prompt: number }[] = [];
  #last: Machine | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(app: App) {
    this.#app = app;
  }

  show(): void {
    clearTimeout(this.#timer);
    this.#tick();
  }

  hide(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#last = undefined;
  }

  async #tick(): Promise<void> {
    const timer = this.#timer = setTimeout(() => this.#tick(), EVERY_MS);
    if (document.hidden) return;
    const { model, models } = this.#app;
    const query = models.length > 1 && model !== undefined ? `?${new URLSearchParams({ model })}` : "";
    try {
      const machine = await this.#app.api.json<Machine>(`bloomery/machine${query}`);
      if (timer !== this.#timer) return; // hidden, or asked again
      this.#add(machine);
      this.#draw(machine);
    } catch (error) {
      if (timer !== this.#timer) return;
      this.element.replaceChildren(h("h1", {}, "Machine"), h("p", { class: "note error" }, (error as Error).message));
    }
  }

  #add(machine: Machine): void {
    const last = this.#last;
    this.#last = machine;
    if (last === undefined || machine.now_ms <= last.now_ms) return;
    const seconds = (machine.now_ms - last.now_ms) / 1000;
    const rate = (name: "n_generated_tokens" | "n_prompt_tokens") =>
      Math.max(0, (machine.counters[name] - last.counters[name]) / seconds);
    this.#rates.push({ generated: rate("n_generated_tokens"), prompt: rate("n_prompt_tokens") });
    if (this.#rates.length > N_POINTS) this.#rates.shift();
  }

  #draw(machine: Machine): void {
    const { model, counters: c, plan, experts } = machine;
    const now = this.#rates.at(-1);
    const asked = c.n_prompt_tokens + c.n_cached_tokens;
    const facts = [
      model.architecture,
      model.ftype,
      `${formatNumber(model.n_params / 1e6)} M parameters`,
      machine.build,
    ];
    this.element.replaceChildren(
      h("h1", {}, "Machine"),
      h("p", { class: "facts" }, h("strong", {}, model.id), " ", facts.filter((f) => f !== undefined).join(" · ")),
      h(
        "div",
        { class: "tiles" },
        tile("Generating", `${formatNumber(now?.generated ?? 0)}`, "tokens a second"),
        tile("Reading prompts", `${formatNumber(now?.prompt ?? 0)}`, "tokens a second"),
        tile(
          "Cache hits",
          asked === 0 ? "–" : `${(100 * c.n_cached_tokens / asked).toFixed(1)} %`,
          "of all prompt tokens",
        ),
        ...(experts === null ? [] : [
          tile(
            "Expert hits",
            experts.hits + experts.misses === 0
              ? "–"
              : `${(100 * experts.hits / (experts.hits + experts.misses)).toFixed(1)} %`,
            `${formatBytes(experts.read_bytes)} read, ${formatNumber(experts.wait_ms / 1000)} s waited`,
          ),
        ]),
        tile("Queue", String(machine.n_waiting), `waiting, ${machine.n_processing} of ${machine.n_slots} slots busy`),
        tile(
          "Steps",
          formatNumber(c.n_steps),
          c.n_steps === 0
            ? "none yet"
            : `${(c.n_rows / c.n_steps).toFixed(1)} rows each, of at most ${machine.n_ubatch}`,
        ),
      ),
      this.#curve(),
      ...(plan === null ? [] : drawPlan(plan)),
      ...(machine.slots === null ? [] : [h("h2", {}, "Slots"), this.#slots(machine, machine.slots)]),
    );
  }

  /** Tokens a second over the last two minutes. */
  #curve(): HTMLElement {
    const width = 600, height = 80;
    const most = Math.max(1, ...this.#rates.map((r) => r.generated));
    const x = (i: number) => width - (this.#rates.length - 1 - i) * width / (N_POINTS - 1);
    const points = this.#rates.map((r, i) =>
      `${x(i).toFixed(1)},${(height - 2 - r.generated / most * (height - 8)).toFixed(1)}`
    );
    const chart = svg(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        class: "curve",
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `Tokens a second, at most ${formatNumber(most)}`,
      },
      svg("polyline", { points: points.join(" "), "vector-effect": "non-scaling-stroke" }),
    );
    return h(
      "figure",
      { class: "chart" },
      chart as unknown as HTMLElement,
      h("figcaption", {}, `Tokens generated a second, last two minutes; top ${formatNumber(most)}`),
    );
  }

  #slots({ n_ctx }: Machine, slots: readonly Slot[]): HTMLElement {
    return h(
      "ul",
      { class: "slots" },
      ...slots.map((slot) => {
        const bar = h("span", { class: "fill" });
        bar.style.setProperty("--part", String(Math.min(1, slot.n_cached / n_ctx)));
        const what = slot.is_processing
          ? slot.n_decoded > 0 ? `${formatNumber(slot.n_decoded)} tokens generated` : "reading the prompt"
          : slot.n_cached > 0
          ? "idle, keeps its tokens"
          : "idle";
        return h(
          "li",
          { class: slot.is_processing ? "works" : "" },
          h("div", { class: "line" }, h("strong", {}, `Slot ${slot.id}`), h("span", {}, what)),
          bar,
          h(
            "small",
            {},
            `${formatNumber(slot.n_cached)} of ${formatNumber(n_ctx)} tokens held` +
              (slot.n_prompt_tokens > 0
                ? `; last prompt ${formatNumber(slot.n_prompt_tokens)}, ${
                  formatNumber(slot.n_prompt_cached)
                } from cache`
                : ""),
          ),
        );
      }),
    );
  }
}

function tile(name: string, value: string, what: string): HTMLElement {
  return h(
    "div",
    { class: "tile" },
    h("span", { class: "name" }, name),
    h("span", { class: "value" }, value),
    h("span", { class: "what" }, what),
  );
}

/** One bar of the parts, a thin one of their share of the devices' memory, and the parts as a table. */
function drawPlan({ devices, weights, pools, caches, table_bytes, scratch_bytes, total_bytes }: Plan): HTMLElement[] {
  const free_bytes = devices.reduce((n, d) => n + d.free_bytes, 0);
  const parts = [
    ...weights.map((w, i) => ({
      name: w.name,
      what: `${w.n_tensors} ${w.n_tensors === 1 ? "tensor" : "tensors"}, ${w.types.join(", ")}`,
      bytes: w.bytes,
      kind: `w${Math.min(i, 5)}`,
    })),
    ...pools.map((p) => ({
      name: "expert slots",
      what: `${formatNumber(p.n_slots)} of ${formatBytes(p.slot_bytes)}, for ${formatNumber(p.n_expert)} experts`,
      bytes: p.bytes,
      kind: "pool",
    })),
    ...caches.map((c) => ({
      name: c.kind === "state"
        ? "states"
        : c.kind === "window"
        ? `cache, window of ${formatNumber(c.window)}`
        : "cache",
      what: c.kind === "state"
        ? `${formatNumber(c.n_pages)} states, ${c.types.join(", ")}`
        : `${formatNumber(c.n_pages * c.page_size)} tokens, ${c.types.join(", ")}`,
      bytes: c.bytes,
      kind: "cache",
    })),
    { name: "scratch", what: "values of a step, at most", bytes: scratch_bytes, kind: "scratch" },
  ];
  const bar = h("div", { class: "plan", "aria-hidden": "true" });
  for (const { kind, bytes, name } of parts) {
    const piece = h("span", { class: kind, title: `${name}: ${formatBytes(bytes)}` });
    piece.style.setProperty("flex-grow", String(bytes / total_bytes));
    bar.append(piece);
  }
  const share = h("span", { class: "fill", "aria-hidden": "true" });
  share.style.setProperty("--part", String(Math.min(1, total_bytes / free_bytes)));
  const rows = parts.map(({ name, what, bytes, kind }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("span", { class: `key ${kind}` }), name),
      h("td", {}, what),
      h("td", { class: "number" }, formatBytes(bytes)),
    )
  );
  rows.push(
    h(
      "tr",
      { class: "sum" },
      h("th", { scope: "row" }, "total"),
      h("td", {}, `of ${formatBytes(free_bytes)} that were free`),
      h("td", { class: "number" }, formatBytes(total_bytes)),
    ),
  );
  for (const d of devices.length > 1 ? devices : []) {
    rows.push(h(
      "tr",
      {},
      h("th", { scope: "row" }, `on ${d.name}`),
      h("td", {}, `of ${formatBytes(d.free_bytes)} that were free`),
      h("td", { class: "number" }, formatBytes(d.total_bytes)),
    ));
  }
  if (table_bytes > 0) {
    rows.push(h(
      "tr",
      {},
      h("th", { scope: "row" }, "tables"),
      h("td", {}, "rows are read as tokens name them: not counted"),
      h("td", { class: "number" }, formatBytes(table_bytes)),
    ));
  }
  return [
    h("h2", {}, `What lives on ${devices.map((d) => d.name).join(" and ")}`),
    bar,
    share,
    h(
      "div",
      { class: "table" },
      h(
        "table",
        {},
        h("thead", { class: "hidden" }, h("tr", {}, h("th", {}, "Part"), h("th", {}, "What"), h("th", {}, "Bytes"))),
        h("tbody", {}, ...rows),
      ),
    ),
  ];
}
