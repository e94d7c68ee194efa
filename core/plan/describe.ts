/**
 * Plans as text.
 * @module
 */
import { layerOf } from "../program/place.ts";
import type { DeviceInfo } from "../program/backend.ts";
import { formatBytes } from "./bytes.ts";
import type { CachePlan } from "./cache.ts";
import type { DevicePlan, Plan } from "./plan.ts";
import type { Form, WeightPlan } from "./weights.ts";

function describeCache(c: CachePlan): string {
  const types = [...new Set(c.streams.map((s) => s.type.name))].join("/");
  if (c.state) return `states   ${formatBytes(c.bytes)}: ${c.n_pages} of ${formatBytes(c.bytes / c.n_pages)}`;
  const what = c.window === 0 ? "" : `, windows of ${c.window}`;
  return `cache    ${formatBytes(c.bytes)}: ${c.n_pages} pages of ${c.page_size} tokens, ${types}${what}`;
}

function describeTypes(weights: readonly WeightPlan[], forms: readonly Form[]): string {
  const types = new Map<string, { n: number; bytes: number }>();
  for (const w of weights) {
    if (!forms.includes(w.form) || w.bytes === 0) continue;
    const t = types.get(w.type.name) ?? { n: 0, bytes: 0 };
    types.set(w.type.name, { n: t.n + 1, bytes: t.bytes + w.bytes });
  }
  return [...types].map(([name, t]) => `${t.n} ${name} ${formatBytes(t.bytes)}`).join(", ");
}

/** What of a device's weights are pages of files, where that is worth a word. */
function describePages(on: DevicePlan, weights: readonly WeightPlan[]): string[] {
  const packed = weights.filter((w) => w.form === "packed").reduce((n, w) => n + w.device_bytes, 0);
  const over = on.total_bytes - on.room_bytes;
  return [
    ...packed === 0 ? [] : [`         ${formatBytes(packed)} of them mapped from the packed form`],
    ...over <= 0 ? [] : [`         ${formatBytes(over)} more than memory holds: read from the file again and again`],
  ];
}

/** What a plan puts on a device, as lines of text. */
function describeDevice(plan: Plan, on: DevicePlan): string[] {
  const { device } = on;
  const weights = plan.weights.filter((w) => w.device === device.index);
  const of = (form: Form) => weights.filter((w) => w.form === form).reduce((n, w) => n + w.bytes, 0);
  const pools = plan.pools.filter((p) => p.device === device.index);
  const caches = plan.caches.flatMap((c) => {
    const part = c.parts.find((p) => p.device === device.index);
    return part ? [{ ...c, bytes: part.bytes, streams: part.streams.map((s) => c.streams[s]) }] : [];
  });
  return [
    `device   ${plan.devices.length === 1 ? "" : `${device.index}: `}${device.name} (${device.kind}), ${
      formatBytes(device.free_bytes)
    } free`,
    ...plan.devices.length === 1 ? [] : [`layers   ${describeLayers(plan, device.index)}`],
    `weights  ${formatBytes(on.resident_bytes)} resident: ${describeTypes(weights, ["memory", "mapped", "packed"])}`,
    ...describePages(on, weights),
    ...of("table") === 0 ? [] : [
      `tables   ${formatBytes(of("table"))} of which tokens name rows, not counted: ${
        describeTypes(weights, ["table"])
      }`,
    ],
    ...pools.map((p) =>
      `pool     ${formatBytes(p.bytes)}: ${p.n_slots} slots of ${
        formatBytes(p.slot_bytes)
      } for ${p.n_expert} experts of ${p.groups.length} layers (${Math.round(100 * p.n_slots / p.n_expert)} %)`
    ),
    ...pools.length === 0 ? [] : [
      `         the others are read from the drive${
        pools.every((p) => p.groups.every((g) => g.packed)) ? ", packed" : ""
      }: ${formatBytes(of("pool"))} in all`,
    ],
    ...caches.map(describeCache),
    `scratch  ${formatBytes(on.scratch_bytes)} at most`,
    `total    ${formatBytes(on.total_bytes)}`,
  ];
}

/** `0 to 19, experts of 20 to 35` */
function describeLayers(plan: Plan, device: number): string {
  const runs = (list: readonly number[]) => {
    const ends: [first: number, last: number][] = [];
    for (const il of list) {
      const run = ends.at(-1);
      if (run?.[1] === il - 1) run[1] = il;
      else ends.push([il, il]);
    }
    return ends.map(([a, b]) => a === b ? `${a}` : `${a} to ${b}`).join(", ");
  };
  const { layers } = plan.placement;
  const own = layers.flatMap((d, il) => d === device ? [il] : []);
  const moved = plan.weights.filter((w) => w.device === device && w.bytes > 0).flatMap((w) => {
    const il = layerOf(w.name);
    return il !== undefined && layers[il] !== undefined && layers[il] !== device ? [il] : [];
  });
  const others = [...new Set(moved)].sort((a, b) => a - b);
  const parts = [
    ...own.length === 0 ? [] : [runs(own)],
    ...others.length === 0 ? [] : [`parts of ${runs(others)}`],
  ];
  return parts.length === 0 ? "none" : parts.join(", ");
}

/** A device by its name, and by its number where there are several. */
function deviceText(plan: Plan, { index, name }: DeviceInfo): string {
  return plan.devices.length === 1 ? name : `${name} (device ${index})`;
}

/** The plan as lines of text. */
export function describePlan(plan: Plan): string {
  const lines = plan.devices.flatMap((d) => describeDevice(plan, d));
  if (plan.devices.length > 1) {
    lines.push(
      `together ${formatBytes(plan.total_bytes)}; ${
        formatBytes(plan.moved_bytes)
      } of values cross between devices for each token`,
    );
  }
  return lines.join("\n");
}

/** The plan in one line. */
export function shortPlan(plan: Plan): string {
  const each = plan.devices.map((d) => {
    const pools = plan.pools.filter((p) => p.device === d.device.index);
    const [n, of] = pools.reduce(([n, of], p) => [n + p.n_slots, of + p.n_expert], [0, 0]);
    const parts = [
      `weights ${formatBytes(d.resident_bytes)}`,
      ...pools.length === 0 ? [] : [`pool ${formatBytes(d.pool_bytes)} for ${n} of ${of} experts`],
      `cache ${formatBytes(d.cache_bytes)}`,
      `scratch ${formatBytes(d.scratch_bytes)}`,
    ];
    return `${parts.join(" + ")} = ${formatBytes(d.total_bytes)} of ${formatBytes(d.room_bytes)} on ${
      deviceText(plan, d.device)
    }`;
  });
  return `plan: ${each.join("; ")}`;
}
