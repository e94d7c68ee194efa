/**
 * From settings to a placement: which device has which layers, and which weights lie elsewhere than their layer.
 * @module
 */
import { PlanError } from "../errors.ts";
import type { Placement, PlaceOverride } from "../program/place.ts";

/** Neighbouring layers on one device. */
export interface LayerRun {
  /** Index of the device. */
  readonly device: number;
  /** How many; left out by the last run, which has the rest. */
  readonly layers?: number;
}

/** Where a user wants a model's weights. */
export interface PlaceOptions {
  /** Runs of layers, the first layer first; what comes behind the last layer is on the last run's device. */
  readonly split?: readonly LayerRun[];
  /**
   * So many of the last layers are shared out over devices, the others are on the host. What comes behind the last layer counts as
   * one. Not beside `split`.
   */
  readonly last?: { readonly layers: number; readonly devices: readonly DeviceShare[] };
  /** Where `device` is a card and too small, it gets what fits, and the host the rest. Not beside `split` and `last`. */
  readonly spread?: boolean;
  /** Of so many first layers the routed experts are on the host. */
  readonly hostExperts?: number;
  /** Of so many first layers the matrices of feed-forward blocks are on the host. */
  readonly hostFeedForward?: number;
  /** Weights that are elsewhere than their layer; the first that fits decides, before `hostExperts`. */
  readonly overrides?: readonly PlaceOverride[];
}

/** A device and how much of the layers it has, in relation to the others. */
export interface DeviceShare {
  /** Index of the device. */
  readonly device: number;
  /** Any number above 0. */
  readonly share: number;
}

/** Names of tensors of the first `n` layers. */
function ofLayers(n: number, rest: string): RegExp {
  return new RegExp(`^blk\\.(?:${Array.from({ length: n }, (_, il) => il).join("|")})\\.${rest}`);
}

/** Names of routed experts of the first `n` layers, their biases and scales included. */
export function expertsOf(n: number): RegExp {
  return ofLayers(n, "\\w+_\\w*exps\\.");
}

/** Runs as `--place` takes them. */
export function splitText(split: readonly LayerRun[]): string {
  return split.map((r) => r.layers === undefined ? `${r.device}` : `${r.device}:${r.layers}`).join(",");
}

/** Runs of the last `n` of the layers and what is behind them, shared out over devices. */
function lastLayers(n: number, devices: readonly DeviceShare[], n_layer: number): LayerRun[] {
  const wanted = Math.min(n, n_layer + 1), first = n_layer + 1 - wanted;
  const total = devices.reduce((sum, d) => sum + d.share, 0);
  const runs: LayerRun[] = [{ device: 0, layers: first }];
  if (first > n_layer) return [{ device: 0 }];
  let sum = 0, at = first;
  for (const { device, share } of devices) {
    sum += share;
    // What is behind the last layer is shared out as a layer, and is the last device's in any case.
    const end = Math.min(n_layer, first + Math.round(wanted * sum / total));
    runs.push({ device, layers: end - at });
    at = end;
  }
  const used = runs.filter((r) => r.layers! > 0), { device } = devices[devices.length - 1];
  return used.at(-1)?.device === device ? [...used.slice(0, -1), { device }] : [...used, { device, layers: 0 }];
}

/** The layers' devices. @throws {PlanError} `plan.layers` */
function layersOf(split: readonly LayerRun[], n_layer: number): number[] {
  const layers: number[] = [];
  split.forEach((run, i) => {
    const n = run.layers ?? (i === split.length - 1 ? n_layer - layers.length : 0);
    for (let k = 0; k < n; k++) layers.push(run.device);
  });
  if (layers.length === n_layer) return layers;
  const given = split.reduce((n, r) => n + (r.layers ?? 0), 0);
  throw new PlanError(
    "plan.layers",
    `Cannot split the model as ${splitText(split)}: these are ${given} layers, it has ${n_layer}`,
    {
      at: { got: given, expected: n_layer },
      hint: "leave the last number out: that device has the rest",
    },
  );
}

/**
 * @param device That has what the options do not place.
 * @throws {PlanError} `plan.layers` when the runs do not have as many layers as the model
 */
