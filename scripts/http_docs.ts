/**
 * What docs/http.md says about routes and fields. Types, limits and defaults come from the schemas themselves.
 * @module
 */

/** What a field means, wherever it occurs; a route's own words go before. */
export const FIELDS: Readonly<Record<string, string>> = {
  model: "Accepted and not looked at: the server has one model",
  messages:
    "The conversation: `role` (system, developer, user, assistant, tool), `content` (a text, or parts of type " +
    "text), and of the assistant also `reasoning_content` and `tool_calls`",
  tools: "Functions that the model may call",
  tool_choice: "`required` or a function by name makes the answer a call",
  parallel_tool_calls: "Whether an answer may hold several calls",
  chat_template_kwargs: "Variables of the chat template; `enable_thinking` switches reasoning",
  reasoning_effort: "Variable of the chat template; `none` switches reasoning off",
  add_generation_prompt: "Whether the prompt opens the assistant's turn; true closes a last message of the assistant",
  continue_final_message: "Whether the answer goes on with the last message, which then is the assistant's",
  reasoning_format:
    "Where reasoning goes: `none` leaves it in `content`, `deepseek-legacy` does so in streams, the others " +
    "put it into `reasoning_content`",
  reasoning_budget_tokens: "Most tokens of reasoning, 0 = none, -1 = no limit",
  thinking_budget_tokens: "The same as `reasoning_budget_tokens`",
  reasoning_control: "Let POST /v1/chat/completions/control end the reasoning while it runs",
  input_prefix: "The text before the gap",
  input_suffix: "The text behind it",
  input_extra: "Texts of other files: objects with `text` and `filename`",
  id: "The `id` of the answer, from its stream",
  action: "`reasoning_end`",
  conversation_ids: "Conversations to look for",
  conv_ids: "The same",
  reasoning_budget_message: "Text before the tag that ends reasoning at its limit",
  embd_normalize: "Norm that becomes 1; -1 none, 0 makes the largest value 32760; default: `--embd-normalize`",
  format: "`json`, or a JSON schema of the answer",
  options:
    "Settings of the sampler under ollama's names; `num_predict` is the most tokens; what the server decides (`num_ctx`, ...) is ignored",
  think: "Whether the model reasons first, or how hard",
  keep_alive: "Ignored: the model stays loaded",
  raw: "The prompt as it stands, without the template",
  images: "Refused",
  template: "Refused: see `--chat-template`",
  truncate: "Ignored",
  encoding_format: "`base64`: little-endian 32-bit floats",
  stream: "Send the answer as it comes, as server-sent events",
  stream_options: "`include_usage` adds a last event with the usage",
  sse_ping_interval: "Seconds after which a silent stream sends a comment, 0 or -1 = never",
  stop: "Texts that end the answer; they are looked for in the answer, not in reasoning that is split off",
  max_tokens: "Most tokens of an answer; less where the context is full before. -1 = as many as fit",
  max_completion_tokens: "OpenAI's newer name of `max_tokens`; where both are given, this one counts",
  n_predict: "llama-server's name of `max_tokens`; where both are given, `max_tokens` counts",
  n: "Answers to give to each prompt; the prompt is computed once for all",
  best_of: "Answers to make, of which the `n` with the likeliest tokens on average are given; not in streams",
  cache_prompt: "Whether computed beginnings of other prompts may be used; the answer is the same",
  speculative:
    "Whether tokens may be guessed where the server does that (`--draft`); the answer is the same, and may come in fewer steps",
  lora: "How much of each adapter: `{id, scale}`; none of those that are not named",
  id_slot: "The slot to use, -1 = any",
  grammar: "GBNF grammar of the answer",
  grammar_lazy: "The grammar is in force from one of `grammar_triggers` on, and nothing before",
  grammar_triggers:
    "Objects with a `type` and a `value` or `token`, as llama-server has them: a token (0), a word (1), a pattern (2), " +
    "a pattern of the whole text (3); the grammar begins with the trigger, or with the pattern's first group",
  json_schema: "JSON schema of the answer",
  response_format:
    "`text`, `json_object` (with an optional `schema`) or `json_schema`; `strict: true` refuses what cannot " +
    "be enforced",
  logprobs: "Whether to tell the log-probabilities of the answer's tokens",
  top_logprobs: "How many rivals of each token to tell; needs `logprobs`",
  functions: "Refused: use `tools`",
  function_call: "Refused: use `tool_choice`",
  modalities: "Refused unless it is text",
  temperature: "Spread of the choice; 0 takes the likeliest token",
  top_k: "Choose among so many of the likeliest tokens, 0 = all",
  top_p: "Choose among the likeliest tokens that have this probability together",
  min_p: "Drop tokens less likely than this share of the likeliest one's probability",
  typical_p: "Locally typical sampling, 1 = off",
  top_n_sigma: "Drop tokens more than so many standard deviations below the best, -1 = off",
  xtc_probability: "How often all but the last of the likely tokens are dropped",
  xtc_threshold: "From which probability on a token is likely, for `xtc_probability`",
  dynatemp_range: "The temperature moves by so much with the uncertainty, 0 = off",
  dynatemp_exponent: "How it moves",
  repeat_penalty: "Makes tokens that occurred less likely, 1 = off",
  repeat_last_n: "Tokens that the penalties look back, -1 = the whole context",
  presence_penalty: "Lowers tokens that occurred by so much",
  frequency_penalty: "Lowers them by so much for each time",
  dry_multiplier: "Strength of the penalty of repeated sequences, 0 = off",
  dry_base: "Its growth with the length of the sequence",
  dry_allowed_length: "Sequences up to this length are free",
  dry_penalty_last_n: "Tokens that it looks back, -1 = the whole context",
  dry_sequence_breakers: "Texts that no sequence goes beyond",
  mirostat: "1 or 2 keep the surprise of the text at `mirostat_tau`, 0 = off",
  mirostat_tau: "The surprise to keep",
  mirostat_eta: "How fast it is corrected",
  adaptive_target: "Draw tokens whose probability is near this, -1 = off",
  adaptive_decay: "How long the draw remembers",
  samplers: "Stages and their order, by names or by letters",
  min_keep: "Tokens that no stage goes below",
  seed: "Start of the random choice; -1 = a fresh one. Answers of one request differ",
  ignore_eos: "Go on where the model would end",
  logit_bias: "Added to the scores of tokens, by id or by text; false forbids",
  prompt: "A text, token ids, a mix of both, an object with a `prompt_string`, or several prompts",
  n_probs: "How many rivals of each token to tell with their probabilities",
  post_sampling_probs:
    "Tell `prob` and `top_probs` behind all stages of the sampler in place of logarithms before them",
  return_tokens: "Whether to tell the ids of the answer's tokens",
  n_indent: "End the answer at a line, the first and blank ones aside, that begins with fewer blanks",
  t_max_predict_ms:
    "End an answer that has a new line after so many milliseconds since its first token, 0 or -1 = never",
  n_keep: "Tokens of the prompt that stay where a full context is shifted, -1 = all",
  n_discard: "Tokens behind them that go then, 0 = half",
  timings_per_token: "Every event of a stream has `timings`",
  return_progress: "Events of a stream tell how much of the prompt is computed, in `prompt_progress`",
  verbose: "Add `__verbose`: the answer as /completion tells it",
  n_cmpl: "llama-server's name of `n`",
  response_fields: "Answer only these members; `a/b` names a member of a member",
  echo: "Begin the answer with the prompt; with `logprobs` its tokens are scored too",
  suffix: "Refused unless empty",
  system: "The system prompt",
  stop_sequences: "Texts that end the answer",
  thinking: "`disabled` switches reasoning off; `budget_tokens` limits it",
  output_config: "`format` of type `json_schema` gives the answer's form, `effort` is a variable of the template",
  output_format: "The older name of `output_config.format`",
  content: "A text, or an array of texts and token ids",
  add_special: "Whether to add the tokens that the vocabulary puts around a text",
  parse_special: "Whether markup of special tokens is read as such",
  with_pieces: "Tell each token's text too: as a string, or as bytes where they are no text on their own",
  tokens: "The token ids",
  input: "A text of the user, or items; of embeddings: a text, token ids, or an array of them",
  instructions: "The system prompt of this answer",
  previous_response_id: "Go on from a response that is kept",
  store: "Whether the answer is kept",
  max_output_tokens: "Most tokens of the answer, reasoning among them",
  text: "The form of the answer",
  reasoning: "`effort` is a variable of the chat template; `none` switches reasoning off",
  metadata: "Given back as it is",
};

