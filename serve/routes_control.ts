/**
 * POST /v1/chat/completions/control: ends the reasoning of an answer that runs, where its request allowed that with
 * `reasoning_control`.
 * @module
 */
import { z } from "zod";
import { type App, json } from "./app.ts";
import type { Exchange } from "./exchange.ts";
import { parseBody } from "./schemas.ts";

export const controlSchema = z.object({ id: z.string(), action: z.enum(["reasoning_end"]) });

export function control(app: App, { body }: Exchange): Response {
  const { id } = parseBody(controlSchema, body);
  const answers = app.controlled.get(id);
  if (answers === undefined) {
    const message = `No answer with the id ${JSON.stringify(id)} runs that was asked for with reasoning_control`;
    return json({ success: false, message });
  }
  const ended = answers.map((end) => end());
  if (ended.includes(true)) return json({ success: true });
  return json({ success: false, message: "The answer is not within its reasoning" });
}