export function placementFor(options: PlaceOptions, n_layer: number, device: number): Placement {
  const { last } = options;
  const split = options.split ?? (last ? lastLayers(last.layers, last.devices, n_layer) : [{ device }]);
  const n_experts = Math.min(options.hostExperts ?? 0, n_layer);
  const n_forward = Math.min(options.hostFeedForward ?? 0, n_layer);
  const overrides = [
    ...options.overrides ?? [],
    ...n_experts > 0 ? [{ pattern: expertsOf(n_experts), device: 0 }] : [],
    ...n_forward > 0 ? [{ pattern: ofLayers(n_forward, "ffn_(?:up|down|gate|gate_up)\\."), device: 0 }] : [],
  ];
  return { layers: layersOf(split, n_layer), output: split[split.length - 1].device, overrides };
}

/**
 * What of a model a card can hold: all of it, else the trunk with the experts of as many last layers as fit, else as many last
 * layers without their experts, else nothing. The host has the rest.
 * @param fits Whether the plan of a placement fits all its devices.
 */
export function spreadOver(
  card: number,
  n_layer: number,
  hasExperts: boolean,
  fits: (place: PlaceOptions) => boolean,
): PlaceOptions {
  /** The least number in [1, most] that fits, where all above it do too. */
  const least = (most: number, place: (n: number) => PlaceOptions): PlaceOptions | undefined => {
    if (!fits(place(most))) return undefined;
    let low = 0, high = most;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (fits(place(middle))) high = middle;
      else low = middle;
    }
    return place(high);
  };
  const whole: PlaceOptions = { split: [{ device: card }] };
  if (fits(whole)) return whole;
  const withoutExperts = (n: number) => ({ ...whole, hostExperts: n });
  const layersOnHost = (n: number): PlaceOptions => ({
    split: n === n_layer
      ? [{ device: 0, layers: n }, { device: card, layers: 0 }]
      : [{ device: 0, layers: n }, { device: card }],
    ...hasExperts ? { hostExperts: n_layer } : {},
  });
  return (hasExperts ? least(n_layer, withoutExperts) : undefined) ?? least(n_layer, layersOnHost) ??
    { split: [{ device: 0 }] };
}

/** Placements that leave less and less to some device: what a refusal may propose. */
export interface OtherPlaces {
  /** The last is `at(most)`; the first, nearest to what was asked for, `at(1)`. */
  readonly most: number;
  at(n: number): { readonly flag: string; readonly place: PlaceOptions };
}

/**
 * Placements near one that does not fit: layers moved from a device to its neighbour, more experts on the host, fewer layers on the card.
 * @param device That has what the options do not place; 0: the host, for which there are none.
 */
export function placesNear(place: PlaceOptions, n_layer: number, hasExperts: boolean, device: number): OtherPlaces[] {
  const { split, last, hostExperts = 0 } = place;
  if (split && split.length > 1) {
    const before = (i: number) => split.slice(0, i).reduce((n, r) => n + (r.layers ?? 0), 0);
    const counts = split.map((r, i) => r.layers ?? n_layer - before(i));
    const moved = (from: number, to: number): OtherPlaces => ({
      most: counts[from],
      at(n) {
        const change = (k: number) => k === from ? -n : k === to ? n : 0;
        const runs = split.map((r, k) => ({ device: r.device, layers: counts[k] + change(k) }));
        return { flag: `--place ${splitText(runs)}`, place: { ...place, split: runs } };
      },
    });
    return counts.slice(1).flatMap((_, i) => [moved(i, i + 1), moved(i + 1, i)]);
  }
  if (device === 0 || split) return [];
  const { layers, devices } = last ?? { layers: n_layer + 1, devices: [{ device, share: 1 }] };
  const now = Math.min(layers, n_layer + 1);
  return [
    {
      most: hasExperts ? n_layer - Math.min(hostExperts, n_layer) : 0,
      at: (n) => ({ flag: `--n-cpu-moe ${hostExperts + n}`, place: { ...place, hostExperts: hostExperts + n } }),
    },
    {
      most: now,
      at: (n) => ({ flag: `--n-gpu-layers ${now - n}`, place: { ...place, last: { layers: now - n, devices } } }),
    },
  ];
}
