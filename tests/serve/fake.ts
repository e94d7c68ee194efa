/**
 * A model small enough to reason about: bytes are tokens, and the answer is known. Text between `[[[` and `]]]` in the
 * prompt is what the model says next, `\xNN` standing for a byte; without such text it babbles, each letter decided by
 * the ones before. Its engine keeps the promises of the real one and checks that the scheduler keeps its own.
 * @module
 */
import { EngineError } from "../../core/errors.ts";
import type { Snapshot, StepOutput } from "../../core/engine/mod.ts";
import type { TokenEngine, TokenRequest, TokenSequence } from "../../core/engine/types.ts";
import { chatFormat } from "../../serve/chat_format.ts";
import type { ServedModel } from "../../serve/language_model.ts";
import type { Tokenizer } from "../../serve/tokenizer.ts";

const SPECIALS = ["<|im_start|>", "<|im_end|>", "<s>", "[TOOL_CALLS]"];
export const IM_START = 256, IM_END = 257, BOS = 258, TOOL_CALLS = 259;
/** Tokens of several bytes, so that texts have boundaries inside. */
const WORDS = ["the ", "\n\n", "Alice", "ab", '{"', "tool", "</", "think"];
const FIRST_WORD = 260;
export const N_VOCAB = FIRST_WORD + WORDS.length;
const encoder = new TextEncoder();
const latin1 = (bytes: Iterable<number>) => Array.from(bytes, (b) => String.fromCharCode(b)).join("");

export function fakeTokenizer(): Tokenizer {
  const words = WORDS.map((w) => latin1(encoder.encode(w)));
  const pieceBytes = (id: number, special = false): Uint8Array => {
    if (id < 256) return Uint8Array.of(id);
    if (id < FIRST_WORD) return special ? encoder.encode(SPECIALS[id - 256]) : new Uint8Array();
    return encoder.encode(WORDS[id - FIRST_WORD]);
  };
  return {
    byIds: false,
    n_vocab: N_VOCAB,
    model: "fake",
    bos: BOS,
    eos: IM_END,
    sep: null,
    addBos: true,
    addEos: false,
    addSep: false,
    eogIds: new Set([IM_END]),
    isControl: (id) => id >= 256 && id < FIRST_WORD,
    pieceBytes,
    encode(text, { addSpecial, parseSpecial } = {}) {
      const ids: number[] = addSpecial ? [BOS] : [];
      const bytes = latin1(encoder.encode(text));
      for (let i = 0; i < bytes.length;) {
        const special = parseSpecial ? SPECIALS.findIndex((s) => bytes.startsWith(s, i)) : -1;
        const word = words.findIndex((w) => bytes.startsWith(w, i));
        if (special >= 0) {
          ids.push(256 + special);
          i += SPECIALS[special].length;
        } else if (word >= 0) {
          ids.push(FIRST_WORD + word);
          i += words[word].length;
        } else {
          ids.push(bytes.charCodeAt(i++));
        }
      }
      return Int32Array.from(ids);
    },
    decode(ids, { special = false, removeSpecial = false } = {}) {
      const all = Array.from(ids);
      if (removeSpecial && all[0] === BOS) all.shift();
      return new TextDecoder().decode(Uint8Array.from(all.flatMap((id) => Array.from(pieceBytes(id, special)))));
    },
  };
}

/** The tokens the model says after `tokens`: [best, strength]. */
function next(tokens: readonly number[], tokenizer: Tokenizer): number | undefined {
  const text = latin1(tokens.flatMap((id) => Array.from(tokenizer.pieceBytes(id, true))));
  const open = text.lastIndexOf("[[["), close = text.indexOf("]]]", open);
  if (open < 0 || close < 0) return undefined;
  const script = text.slice(open + 3, close).replace(
    /\\x([0-9a-f]{2})/gi,
    (_, hex) => String.fromCharCode(parseInt(hex, 16)),
  );
  const tag = "<|im_start|>assistant\n";
  const turn = text.indexOf(tag, close);
  const said = text.slice(turn < 0 ? close + 3 : turn + tag.length);
  if (said.length >= script.length) return IM_END;
  // Whole words where the script has them, so that tokens have several bytes.
  const rest = script.slice(said.length);
  const word = WORDS.findIndex((w) => rest.startsWith(w));
  return word >= 0 ? FIRST_WORD + word : rest.charCodeAt(0);
}