/** What a field is where the request leaves it out and no table of the code says so. */
export const DEFAULTS: Readonly<Record<string, string>> = {
  stream: "false",
  max_tokens: "--predict",
  n: "1",
  best_of: "n",
  cache_prompt: "--cache-prompt",
  reasoning_budget_message: "--reasoning-budget-message",
  speculative: "true",
  lora: "POST /lora-adapters",
  id_slot: "-1",
  tool_choice: "auto",
  parallel_tool_calls: "true",
  add_generation_prompt: "unless continued",
  continue_final_message: "where the last message is the assistant's",
  reasoning_format: "--reasoning-format",
  reasoning_budget_tokens: "--reasoning-budget",
  logprobs: "false",
  seed: "-1",
  ignore_eos: "false",
  n_probs: "0",
  return_tokens: "false",
  n_cmpl: "1",
  n_keep: "--keep",
  n_discard: "0",
  n_indent: "0",
  t_max_predict_ms: "-1",
  timings_per_token: "false",
  return_progress: "false",
  post_sampling_probs: "false",
  verbose: "--verbose",
  echo: "false",
  sse_ping_interval: "--sse-ping-interval",
  store: "true",
  add_special: "false",
  parse_special: "true",
  with_pieces: "false",
  dry_sequence_breakers: '`["\\n", ":", "\\"", "*"]`',
};

