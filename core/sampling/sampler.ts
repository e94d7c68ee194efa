/**
 * The sampler chain: a row of logits to one token.
 *
 * Order (llama.cpp's): logit_bias, penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature, and a
 * draw, plain or adaptive. The result depends on parameters, seed, accepted tokens and logits alone; every draw takes one random number,
 * so the short path over candidates and the path over the full row choose the same tokens.
 * @module
 */
import { TextError } from "../errors.ts";
import { argmax, bestIds, Candidates, logSumExp, MAX_VOCAB, orderedIds } from "./candidates.ts";
import { defaultSampling, type SamplerName, type SamplingParams } from "./params.ts";
import { Random } from "./random.ts";
import { AdaptiveTarget, dryPenalties, minP, temperature, topP, typical, xtc } from "./stages.ts";

/** A token and its share of a draw. */
export interface TokenProb {
  id: number;
  prob: number;
}

/** Chooses tokens, and remembers those that it chose. */
export class Sampler {
  /** In force, defaults included. */
  readonly params: Readonly<SamplingParams>;
  /** The seed in use; differs from the parameter's where that asked for a fresh one. */
  readonly seed: number;
  /**
   * Best candidates that the chain needs to see (`sampleCandidates`), or 0 where it needs the full row: with
   * biases or penalties, without a top_k, or where a stage before top_k looks at all logits.
   */
  readonly candidatesEnough: number;

  readonly #nVocab: number;
  readonly #random: Random;
  readonly #stages: SamplerName[];
  readonly #greedy: boolean;
  #history: number[] = [];
  #counts = new Map<number, number>();
  #scratch: Float32Array | undefined;
  #mu: number;
  /** What the last token was drawn from: weights of ids, or of all ids in order where `ids` is undefined. */
  #drawn: { ids?: ArrayLike<number>; weights: ArrayLike<number>; sum: number } = { weights: [], sum: 1 };
  readonly #adaptive: AdaptiveTarget | undefined;

  /** `params` are differences from `defaultSampling`. */
  constructor(params: Partial<SamplingParams>, n_vocab: number) {
    const p = this.params = { ...defaultSampling, ...params };
    if (!(p.dry_base >= 1)) p.dry_base = defaultSampling.dry_base;
    if (n_vocab > MAX_VOCAB) throw new Error(`vocabulary of ${n_vocab} exceeds ${MAX_VOCAB}`);
    this.#nVocab = n_vocab;
    const fresh = p.seed < 0 || p.seed === 0xffffffff || !Number.isFinite(p.seed);
    this.seed = fresh ? crypto.getRandomValues(new Uint32Array(1))[0] : p.seed >>> 0;
    this.#random = new Random(this.seed);
    this.#mu = 2 * p.mirostat_tau;
    if (p.adaptive_target >= 0 && p.mirostat === 0) {
      this.#adaptive = new AdaptiveTarget(p.adaptive_target, p.adaptive_decay);
    }

    const active: Record<SamplerName, boolean> = {
      penalties: p.repeat_last_n !== 0 &&
        (p.repeat_penalty !== 1 || p.presence_penalty !== 0 || p.frequency_penalty !== 0),
      dry: p.dry_multiplier !== 0 && p.dry_penalty_last_n !== 0,
      top_n_sigma: p.top_n_sigma > 0,
      top_k: p.top_k > 0,
      typ_p: p.typical_p < 1,
      top_p: p.top_p < 1,
      min_p: p.min_p > 0,
      xtc: p.xtc_probability > 0 && p.xtc_threshold <= 0.5,
      temperature: p.temperature <= 0 || p.temperature !== 1 || p.dynatemp_range > 0,
    };
    const order = p.mirostat > 0 ? (["penalties", "dry", "temperature"] as const) : p.samplers;
    this.#stages = order.filter((name) => active[name]);
    const has = (name: SamplerName) => this.#stages.includes(name);
    // Typical sampling and XTC may drop the best candidate; no other stage does.
    this.#greedy = p.temperature <= 0 && p.dynatemp_range <= 0 && has("temperature") && !has("typ_p") && !has("xtc");
    const whole = p.logit_bias.size > 0 || has("penalties") || has("dry") || p.mirostat > 0;
    this.candidatesEnough = whole
      ? 0
      : this.#greedy
      ? 1
      : this.#stages[0] === "top_k"
      ? Math.min(Math.max(p.top_k, p.min_keep, 1), n_vocab)
      : 0;
  }