/** A number in [0, 1) decided by the inputs. */
function noise(a: number, b: number): number {
  let h = Math.imul(a ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(b + 1, 0xc2b2ae35);
  h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
  h = Math.imul(h ^ (h >>> 12), 0x297a2d39);
  return ((h ^ (h >>> 15)) >>> 0) / 2 ** 32;
}

function logitsOf(tokens: readonly number[], tokenizer: Tokenizer): Float32Array {
  const row = new Float32Array(N_VOCAB);
  const context = tokens.slice(-6).reduce((h, t) => Math.imul(h, 31) + t | 0, 7);
  const planned = next(tokens, tokenizer);
  for (let id = 0; id < N_VOCAB; id++) {
    const letter = id === 32 || (id >= 97 && id < 123);
    row[id] = noise(context, id) + (planned === undefined && letter ? 3 : 0);
  }
  if (planned !== undefined) row[planned] = 12;
  return row;
}

export class FakeSequence implements TokenSequence {
  tokens: number[] = [];
  /** Length before guesses that are not judged. */
  marked: number | undefined;
  disposed = false;
  constructor(readonly engine: FakeEngine, readonly adapters: readonly number[] = []) {
    engine.sequences.add(this);
  }
  get length(): number {
    return this.tokens.length;
  }
  reach(n: number): number {
    return n === this.tokens.length ? n : n - n % this.engine.keepsEvery;
  }
  truncate(n: number): number {
    if (n > this.tokens.length) throw new Error("truncated to more than there is");
    return this.tokens.length = this.reach(n);
  }
  rewind(n: number): number {
    const { marked, length } = this;
    if (marked === undefined || n < marked || n > length) throw new Error(`rewind to ${n} of ${length}`);
    this.marked = undefined;
    // As with states: nothing between the mark and the end can be gone back to.
    return this.tokens.length = n === length || this.engine.keepsEvery === 1 ? n : marked;
  }
  fork(): FakeSequence {
    if (this.marked !== undefined) throw new Error("a fork of guesses");
    const copy = new FakeSequence(this.engine, this.adapters);
    copy.tokens = [...this.tokens];
    return copy;
  }
  dispose(): void {
    this.disposed = true;
    this.engine.sequences.delete(this);
  }
}

export interface FakeOptions {
  /** Another chat template. */
  template?: string;
  n_ctx?: number;
  n_ubatch?: number;
  topK?: number;
  /** Tokens the cache holds over all sequences. */
  n_cache?: number;
  /** Sequences can be cut back to their end and to multiples of this, as those with windows or states. */
  keepsEvery?: number;
  /** Each step takes at least this long. */
  stepMs?: number;
  /** Tokens of /infill. */
  fim?: Partial<ServedModel["fim"]>;
  /** What is told of the machine. */
  machine?: ServedModel["machine"];
  /** Further names of the model. */
  aliases?: readonly string[];
  /** Adapters, of which requests get nothing until they say so. */
  adapters?: ServedModel["adapters"];
}

const NO_FIM = { prefix: null, suffix: null, middle: null, repository: null, separator: null };

export class FakeEngine implements TokenEngine<FakeSequence> {
  readonly oneStep = false;
  readonly n_rank = 0;
  readonly n_free = Infinity;
  readonly n_vocab = N_VOCAB;
  readonly n_ctx: number;
  readonly n_ubatch: number;
  readonly topK: number;
  readonly keepsEvery: number;
  readonly sequences = new Set<FakeSequence>();
  asleep = false;
  /** Rows of each request, step by step. */
  readonly log: number[][] = [];
  stepMs: number;
  /** Thrown by the next step, or the next waking. */
  failure: unknown;
  readonly #n_cache: number;
  #busy = false;

  constructor(readonly tokenizer: Tokenizer, options: FakeOptions = {}) {
    this.n_ctx = options.n_ctx ?? 512;
    this.n_ubatch = options.n_ubatch ?? 64;
    this.topK = options.topK ?? 64;
    this.keepsEvery = options.keepsEvery ?? 1;
    this.stepMs = options.stepMs ?? 0;
    this.#n_cache = options.n_cache ?? Infinity;
  }

  createSequence(adapters: readonly number[] = []): FakeSequence {
    return new FakeSequence(this, adapters);
  }

  hasRoom(wanted: readonly { readonly sequence: FakeSequence; readonly n: number }[]): boolean {
    const cached = [...this.sequences].reduce((n, s) => n + s.length, 0);
    return wanted.reduce((sum, { n }) => sum + n, cached) <= this.#n_cache;
  }

  snapshot(sequence: FakeSequence): Snapshot {
    if (this.#busy) throw new Error("a snapshot while a step runs");
    return {
      tokens: [...sequence.tokens],
      adapters: sequence.adapters,
      caches: [{ places: [0], data: new Uint8Array(4 * sequence.length) }],
    };
  }

  restore({ tokens, adapters }: Snapshot): FakeSequence {
    if (this.#busy) throw new Error("a restore while a step runs");
    const cached = [...this.sequences].reduce((n, s) => n + s.length, 0);
    if (cached + tokens.length > this.#n_cache) throw new EngineError("engine.no_pages", "The cache is full");
    const sequence = new FakeSequence(this, adapters);
    sequence.tokens = [...tokens];
    return sequence;
  }

  sleep(): void {
    if (this.#busy || this.sequences.size > 0) throw new Error("sleeps while something is left");
    this.asleep = true;
  }

  async wake(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (this.failure !== undefined) throw this.#take();
    this.asleep = false;
  }

  #take(): unknown {
    const { failure } = this;
    this.failure = undefined;
    return failure;
  }

  async step(requests: readonly TokenRequest<FakeSequence>[]): Promise<StepOutput[]> {
    if (this.#busy) throw new Error("two steps at once");
    const n_tok = requests.reduce((n, r) => n + r.tokens.length, 0);
    if (n_tok === 0 || n_tok > this.n_ubatch) throw new Error(`a step of ${n_tok} tokens`);
    if (new Set(requests.map((r) => r.sequence)).size !== requests.length) throw new Error("a sequence twice");
    this.#busy = true;
    try {
      if (this.stepMs > 0) await new Promise((resolve) => setTimeout(resolve, this.stepMs));
      if (this.asleep) throw new Error("a step while it sleeps");
      if (this.failure !== undefined) throw this.#take();
      const cached = [...this.sequences].reduce((n, s) => n + s.length, 0);
      if (cached + n_tok > this.#n_cache) throw new EngineError("engine.no_pages", "The cache is full");
      this.log.push(requests.map((r) => r.tokens.length));
      return requests.map((r) => this.#run(r));
    } finally {
      this.#busy = false;
    }
  }

  #run({ sequence, tokens, output, want, targets, guesses }: TokenRequest<FakeSequence>): StepOutput {
    if (sequence.disposed) throw new Error("a disposed sequence");
    if (sequence.marked !== undefined) throw new Error("guesses that were not judged");
    if (guesses) sequence.marked = sequence.length;
    const first = tokens.length -
      (output === "all" ? tokens.length : output === "last" || output === "first" ? 1 : output === "none" ? 0 : output);
    if (sequence.length + tokens.length > this.n_ctx) {
      throw new EngineError("engine.context_full", "The context is full");
    }
    const rows: Float32Array[] = [];
    for (let i = 0; i < tokens.length; i++) {
      sequence.tokens.push(tokens[i]);
      if (i >= first) rows.push(logitsOf(sequence.tokens, this.tokenizer));
    }
    const ids = new Int32Array(rows.length * this.topK), logits = new Float32Array(rows.length * this.topK);
    const lse = new Float32Array(rows.length), targetLogprob = new Float32Array(rows.length);
    rows.forEach((row, i) => {
      const order = Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b).slice(0, this.topK);
      ids.set(order, i * this.topK);
      logits.set(order.map((id) => row[id]), i * this.topK);
      const max = row[order[0]];
      lse[i] = max + Math.log(row.reduce((sum, x) => sum + Math.exp(x - max), 0));
      const target = targets?.[i] ?? -1;
      targetLogprob[i] = target < 0 ? 0 : row[target] - lse[i];
    });
    const out = { n_rows: rows.length, ids, logits, lse, targetLogprob };
    if (want !== "logits") return out;
    const full = new Float32Array(rows.length * N_VOCAB);
    rows.forEach((row, i) => full.set(row, i * N_VOCAB));
    return { ...out, full };
  }
}

/** ChatML with reasoning and Hermes-style tool calls, as the Qwen3 family has it. */
export const TEMPLATE = `{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "bad" %}{{ raise_exception("No role bad here") }}{% endif %}
<|im_start|>{{ message.role }}
{% if message.role == "assistant" and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}`;

/** A served fake. */
export function fakeModel(options: FakeOptions = {}): ServedModel & { engine: FakeEngine } {
  const tokenizer = fakeTokenizer();
  return {
    id: "fake",
    aliases: options.aliases ?? [],
    path: "fake.gguf",
    created: 1700000000,
    meta: { architecture: "fake", n_ctx_train: 512, n_embd: 1, n_params: 1, size: 1, vocab_type: "fake" },
    ...(options.machine === undefined ? {} : { machine: options.machine }),
    engine: new FakeEngine(tokenizer, options),
    tokenizer,
    chat: chatFormat(options.template ?? TEMPLATE, { bosToken: "<s>", eosToken: "<|im_end|>" }, tokenizer),
    fim: { ...NO_FIM, ...options.fim },
    digest: () => Promise.resolve("fake"),
    adapters: options.adapters ?? [],
    adapterScales: options.adapters?.map(() => 0) ?? [],
    sampling: {},
  };
}