export interface RouteText {
  summary: string;
  /** What comes back, and what to know; Markdown. */
  details: string;
  /** Fields with a meaning of their own here. */
  fields?: Readonly<Record<string, string>>;
}

/** By the last of a route's paths. */
export const ROUTE_TEXTS: Readonly<Record<string, RouteText>> = {
  "/v1/health": {
    summary: "whether the server answers",
    details: '`{"status": "ok"}`; 503 while the model loads. Needs no key.',
  },
  "/v1/models": {
    summary: "the model",
    details: "A list of one: `id`, `aliases`, and in `meta` its sizes; OpenAI's and Anthropic's clients both read it.",
  },
  "/v1/models/{id}": {
    summary: "the model by one of its names",
    details: "404 `model_not_found` for other names. A name may contain slashes.",
  },
  "/props": { summary: "settings of the server", details: "llama-server's names. Sampler defaults are in `params`." },
  "/slots": {
    summary: "what each slot does",
    details:
      "An array; of a slot that was used also its latest request. 503 with `fail_on_no_slot=1` when none is idle. 501 where the server was started with `--no-slots`. " +
      "Where experts come and go, `residency` has their hit rates, in all and by layer.",
  },
  "/slots/{id}": {
    summary: "saves, restores or erases what a slot has computed",
    details:
      "The query's `action` is `save`, `restore` or `erase`; it waits until the slot is idle. 501 unless the server was " +
      "started with `--slot-save-path DIR`. `save` gives `n_saved` tokens and `n_written` bytes, `restore` `n_restored` and " +
      "`n_read`, `erase` `n_erased`. A restored slot has the bits that were saved. A file is written beside and renamed; it " +
      "names its model and the program's version, and another one's, a damaged or a foreign file is a 400.",
    fields: { filename: "Name of a file in that folder; paths are refused" },
  },
  "/metrics": {
    summary: "counters for Prometheus",
    details:
      "Text; 501 unless the server was started with `--metrics`. llama-server's names (`llamacpp:…`) and `bloomery_…` of " +
      "what only this server counts. Gauges of rates are over the time since the last scrape.",
  },
  "/bloomery/machine": {
    summary: "what the page's machine view shows",
    details:
      "What lives where in bytes (`plan`), slots, queue, and the scheduler's counters since the start; `experts` says how often experts " +
      "were in memory, where not all fit. It holds no text of a " +
      "request; `slots` is null where the server was started with `--no-slots`. Its fields may change.",
  },
  "/residency/reset": {
    summary: "forget which experts were used",
    details:
      "Where experts come and go: those of the start are seated again, and hit rates count from now on. No answer depends on it. " +
      "400 `no_residency` where all weights are resident. No body.",
  },
  "/v1/chat/completions": {
    summary: "an answer to a conversation",
    details:
      "OpenAI's chat completion, with `reasoning_content` beside `content`, and llama-server's `timings` where there is " +
      "one answer. `usage` counts a prompt once for all of its answers; `prompt_tokens_details.cached_tokens` were not " +
      "computed, `completion_tokens_details.reasoning_tokens` were reasoning.\n\n" +
      "A last message of the assistant is continued; the answer holds only what is new. System messages may come anywhere: " +
      "where the template has no place for one, its text joins the message before it, or the next one of the user. " +
      "A role that the template has no place for is refused.",
  },
  "/v1/completions": {
    summary: "a continuation of a text",
    details: "OpenAI's legacy completion: `n` choices for each prompt, prompt by prompt.",
    fields: { logprobs: "How many rivals of each token to tell with their log-probabilities" },
  },
  "/completions": {
    summary: "a continuation of a text, in llama-server's shape",
    details:
      "One object for one answer, an array for several. In a stream the last event of an answer has `stop: true`. " +
      "`generation_settings` are the settings in force, in llama-server's order.",
  },
  "/infill": {
    summary: "what stands between two texts",
    details:
      "Answers like /completion. The prompt has the vocabulary's own tokens for the task; 501 names those that it lacks. " +
      "Where texts do not fit, what is far from the gap goes first: other files, then three quarters of the room are the " +
      "text before, the rest the text behind. `--spm-infill` puts the text behind first.",
    fields: { prompt: "The beginning of what is to be found" },
  },
  "/v1/chat/completions/control": {
    summary: "ends the reasoning of an answer that runs",
    details:
      '`{"success": true}`, or false with a `message`. The request of the answer must have had `reasoning_control`.',
  },
  "/v1/stream": {
    summary: "a stream again, from any byte on",
    details:
      "A streamed request with the header `X-Conversation-Id` goes on without its client. The query's `conv_id` (or the " +
      "header) names it, `from` is the first byte. Streams that have ended are kept in memory, the oldest go first; a newer " +
      "one of a conversation takes its place. 404 where there is none.",
  },
  "DELETE /v1/stream": {
    summary: "ends such a stream, and forgets it",
    details: "204; 404 where there is none.",
  },
  "/v1/streams/lookup": {
    summary: "which of some conversations have a stream",
    details:
      "An array of `conversation_id`, `is_done`, `total_bytes`, `started_at` and `completed_at` (0 while it runs).",
  },
  "/v1/chat/completions/input_tokens": {
    summary: "tokens of a conversation's prompt",
    details: '`{"object": "response.input_tokens", "input_tokens": n}`',
  },
  "/v1/responses": {
    summary: "an answer to a conversation, in the shape of OpenAI's Responses",
    details:
      "Items of the input: messages, `reasoning`, `function_call`, `function_call_output`. Items of the answer: " +
      "`reasoning` with its text, a `message`, and `function_call`. An answer that ends at its limit is `incomplete`. Streams have " +
      "OpenAI's events with `sequence_number` and `output_index`, and no `[DONE]`. A last message of the assistant is " +
      "continued.\n\nAnswers are kept in memory for `previous_response_id`, the oldest go first; instructions are not part of " +
      "what is kept.",
    fields: {
      tools: "Functions that the model may call; the model is not offered tools of other types",
      tool_choice: "`required` or a function by name makes the answer a call",
      text: "`format` of type `text`, `json_object` or `json_schema` gives the answer's form",
    },
  },
  "/v1/responses/input_tokens": {
    summary: "tokens of a request's prompt",
    details: '`{"object": "response.input_tokens", "input_tokens": n}`',
    fields: { text: "As for /v1/responses" },
  },
  "/v1/messages": {
    summary: "an answer to a conversation, in Anthropic's shape",
    details: "System messages within the conversation, a last message of the assistant, and roles as for " +
      "/v1/chat/completions. Blocks: text, thinking, tool_use, tool_result. The beta query parameter is accepted.",
    fields: {
      messages: "The conversation: `role` (user, assistant, system) and `content`, a text or blocks",
      tools: "Functions that the model may call; the server runs no tools of its own",
      tool_choice: "`auto`, `any`, `tool` with a `name`, or `none`",
      max_tokens: "Most tokens of the answer",
    },
  },
  "/v1/messages/count_tokens": {
    summary: "tokens of a conversation's prompt",
    details: '`{"input_tokens": n}`',
    fields: {
      messages: "As for /v1/messages",
      tools: "As for /v1/messages",
      tool_choice: "As for /v1/messages",
    },
  },
  "/v1/embeddings": {
    summary: "vectors of texts, in OpenAI's form",
    details:
      "501 unless the server was started with `--embeddings`, which then gives no answers. Vectors are hidden rows behind the last " +
      "norm, pooled as `--pooling` or the file says, and normalised; a text's vector has the same bits alone and in a batch. " +
      "`dimensions` is ignored, as llama-server does. A text longer than the context, or with an encoder (BERT and its kind) than " +
      "`--ubatch-size`, is a 500 that says `too large`.",
  },
  "/embeddings": {
    summary: "vectors of texts, in llama-server's form",
    details:
      '`[{"index": 0, "embedding": [[...]]}]`: one row a text, or one a token where nothing is pooled (not normalised).',
  },
  "/api/version": { summary: "ollama's API: the version", details: '`{"version": "..."}`.' },
  "/api/tags": { summary: "ollama's API: the model", details: "One model, whose name ends in `:latest`." },
  "/api/ps": { summary: "ollama's API: what is loaded", details: "The model; it stays loaded." },
  "/api/show": {
    summary: "ollama's API: facts of the model",
    details: "`template`, `details`, `model_info`, `capabilities`.",
  },
  "/api/chat": {
    summary: "ollama's API: an answer to a conversation",
    details:
      "Lines of JSON, or one object with `stream: false`. Any `model` is answered by the one there is; without messages it says that the " +
      'model is loaded. A call comes whole. Errors are `{"error": "..."}`.',
    fields: {
      stream: "Lines as they come; default true",
      messages: "`role`, `content`, `thinking`, `tool_calls`, `tool_name`; `images` are refused",
    },
  },
  "/api/generate": {
    summary: "ollama's API: an answer to a prompt",
    details: "As /api/chat, with `response` in place of `message`. `suffix`, `images` and `template` are refused.",
    fields: { stream: "Lines as they come; default true" },
  },
  "/api/embed": {
    summary: "ollama's API: vectors of texts",
    details: "As /v1/embeddings; `truncate` is ignored: what is too long is an error.",
  },
  "/v1/reranking": {
    summary: "scores of texts for a question",
    details:
      "501 unless the server was started with `--reranking` and a reranker: a file with `cls` tensors. The best text first, each with " +
      "`index` and `relevance_score`, or, where the texts came as `texts`, a bare list with `index` and `score` as text-embeddings-inference " +
      "answers. A question and a text are put together by the file's template `rerank`, else one after the other with the tokens that the " +
      "vocabulary wants, as llama-server does; all tokens are of the first type.",
    fields: {
      query: "The question",
      documents: "The texts",
      texts: "The texts, for an answer in the form of text-embeddings-inference",
      top_n: "So many of the best; default: all",
      return_text: "With `texts`: each text beside its score",
    },
  },
  "/tokenize": { summary: "ids of a text", details: '`{"tokens": [...]}`: ids, or `{id, piece}` with `with_pieces`.' },
  "/detokenize": { summary: "text of ids", details: '`{"content": "..."}`. An id outside the vocabulary is a 400.' },
  "POST /props": {
    summary: "settings to change",
    details:
      '`{"success": true}` and no more: there is none that could be changed. 501 unless the server was started ' +
      "with `--props`.",
  },
  "/lora-adapters": {
    summary: "adapters of the model, and how much of each a request gets that does not say",
    details: "`{id, path, task_name, prompt_prefix, scale}` of each file of `--lora` and `--lora-scaled`.",
  },
  "POST /lora-adapters": {
    summary: "how much of each adapter a request gets that does not say",
    details:
      'An array of `{id, scale}`; 0 of those that are not named. `{"success": true}`. An id that is not there is a 400. Requests in ' +
      "one batch may differ; beginnings that were computed with other scales are not reused.",
  },
  "/v1/audio/transcriptions": {
    summary: "texts of speech, which this server cannot write",
    details: "501.",
  },
  "/v1/systemone": { summary: "decision models, which this server cannot run", details: "501." },
  "/cors-proxy": {
    summary: "tools on the server, which it does not offer",
    details: "403 `feature_disabled`: tools run in the client.",
  },
  "POST /cors-proxy": { summary: "tools on the server, which it does not offer", details: "403 `feature_disabled`." },
  "/apply-template": { summary: "the prompt that a conversation becomes", details: '`{"prompt": "..."}`' },
};

