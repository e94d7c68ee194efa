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
  /** Of so many first layers the routed experts are on the host. */
  readonly hostExperts?: number;
  /** Weights that are elsewhere than their layer; the first that fits decides, before `hostExperts`. */
  readonly overrides?: readonly PlaceOverride[];
}

/** Names of routed experts of the first `n` layers, their biases and scales included. */
export function expertsOf(n: number): RegExp {
  const layers = Array.from({ length: n }, (_, il) => il).join("|");
  return new RegExp(`^blk\\.(?:${layers})\\.\\w*_\\w*exps\\.`);
}

/** Runs as `--place` takes them. */
export function splitText(split: readonly LayerRun[]): string {
  return split.map((r) => r.layers === undefined ? `${r.device}` : `${r.device}:${r.layers}`).join(",");
}

/**
 * Layers of the last ones, and what is behind them, on a device; the others on the host.
 * @param n Layers, of which what is behind the last counts as one.
 */
export function lastLayers(n: number, n_layer: number, device: number): LayerRun[] {
  const first = Math.max(0, n_layer + 1 - n);
  if (first > n_layer) return [{ device: 0 }];
  return first === 0 ? [{ device }] : [{ device: 0, layers: first }, { device }];
}

/**
 * @param device That has what the options do not place.
 * @throws {PlanError} `plan.layers` when the runs do not have as many layers as the model
 */
export function placementFor(options: PlaceOptions, n_layer: number, device: number): Placement {
  const split = options.split ?? [{ device }];
  const layers: number[] = [];
  split.forEach((run, i) => {
    const n = run.layers ?? (i === split.length - 1 ? n_layer - layers.length : 0);
    for (let k = 0; k < n; k++) layers.push(run.device);
  });
  const last = split[split.length - 1];
  if (layers.length !== n_layer) {
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
  const n_host = Math.min(options.hostExperts ?? 0, n_layer);
  const overrides = [
    ...options.overrides ?? [],
    ...n_host > 0 ? [{ pattern: expertsOf(n_host), device: 0 }] : [],
  ];
  return { layers, output: last.device, overrides };
}
