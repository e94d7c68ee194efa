/**
 * Routes that list the model's adapters and set how much of each requests get.
 * @module
 */
import { z } from "zod";
import { type App, json } from "./app.ts";
import { badRequest } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { parseJsonBody } from "./schemas.ts";

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