/** Rows of the table of errors: status, `code`, when. */
export const ERRORS: readonly (readonly [status: number, code: string, when: string])[] = [
  [400, "invalid_json", "the body is not JSON, or not UTF-8"],
  [400, "missing_required_parameter", "a field is missing; `param` names it"],
  [400, "invalid_value", "a field has a wrong type or value; `param` names it"],
  [400, "unsupported_parameter", "a field asks for what the server cannot do, and ignoring it would change the answer"],
  [400, "context_length_exceeded", "the prompt does not fit; `n_prompt_tokens` and `n_ctx` are beside the message"],
  [400, "slot_file", "a slot's file cannot be read, or is not one of this model and version"],
  [400, "previous_response_not_found", "no response of that id is kept"],
  [400, "text.…", "the chat template refuses the conversation, or a grammar cannot be read, in their own words"],
  [401, "invalid_api_key", "the server has keys and the request carries none of them"],
  [403, "feature_disabled", "the route offers tools of the server, which has none"],
  [404, "no_stream", "no stream of the conversation is kept"],
  [404, "not_found", "there is no such path"],
  [404, "model_not_found", "the model has another name"],
  [405, "method_not_allowed", "the path takes another method; `allow` names it"],
  [413, "body_too_large", "the body is larger than 32 MiB"],
  [500, "internal_error", "a fault of the server; it is on its stderr"],
  [501, "not_supported", "this model, or this server, cannot do what the route does"],
  [501, "switched_off", "the server was started without this route"],
  [503, "loading_model", "the model is not loaded yet"],
  [503, "no_slot", "no slot is idle, and /slots was asked with `fail_on_no_slot=1`"],
  [503, "queue_full", "too many requests wait for a slot"],
  [503, "cache_full", "the prompt does not fit the cache that all slots share"],
  [503, "shutting_down", "the server finishes what runs and takes nothing new"],
];

