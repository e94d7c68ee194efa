/**
 * The adapters of the served model: how much of each a request gets, and routes that list and set that.
 * @module
 */
import { z } from "zod";
import type { AdapterInfo } from "../core/arch/mod.ts";
import { type App, json } from "./app.ts";
import { badRequest } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { parseJsonBody } from "./schemas.ts";

/** How much of an adapter. */
export interface AdapterScale {
  readonly id: number;
  readonly scale: number;
}

/** What all requests share: which adapters there are, and how much of each one gets that does not say. */
export class Adapters {
  constructor(readonly list: readonly AdapterInfo[], private scales: readonly number[]) {}

  /**
   * How much of each adapter: none of those that are not named.
   * @param asked Left out: what holds for all.
   * @throws ApiError 400 for an adapter that is not there
   */
  of(asked: readonly AdapterScale[] | undefined, field = "lora"): readonly number[] {
    if (asked === undefined) return this.scales;
    const scales = this.list.map(() => 0);
    asked.forEach(({ id, scale }, i) => {
      const place = `${field}[${i}].id`;
      if (!(id in scales)) throw badRequest(`${place}: there is no adapter ${id}`, place);
      scales[id] = scale;
    });
    return scales;
  }

  /** As lists show it. */
  listed(scales: readonly number[] = this.scales): AdapterScale[] {
    return scales.map((scale, id) => ({ id, scale }));
  }

  set(scales: readonly number[]): void {
    this.scales = scales;
  }
}

const body = z.array(z.looseObject({ id: z.number(), scale: z.number() }), { error: "expected an array" });

/** GET /lora-adapters */
export function loraAdapters({ adapters }: App): Response {
  return json(adapters.listed().map(({ id, scale }) => ({ id, ...adapters.list[id], scale })));
}

/** POST /lora-adapters: how much of each adapter a request gets that does not say. */
export function setLoraAdapters({ adapters }: App, exchange: Exchange): Response {
  const result = body.safeParse(parseJsonBody(exchange.body));
  if (!result.success) {
    throw badRequest("The body is expected to be an array of {id, scale}", undefined, "invalid_type");
  }
  adapters.set(adapters.of(result.data, ""));
  return json({ success: true });
}