  /** Tells the chain of a token of the text, prompt or chosen. */
  accept(token: number): void {
    const { repeat_last_n: window, dry_penalty_last_n: dryWindow } = this.params;
    this.#history.push(token);
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1);
    if (window > 0 && this.#history.length > window) {
      const old = this.#history[this.#history.length - 1 - window];
      const left = this.#counts.get(old)! - 1;
      if (left > 0) this.#counts.set(old, left);
      else this.#counts.delete(old);
    }
    const longest = Math.max(window, dryWindow);
    const bounded = window >= 0 && (dryWindow >= 0 || this.params.dry_multiplier === 0);
    if (bounded && this.#history.length > 2 * longest + 1024) this.#history = this.#history.slice(-longest - 1);
  }

  /**
   * Chooses from a full row; the row stays as it is.
   * @param logits `[n_vocab]` f32; -Infinity and NaN are never chosen.
   * @throws {TextError} `text.no_candidate` where no logit is above -Infinity.
   */
  sample(logits: Float32Array): { token: number } {
    if (logits.length !== this.#nVocab) throw new Error(`row of ${logits.length} logits, vocabulary ${this.#nVocab}`);
    const row = this.#adjust(logits);
    if (this.params.mirostat > 0 && this.params.temperature > 0) return { token: this.#mirostat(row) };
    if (this.#greedy || this.params.mirostat > 0) return { token: this.#sure(this.#found(argmax(row))) };
    const rest = this.#stages.filter((name) => name !== "penalties" && name !== "dry");
    const plain = this.params.dynatemp_range <= 0 && this.#adaptive === undefined;
    if (plain && rest.every((name) => name === "temperature")) {
      return { token: this.#pickFromRow(row, rest.length > 0 ? this.params.temperature : 1) };
    }
    const { candidates, done } = this.#narrow(row, rest[0]);
    if (candidates.length === 0) this.#found(-1);
    return { token: this.#draw(candidates, done ? rest.slice(1) : rest) };
  }

  /**
   * Chooses from the best candidates of a row; `candidatesEnough` of them give what the full row would.
   * @param ids Best first, ties by lower id.
   * @param logits Their logits.
   * @param lse `log(sum(exp))` of the full row, for the chosen token's log probability.
   */
  sampleCandidates(ids: Int32Array, logits: Float32Array, lse: number): { token: number; logprob: number } {
    let n = Math.min(ids.length, this.candidatesEnough);
    while (n > 0 && !(logits[n - 1] > -Infinity)) n--;
    if (n === 0) this.#found(-1);
    const token = this.#greedy
      ? this.#sure(ids[0])
      : this.#draw(new Candidates(ids.slice(0, n), Float64Array.from(logits.subarray(0, n))), this.#stages.slice(1));
    return { token, logprob: logits[ids.indexOf(token)] - lse };
  }

  /**
   * Probabilities of the last choice behind all stages: of the chosen token, and of the `n` likeliest, none of them 0.
   * Read it before the next choice.
   * @internal
   */
  lastDraw(chosen: number, n: number): { prob: number; top: TokenProb[] } {
    const { ids, weights, sum } = this.#drawn;
    const all: TokenProb[] = [];
    let prob = 0;
    for (let i = 0; i < weights.length; i++) {
      const id = ids === undefined ? i : ids[i];
      if (weights[i] > 0) all.push({ id, prob: weights[i] / sum });
      if (id === chosen) prob = weights[i] / sum;
    }
    all.sort((a, b) => b.prob - a.prob || a.id - b.id);
    return { prob, top: all.slice(0, n) };
  }

  /** A token that was not drawn but had to be. */
  #sure(token: number): number {
    this.#drawn = { ids: [token], weights: [1], sum: 1 };
    return token;
  }

  #found(token: number): number {
    if (token < 0) {
      throw new TextError("text.no_candidate", "Cannot choose a token: every candidate is forbidden", {
        hint: "logit_bias, a grammar or banned tokens leave nothing to choose from",
      });
    }
    return token;
  }

  /** The row with biases and penalties, in a scratch copy where there are any. */
  #adjust(logits: Float32Array): Float32Array {
    const p = this.params;
    const penalties = this.#stages.includes("penalties") && this.#counts.size > 0;
    const dry = this.#stages.includes("dry") && this.#history.length > 1;
    if (p.logit_bias.size === 0 && !penalties && !dry) return logits;
    const row = this.#scratch ??= new Float32Array(this.#nVocab);
    row.set(logits);
    for (const [id, bias] of p.logit_bias) if (id >= 0 && id < row.length) row[id] += bias;
    if (penalties) {
      for (const [id, count] of this.#counts) {
        if (id < 0 || id >= row.length) continue;
        const scaled = row[id] > 0 ? row[id] / p.repeat_penalty : row[id] * p.repeat_penalty;
        row[id] = scaled - count * p.frequency_penalty - p.presence_penalty;
      }
    }
    if (dry) {
      const window = p.dry_penalty_last_n < 0 ? this.#history : this.#history.slice(-p.dry_penalty_last_n);
      const found = dryPenalties(window, p.dry_breakers, {
        multiplier: p.dry_multiplier,
        base: p.dry_base,
        allowed: p.dry_allowed_length,
      });
      for (const [id, penalty] of found) if (id >= 0 && id < row.length) row[id] -= penalty;
    }
    return row;
  }

  /** The first list of candidates, by `stage` itself where it can work on the row (`done`), else all in order. */
  #narrow(row: Float32Array, stage: SamplerName | undefined): { candidates: Candidates; done: boolean } {
    const p = this.params, keep = Math.max(1, p.min_keep);
    const list = (ids: Int32Array) => ({ candidates: Candidates.of(row, ids), done: true });
    const atLeast = (floor: number) => {
      const ids = orderedIds(row, floor);
      return list(ids.length >= keep ? ids : bestIds(row, keep));
    };
    switch (stage) {
      case "top_k":
        return list(bestIds(row, Math.max(p.top_k, keep)));
      case "min_p":
        return atLeast(row[this.#found(argmax(row))] + Math.log(p.min_p));
      case "top_n_sigma":
        return atLeast(row[this.#found(argmax(row))] - p.top_n_sigma * deviation(row));
      case "top_p": {
        const lse = logSumExp(row);
        // The head of 128 nearly always holds the mass; a flat distribution takes the whole order.
        for (const k of [Math.max(128, keep), row.length]) {
          const candidates = Candidates.of(row, bestIds(row, k));
          const mass = new Float64Array(candidates.length);
          let sum = 0;
          for (let i = 0; i < mass.length; i++) sum += mass[i] = Math.exp(candidates.logits[i] - lse);
          if (k < row.length && sum < p.top_p) continue;
          topP(candidates, p.top_p, keep, mass);
          return { candidates, done: true };
        }
        break;
      }
    }
    return { candidates: Candidates.of(row, orderedIds(row, -Infinity)), done: false };
  }

  /** Runs the stages that are left over a list and draws from it. */
  #draw(c: Candidates, stages: readonly SamplerName[]): number {
    const p = this.params, keep = Math.max(1, p.min_keep);
    for (const name of stages) {
      switch (name) {
        case "top_k":
          c.slice(0, Math.min(c.length, Math.max(p.top_k, keep)));
          break;
        case "typ_p":
          typical(c, p.typical_p, keep);
          break;
        case "top_p":
          topP(c, p.top_p, keep);
          break;
        case "min_p":
          minP(c, p.min_p, keep);
          break;
        case "top_n_sigma": {
          const floor = c.logits[0] - p.top_n_sigma * deviation(c.logits);
          let n = 1;
          while (n < c.length && (n < keep || c.logits[n] >= floor)) n++;
          c.slice(0, n);
          break;
        }
        case "xtc":
          if (this.#random.next() < p.xtc_probability) xtc(c, p.xtc_threshold, keep);
          break;
        case "temperature":
          temperature(c, p.temperature, p.dynatemp_range, p.dynatemp_exponent);
          break;
      }
    }
    const probabilities = c.probabilities();
    this.#drawn = { ids: c.ids, weights: probabilities, sum: 1 };
    if (this.#adaptive === undefined) return this.#pick(c.ids, probabilities);
    const token = this.#pick(c.ids, this.#adaptive.weigh(probabilities));
    this.#adaptive.accept(probabilities[c.ids.indexOf(token)]);
    return token;
  }

  #pick(ids: Int32Array, probabilities: Float64Array): number {
    let left = this.#random.next();
    for (let i = 0; i < ids.length; i++) {
      left -= probabilities[i];
      if (left < 0) return ids[i];
    }
    // Rounding may leave a crumb: it belongs to the last candidate that has any probability.
    for (let i = ids.length - 1; i > 0; i--) if (probabilities[i] > 0) return ids[i];
    return ids[0];
  }

  /** A draw where nothing truncates: in order of id, since no order is needed. */
  #pickFromRow(row: Float32Array, t: number): number {
    const max = row[this.#found(argmax(row))];
    const weight = new Float64Array(row.length);
    let sum = 0;
    for (let i = 0; i < row.length; i++) if (row[i] > -Infinity) sum += weight[i] = Math.exp((row[i] - max) / t);
    this.#drawn = { weights: weight, sum };
    let left = this.#random.next() * sum, last = 0;
    for (let i = 0; i < row.length; i++) {
      if (weight[i] === 0) continue;
      left -= weight[last = i];
      if (left < 0) break;
    }
    return last;
  }

  /**
   * Mirostat 1 and 2: truncates so that the surprise of the choice (in bits) stays near tau.
   * Basu et al. 2020, arXiv 2007.14966.
   */
  #mirostat(row: Float32Array): number {
    const p = this.params;
    const c = Candidates.of(row, orderedIds(row, -Infinity));
    if (c.length === 0) this.#found(-1);
    temperature(c, p.temperature, p.dynatemp_range, p.dynatemp_exponent);
    const before = c.probabilities();
    if (p.mirostat === 2) {
      let n = 1;
      while (n < c.length && -Math.log2(before[n]) <= this.#mu) n++;
      c.slice(0, n);
    } else {
      // Zipf exponent from the best hundred, then the head size that meets the target.
      let top = 0, bottom = 0;
      for (let i = 0; i < Math.min(100, c.length) - 1; i++) {
        const t = Math.log((i + 2) / (i + 1)), b = Math.log(before[i] / before[i + 1]);
        top += t * b;
        bottom += t * t;
      }
      const s = bottom > 0 ? top / bottom : 1, epsilon = s - 1;
      const k = Math.pow((epsilon * Math.pow(2, this.#mu)) / (1 - Math.pow(c.length, -epsilon)), 1 / s);
      c.slice(0, Math.min(c.length, Number.isFinite(k) ? Math.max(1, Math.round(k)) : c.length));
    }
    const after = c.probabilities();
    this.#drawn = { ids: c.ids, weights: after, sum: 1 };
    const token = this.#pick(c.ids, after);
    const surprise = -Math.log2(after[c.ids.indexOf(token)]);
    this.#mu -= p.mirostat_eta * (surprise - p.mirostat_tau);
    return token;
  }
}

/** Standard deviation of the finite entries. */
function deviation(row: ArrayLike<number>): number {
  let n = 0, sum = 0;
  for (let i = 0; i < row.length; i++) {
    if (Number.isFinite(row[i])) {
      n++;
      sum += row[i];
    }
  }
  const mean = sum / n;
  let squares = 0;
  for (let i = 0; i < row.length; i++) if (Number.isFinite(row[i])) squares += (row[i] - mean) ** 2;
  return n === 0 ? 0 : Math.sqrt(squares / n);
}