/** Where a client of llama-server sees something else, and why. */
export const DIFFERENCES: readonly string[] = [
  "`error.code` is a word, as OpenAI has it, because clients branch on it; there it is the HTTP status once more.",
  "A known path with a wrong method is a 405 that names the right one; there it is a 404.",
  "`n_predict: 0` computes the prompt and gives no token; llama-server gives one.",
  '`stop: [""]` is ignored; there it ends every answer at once.',
  "A field that this server knows and cannot honour is a 400 that names it, because ignoring it would change the answer.",
  "An unknown sampler, an `id_slot` beyond the slots or an id outside the vocabulary is a 400; there it is ignored, taken " +
  "modulo, or a 500.",
  "Lines of blanks alone do not count for `n_indent`: code has them anywhere.",
  "Patterns of `grammar_triggers` run as automata, so that none can stall the server; look-around and references back are a " +
  "400.",
  "Numbers of `generation_settings` are as they were given; there they show how 32 bits round them.",
  "`chat_format` in them names this server's own reading of answers, and `n_predict` is what was asked for.",
  "With `--context-shift` the tokens that stay are computed again at their new places, which is exact; there their keys are turned, " +
  "and they remember what is gone. A shift takes as long as a prompt of that length.",
  "`--cache-reuse` has no effect: text that was computed at another place, behind another text, would change the answer.",
  "`--cache-ram` is 0 where it is not given: the plan of memory does not know of it. There it is 8 GiB.",
  "Slot files are this program's own; those of llama-server are refused.",
  "The default port is 8080, as clients expect; there it was changed to 9931.",
  "`--slot-prompt-similarity` decides only whose place a prompt takes: a beginning that a slot has computed is copied in any " +
  "case.",
  "A sampler's value outside of its range is a 400; there some are moved to the nearest one that is allowed.",
  "Empty `messages`, and an empty prompt where the vocabulary has no start token, are a 400: there is nothing to go on from.",
  "`max_tokens` of /v1/messages is required, as Anthropic's API has it; there it is 4096 where it is missing.",
  "`usage` counts all `n` answers; there it counts the first.",
  "/v1/completions gives OpenAI's legacy `logprobs`, and `echo` scores the prompt: scorers need both.",
  "A continued message of the assistant is not repeated in the answer, streamed or not; there it is repeated where the answer " +
  "is not streamed.",
  "`tool_choice` `required` forces a call from the first token.",
  "Errors of /v1/messages have Anthropic's envelope.",
  "/v1/responses takes `previous_response_id`, and its events have `sequence_number` and `output_index`.",
];
