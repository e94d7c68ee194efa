/**
 * The prediction route of Google's Vertex AI: several requests in one body, each with its format.
 * @module
 */
import { z } from "zod";
import { type App, type Handler, json } from "./app.ts";
import { badRequest } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { chatCompletions } from "./routes_chat.ts";
import { completions } from "./routes_completions.ts";
import { messages } from "./routes_anthropic.ts";
import { responses } from "./routes_responses.ts";
import { parseBody } from "./schemas.ts";

/** Most requests in one body. */
const MAX_INSTANCES = 128;

const FORMATS: Readonly<Record<string, Handler>> = {
  chatCompletions,
  completions,
  responses,
  messages,
};

export const predictSchema = z.object({ instances: z.array(z.looseObject({ "@requestFormat": z.string() })) });

export async function predict(app: App, exchange: Exchange): Promise<Response> {
  const { instances } = parseBody(predictSchema, exchange.body);
  if (instances.length > MAX_INSTANCES) {
    throw badRequest(`instances: expected at most ${MAX_INSTANCES}, found ${instances.length}`, "instances");
  }
  const asked = instances.map(({ "@requestFormat": format, ...body }, i) => {
    const param = `instances[${i}]`;
    const handler = Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
    if (handler === undefined) {
      const names = Object.keys(FORMATS).join(", ");
      throw badRequest(`${param}.@requestFormat: expected ${names}, found ${JSON.stringify(format)}`, param);
    }
    if (body.stream) throw badRequest(`${param}.stream: predictions are not streamed`, param);
    return { handler, body: JSON.stringify(body) };
  });
  const cancel = new AbortController();
  try {
    const answers = await Promise.all(
      asked.map(async ({ handler, body }) => await handler(app, exchange.part(body, cancel.signal))),
    );
    return json({ predictions: await Promise.all(answers.map((answer) => answer.json())) });
  } catch (error) {
    cancel.abort(); // nobody reads the others
    throw error;
  }
}
