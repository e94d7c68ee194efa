/**
 * What the server says about itself: /health, /v1/models and /v1/models/{id}, /props, /slots.
 * @module
 */
import { type App, json } from "./app.ts";
import { ApiError, unavailable } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import { residencyView } from "./residency.ts";
import { generationSettings } from "./generation_settings.ts";
import { createSampler } from "./sampling.ts";
import { templateCaps } from "./template_caps.ts";

export function health(): Response {
  return json({ status: "ok" });
}

/** The one model in a list that OpenAI's and Anthropic's clients read; `models` is for clients of ollama. */
export function models(app: App): Response {
  const entry = modelEntry(app);
  const { id, aliases, meta, tags } = entry;
  const names = [id, ...aliases].map((name) => ({
    name,
    model: name,
    modified_at: entry.created_at,
    size: String(meta.size),
    digest: "",
    type: "model",
    description: "",
    tags,
    capabilities: ["completion"],
    parameters: "",
    details: {
      parent_model: "",
      format: "gguf",
      family: meta.architecture,
      families: [meta.architecture],
      parameter_size: String(meta.n_params),
      quantization_level: meta.ftype ?? "",
    },
  }));
  return json({ object: "list", data: [entry], models: names, first_id: id, last_id: id, has_more: false });
}

/** The model by one of its names. */
export function model(app: App, { params }: Exchange): Response {
  const { id, aliases } = app.model;
  if (params.id !== id && !aliases.includes(params.id)) {
    throw new ApiError(404, "not_found_error", "model_not_found", `There is no model "${params.id}" here`, {
      param: "model",
      hint: `the model is "${id}"`,
    });
  }
  return json(modelEntry(app));
}

function modelEntry({ model, scheduler, settings }: App) {
  const { meta } = model;
  return {
    id: model.id,
    aliases: model.aliases,
    object: "model",
    type: "model",
    display_name: model.id,
    created: model.created,
    created_at: new Date(model.created * 1000).toISOString(),
    owned_by: "bloomery",
    tags: settings.tags,
    architecture: { input_modalities: ["text"], output_modalities: ["text"] },
    meta: {
      vocab_type: meta.vocab_type,
      n_vocab: model.tokenizer.n_vocab,
      n_ctx: scheduler.n_ctx,
      n_ctx_train: meta.n_ctx_train,
      n_embd: meta.n_embd,
      n_params: meta.n_params,
      size: meta.size,
      architecture: meta.architecture,
      ...(meta.ftype === undefined ? {} : { ftype: meta.ftype }),
    },
  };
}

/** The server's properties, under llama-server's names. */
export function props(app: App): Response {
  const { model, scheduler } = app;
  const text = (id: number | null) => id === null ? "" : model.tokenizer.decode([id], { special: true });
  return json({
    default_generation_settings: {
      n_ctx: scheduler.n_ctx,
      params: generationSettings(app, {}, createSampler(model, {})),
    },
    total_slots: scheduler.slots.length,
    endpoint_slots: app.settings.endpoints.slots,
    endpoint_props: app.settings.endpoints.props,
    endpoint_metrics: app.settings.endpoints.metrics,
    is_sleeping: scheduler.asleep,
    model_alias: model.id,
    model_path: model.path,
    ...(model.meta.ftype === undefined ? {} : { model_ftype: model.meta.ftype }),
    cors_proxy_enabled: false,
    modalities: { vision: false, video: false, audio: false },
    chat_template: model.chat.source,
    chat_template_caps: templateCaps(model.chat),
    bos_token: text(model.tokenizer.bos),
    eos_token: text(model.tokenizer.eos),
    build_info: app.settings.build,
  });
}

/**
 * The state of each slot.
 * @throws ApiError 503 when the request asks for an idle slot and there is none.
 */
export function slots(app: App, { query }: Exchange): Response {
  const views = app.scheduler.views();
  if (query.get("fail_on_no_slot") === "1" && views.every((slot) => slot.is_processing)) {
    throw unavailable("no_slot", "No slot is idle");
  }
  const residency = residencyView(app);
  return json(views.map((slot) => {
    const { id, is_processing, speculative, id_task, settings } = slot;
    const experts = residency === undefined ? {} : { residency };
    const seat = { id, n_ctx: app.scheduler.n_ctx, speculative, is_processing, ...experts };
    if (id_task === -1) return seat;
    return {
      ...seat,
      id_task,
      n_prompt_tokens: slot.n_prompt_tokens,
      n_prompt_tokens_processed: slot.n_prompt_tokens - slot.n_prompt_cached,
      n_prompt_tokens_cache: slot.n_prompt_cached,
      n_tokens_cached: slot.n_cached,
      params: settings,
      next_token: [{
        has_next_token: is_processing && slot.n_remain > 0,
        has_new_line: slot.has_new_line,
        n_remain: slot.n_remain,
        n_decoded: slot.n_decoded,
      }],
    };
  }));
}
