import assert from "node:assert/strict";
import fc from "npm:fast-check@4.11.0";
import { TextError } from "../errors.ts";
import { bestIds, logSumExp, orderedIds } from "./candidates.ts";
import { Sampler, type SamplingParams, topLogprobs } from "./mod.ts";
import { Random } from "./random.ts";
import { AdaptiveTarget, dryPenalties } from "./stages.ts";

/** A chain in which only the given parameters do anything. */
const only = (p: Partial<SamplingParams>): Partial<SamplingParams> => ({
  temperature: 1,
  top_k: 0,
  top_p: 1,
  min_p: 0,
  seed: 7,
  ...p,
});

const row = (...logits: number[]) => Float32Array.from(logits);
const logs = (...probabilities: number[]) => Float32Array.from(probabilities, Math.log);

/** Shares of the tokens over many draws. */
function shares(params: Partial<SamplingParams>, logits: Float32Array, draws = 20_000): number[] {
  const s = new Sampler(params, logits.length);
  const n = new Array(logits.length).fill(0);
  for (let i = 0; i < draws; i++) n[s.sample(logits).token]++;
  return n.map((x) => x / draws);
}

/** Five standard deviations of a share. */
function assertShares(actual: number[], expected: number[], draws = 20_000): void {
  expected.forEach((p, i) => {
    const bound = 5 * Math.sqrt(p * (1 - p) / draws) + 1e-9;
    assert.ok(Math.abs(actual[i] - p) <= bound, `token ${i}: share ${actual[i]}, expected ${p} ± ${bound}`);
  });
}

const logit = fc.oneof(
  fc.integer({ min: -4, max: 4 }), // ties
  fc.float({ noNaN: true, min: -30, max: 30 }),
  fc.constant(-Infinity),
);

const reference = (logits: Float32Array) =>
  [...logits.keys()].filter((i) => logits[i] > -Infinity).sort((a, b) => logits[b] - logits[a] || a - b);

Deno.test("bestIds() and orderedIds() order by logit, ties by lower id", () => {
  fc.assert(fc.property(fc.array(logit, { minLength: 1, maxLength: 2000 }), fc.integer({ min: 1, max: 50 }), (l, k) => {
    const logits = Float32Array.from(l);
    assert.deepEqual([...bestIds(logits, k)], reference(logits).slice(0, k));
    assert.deepEqual([...orderedIds(logits, -Infinity)], reference(logits));
    assert.deepEqual([...orderedIds(logits, 1)], reference(logits).filter((i) => logits[i] >= 1));
  }));
  assert.deepEqual([...bestIds(row(NaN, 1, -0, 0), 4)].slice(0, 3), [1, 2, 3]);
});

Deno.test("bestIds() finds the best of a large vocabulary in any arrangement", () => {
  const rising = Float32Array.from({ length: 150_000 }, (_, i) => i);
  assert.deepEqual([...bestIds(rising, 3)], [149_999, 149_998, 149_997]);
  assert.deepEqual([...bestIds(rising.slice().reverse(), 3)], [0, 1, 2]);
  assert.deepEqual([...bestIds(new Float32Array(150_000), 3)], [0, 1, 2]);
});

Deno.test("Sampler at temperature 0 takes the best token, the lower id on ties", () => {
  const s = new Sampler({ temperature: 0 }, 5);
  assert.equal(s.sample(row(1, 3, 2, 3, NaN)).token, 1);
  assert.equal(s.candidatesEnough, 1);
  assert.equal(s.sampleCandidates(Int32Array.of(1), row(3), 3.5).token, 1);
});

Deno.test("Sampler gives the same tokens for the same seed and others for another", () => {
  const logits = Float32Array.from({ length: 100 }, (_, i) => Math.sin(i));
  const run = (seed: number) => {
    const s = new Sampler(only({ seed }), 100);
    return Array.from({ length: 50 }, () => s.sample(logits).token);
  };
  assert.deepEqual(run(1), run(1));
  assert.notDeepEqual(run(1), run(2));
  assert.ok(new Sampler({}, 100).seed >= 0);
});

Deno.test("Random is uniform and fixed by its seed", () => {
  const r = new Random(42);
  const buckets = new Array(10).fill(0);
  for (let i = 0; i < 100_000; i++) buckets[Math.floor(r.next() * 10)]++;
  for (const n of buckets) assert.ok(Math.abs(n - 10_000) < 5 * Math.sqrt(9_000), `${buckets}`);
});

Deno.test("Sampler draws in proportion, sharpened or flattened by the temperature", () => {
  const p = [0.5, 0.3, 0.15, 0.05];
  assertShares(shares(only({}), logs(...p)), p);
  const cold = p.map((x) => x ** 2), sum = cold.reduce((a, b) => a + b);
  assertShares(shares(only({ temperature: 0.5 }), logs(...p)), cold.map((x) => x / sum));
});

Deno.test("Sampler's truncations keep exactly what they define", () => {
  const p = logs(0.05, 0.5, 0.15, 0.3);
  assertShares(shares(only({ top_k: 2 }), p), [0, 0.625, 0, 0.375]);
  assertShares(shares(only({ top_p: 0.79 }), p), [0, 0.625, 0, 0.375]);
  assertShares(shares(only({ top_p: 0.81 }), p), [0, 0.5 / 0.95, 0.15 / 0.95, 0.3 / 0.95]);
  assertShares(shares(only({ min_p: 0.59 }), p), [0, 0.625, 0, 0.375]);
  assertShares(shares(only({ min_p: 0.61 }), p), [0, 1, 0, 0]);
  assertShares(shares(only({ min_p: 0.61, min_keep: 2 }), p), [0, 0.625, 0, 0.375]);
  // top_p counts mass among what top_k left: 0.5 / 0.8 = 0.625
  assertShares(shares(only({ top_k: 2, top_p: 0.62 }), p), [0, 1, 0, 0]);
  // Deviation of the logits is 0.87, so one sigma below log(0.5) lies between log(0.15) and log(0.3).
  assertShares(shares(only({ top_n_sigma: 1 }), p), [0, 0.625, 0, 0.375]);
});

Deno.test("Sampler's typical_p prefers what is as surprising as expected", () => {
  // Entropy 1.14 nats; surprises 2.996, 0.693, 1.897, 1.204: the nearest are 0.3 (0.06), 0.5 (0.45), 0.15 (0.76).
  const p = logs(0.05, 0.5, 0.15, 0.3);
  assertShares(shares(only({ typical_p: 0.2 }), p), [0, 0, 0, 1]);
  assertShares(shares(only({ typical_p: 0.7 }), p), [0, 0.625, 0, 0.375]);
});

Deno.test("Sampler's xtc removes all top choices but the last, as often as asked", () => {
  const p = logs(0.05, 0.5, 0.15, 0.3);
  assertShares(shares(only({ xtc_probability: 1, xtc_threshold: 0.2 }), p), [0.1, 0, 0.3, 0.6]);
  const half = shares(only({ xtc_probability: 0.5, xtc_threshold: 0.2 }), p);
  assertShares(half, [0.075, 0.25, 0.225, 0.45]);
});

Deno.test("Sampler's dynamic temperature is low for the sure and high for the unsure", () => {
  const even = shares(only({ temperature: 1, dynatemp_range: 0.5 }), logs(0.5, 0.5));
  assertShares(even, [0.5, 0.5]);
  const sure = shares(only({ temperature: 1, dynatemp_range: 1 }), logs(0.98, 0.02));
  // Entropy / log 2 is 0.1414, so the temperature is 0.2829 and the odds are 49^(1 / 0.2829).
  assert.ok(sure[0] > 0.999);
});

Deno.test("Sampler's penalties follow their formula over the last repeat_last_n tokens", () => {
  const logits = row(2, -1, 1.5, 0);
  const after = (params: Partial<SamplingParams>, history: number[]) => {
    const s = new Sampler({ temperature: 0, ...params }, 4);
    history.forEach((t) => s.accept(t));
    assert.equal(s.candidatesEnough, 0);
    return s.sample(logits).token;
  };
  assert.equal(after({ repeat_penalty: 1.5 }, [0]), 2); // 2 / 1.5 < 1.5
  assert.equal(after({ repeat_penalty: 1.3 }, [0]), 0); // 2 / 1.3 > 1.5
  assert.equal(after({ presence_penalty: 0.6 }, [0]), 2);
  assert.equal(after({ presence_penalty: 0.4 }, [0, 0]), 0);
  assert.equal(after({ frequency_penalty: 0.3 }, [0, 0]), 2);
  assert.equal(after({ frequency_penalty: 0.3, repeat_last_n: 1 }, [0, 0]), 0);
  assert.equal(after({ presence_penalty: 0.6, repeat_last_n: 2 }, [0, 3, 3]), 0);
  assert.equal(after({ presence_penalty: 0.6, repeat_last_n: -1 }, [0, ...new Array(500).fill(3)]), 2);
  assert.equal(after({ repeat_penalty: 1.5, repeat_last_n: 64 }, [0, ...new Array(5000).fill(3)]), 0);
});

Deno.test("dryPenalties() punishes what would extend a repetition, not across breakers", () => {
  const o = { multiplier: 1, base: 2, allowed: 2 };
  // "1 2 3 4" came before and the text ends with "1 2 3": 4 would repeat four, its stem is three long.
  assert.deepEqual(dryPenalties([1, 2, 3, 4, 9, 1, 2, 3], new Set(), o), new Map([[4, 2]]));
  assert.deepEqual(dryPenalties([1, 2, 3, 4, 9, 1, 2, 3], new Set([2]), o), new Map());
  assert.deepEqual(dryPenalties([3, 4, 9, 3], new Set(), o), new Map());
});

Deno.test("Sampler's dry takes multiplier * base ^ (length - allowed) from what repeats the last tokens", () => {
  const history = [1, 2, 3, 0, 9, 1, 2, 3]; // 0 would repeat what came behind "1 2 3"
  const wins = (margin: number, params: Partial<SamplingParams>) => {
    const s = new Sampler({ temperature: 0, dry_multiplier: 1, ...params }, 10);
    for (const t of history) s.accept(t);
    return s.sample(row(margin, 0, 0, 0, 0, 0, 0, 0, 0, 0)).token === 0;
  };
  const follows = (penalty: number, params: Partial<SamplingParams>) => {
    assert.ok(wins(penalty + 0.01, params), JSON.stringify(params));
    assert.ok(!wins(penalty - 0.01, params), JSON.stringify(params));
  };
  follows(1.75, {}); // 1 * 1.75 ^ (3 - 2)
  follows(0.8 * 2 ** 2, { dry_multiplier: 0.8, dry_base: 2, dry_allowed_length: 1 });
  follows(1, { dry_allowed_length: 3 });
  follows(1.75, { dry_base: 0.5 });
  follows(1, { dry_penalty_last_n: 7 }); // "2 3" is all that is left of the repetition
  assert.ok(wins(0.01, { dry_penalty_last_n: 0 }));
  assert.ok(wins(0.01, { dry_breakers: new Set([3]) }));
});

Deno.test("Sampler's stages run in the order of samplers", () => {
  const p = logs(0.4, 0.3, 0.2, 0.1);
  // The mass of the first two is 0.7 of all and all of what top_k leaves.
  const shape = { top_k: 2, top_p: 0.6 };
  assertShares(shares(only({ ...shape, samplers: ["top_k", "top_p"] }), p), [4 / 7, 3 / 7, 0, 0]);
  assertShares(shares(only({ top_k: 2, top_p: 0.55, samplers: ["top_k", "top_p"] }), p), [1, 0, 0, 0]);
  assertShares(shares(only({ top_k: 2, top_p: 0.55, samplers: ["top_p", "top_k"] }), p), [4 / 7, 3 / 7, 0, 0]);
  assertShares(shares(only({ ...shape, samplers: [] }), p), [0.4, 0.3, 0.2, 0.1]);
  // Cold first, min_p sees the sharper distribution.
  const cold = { temperature: 0.5, min_p: 0.45 };
  assertShares(shares(only({ ...cold, samplers: ["min_p", "temperature"] }), p), [16 / 29, 9 / 29, 4 / 29, 0]);
  assertShares(shares(only({ ...cold, samplers: ["temperature", "min_p"] }), p), [16 / 25, 9 / 25, 0, 0]);
});

Deno.test("Sampler's stages leave min_keep candidates", () => {
  const p = logs(0.4, 0.3, 0.2, 0.1);
  for (const stage of [{ top_k: 1 }, { top_p: 0.1 }, { min_p: 1 }, { typical_p: 0.01 }, { top_n_sigma: 0.01 }]) {
    const kept = shares(only({ ...stage, min_keep: 3 }), p, 2000).filter((x) => x > 0).length;
    assert.equal(kept, 3, JSON.stringify(stage));
  }
  const all = shares(only({ xtc_probability: 1, xtc_threshold: 0.15, min_keep: 3 }), p, 2000);
  assert.ok(all.every((x) => x > 0), "xtc would leave two, and removes nothing");
});

const FIRST = 4000;
/** Shares of the first draw of many samplers. */
function firstShares(params: Partial<SamplingParams>, logits: Float32Array): number[] {
  const n = new Array(logits.length).fill(0);
  for (let seed = 0; seed < FIRST; seed++) {
    n[new Sampler(only({ ...params, seed }), logits.length).sample(logits).token]++;
  }
  return n.map((x) => x / FIRST);
}

Deno.test("Sampler's mirostat 2 keeps what surprises at most mu, which starts at twice tau and follows the choices", () => {
  const p = logs(0.5, 0.25, 0.125, 0.125);
  assertShares(firstShares({ mirostat: 2, mirostat_tau: 1.05 }, p), [2 / 3, 1 / 3, 0, 0], FIRST);
  assertShares(firstShares({ mirostat: 2, mirostat_tau: 1.55 }, p), [0.5, 0.25, 0.125, 0.125], FIRST);
  assertShares(firstShares({ mirostat: 2, mirostat_tau: 0.1 }, p), [1, 0, 0, 0], FIRST);
  // One certain choice has no surprise: mu grows by eta * tau, to 0.2 + 9 * 0.1 and then beyond the 2 bits of the second.
  const s = new Sampler(only({ mirostat: 2, mirostat_tau: 0.1, mirostat_eta: 9 }), 4);
  const seen = Array.from({ length: 4 }, () => s.sample(p).token);
  assert.deepEqual(seen.slice(0, 2), [0, 0], `${seen}`);
});

Deno.test("Sampler's mirostat 1 keeps as many as Zipf's law says", () => {
  const n = 50, s = 1.2, zipf = logs(...Array.from({ length: n }, (_, i) => (i + 1) ** -s));
  // With p(i) ~ i^-s the head whose surprise is mu has ((s - 1) 2^mu / (1 - n^(1 - s)))^(1 / s) members.
  for (const tau of [0.5, 1, 1.5]) {
    const k = Math.round((((s - 1) * 2 ** (2 * tau)) / (1 - n ** (1 - s))) ** (1 / s));
    const kept = firstShares({ mirostat: 1, mirostat_tau: tau }, zipf).filter((x) => x > 0).length;
    assert.equal(kept, Math.max(1, k), `tau ${tau}`);
  }
});

Deno.test("Sampler's logit_bias is added before all else and can forbid", () => {
  const s = new Sampler({ temperature: 0, logit_bias: new Map([[0, -Infinity], [3, 5], [99, 1]]) }, 4);
  assert.equal(s.sample(row(9, 1, 2, 0)).token, 3);
});

Deno.test("Sampler refuses a row without candidates by name", () => {
  const forbidden = row(-Infinity, -Infinity, NaN);
  for (
    const p of [{ temperature: 0 }, {}, only({}), only({ min_p: 0.1 }), only({ top_p: 0.5 }), { mirostat: 2 as const }]
  ) {
    const s = new Sampler(p, 3);
    assert.throws(() => s.sample(forbidden), (e) => e instanceof TextError && e.code === "text.no_candidate");
  }
});

Deno.test("Sampler chooses the same token from candidates as from the full row", () => {
  const params: Partial<SamplingParams>[] = [{}, { top_k: 5, top_p: 0.5 }, { xtc_probability: 0.5 }, {
    temperature: 0,
  }];
  fc.assert(fc.property(
    fc.array(fc.float({ noNaN: true, min: -20, max: 20 }), { minLength: 1, maxLength: 300 }),
    fc.constantFrom(...params),
    fc.nat(),
    (l, p, seed) => {
      const logits = Float32Array.from(l), lse = logSumExp(logits);
      const full = new Sampler({ ...p, seed }, l.length), short = new Sampler({ ...p, seed }, l.length);
      assert.ok(short.candidatesEnough > 0);
      for (let i = 0; i < 5; i++) {
        const ids = bestIds(logits, short.candidatesEnough);
        const a = full.sample(logits), b = short.sampleCandidates(ids, Float32Array.from(ids, (id) => logits[id]), lse);
        assert.equal(a.token, b.token);
        assert.equal(b.logprob, logits[b.token] - lse);
      }
    },
  ));
});

Deno.test("Sampler never chooses a forbidden token, whatever the parameters", () => {
  const params = fc.record({
    temperature: fc.constantFrom(0, 0.5, 1, 2),
    top_k: fc.constantFrom(0, 1, 40),
    top_p: fc.constantFrom(0.1, 0.9, 1),
    min_p: fc.constantFrom(0, 0.05, 1),
    typical_p: fc.constantFrom(0.2, 1),
    top_n_sigma: fc.constantFrom(-1, 0.5),
    xtc_probability: fc.constantFrom(0, 1),
    dynatemp_range: fc.constantFrom(0, 0.7),
    mirostat: fc.constantFrom<0 | 1 | 2>(0, 0, 1, 2),
    repeat_penalty: fc.constantFrom(1, 1.2),
    dry_multiplier: fc.constantFrom(0, 0.8),
    min_keep: fc.constantFrom(0, 3),
    seed: fc.nat(),
  });
  fc.assert(
    fc.property(fc.array(logit, { minLength: 2, maxLength: 60 }), params, (l, p) => {
      const logits = Float32Array.from(l);
      logits[0] = 1;
      const s = new Sampler(p, l.length);
      for (let i = 0; i < 6; i++) {
        const { token } = s.sample(logits);
        assert.ok(logits[token] > -Infinity, `token ${token}`);
        s.accept(token);
      }
    }),
    { numRuns: 500 },
  );
});

Deno.test("Sampler's mirostat holds the surprise near its target", () => {
  const logits = Float32Array.from({ length: 1000 }, (_, i) => -Math.log(i + 1));
  for (const mirostat of [1, 2] as const) {
    const s = new Sampler({ temperature: 1, mirostat, mirostat_tau: 3, seed: 3 }, 1000);
    const lse = logSumExp(logits);
    let bits = 0;
    for (let i = 0; i < 2000; i++) bits += (lse - logits[s.sample(logits).token]) / Math.LN2;
    assert.ok(bits / 2000 > 2 && bits / 2000 < 6, `mirostat ${mirostat}: ${bits / 2000} bits`);
  }
});

Deno.test("topLogprobs() gives natural logarithms, best first", () => {
  const { logprob, top } = topLogprobs(logs(0.1, 0.6, 0.3), 2, 0);
  assert.ok(Math.abs(logprob - Math.log(0.1)) < 1e-6);
  assert.deepEqual(top.map((t) => t.id), [1, 2]);
  assert.ok(Math.abs(top[0].logprob - Math.log(0.6)) < 1e-6);
  assert.deepEqual(topLogprobs(logs(0.5, 0.5), 0, 1).top, []);
});

Deno.test("Sampler's adaptive draw weighs candidates by their distance to the target", () => {
  // One draw a sampler: the target has not moved yet.
  const p = [0.5, 0.3, 0.15, 0.05], target = 0.3;
  const weights = p.map((x) => {
    const d = Math.abs(x - target) / 0.3;
    return Math.exp(5 - 10 * d * d / (1 + d));
  });
  const sum = weights.reduce((a, b) => a + b);
  assertShares(firstShares({ adaptive_target: target }, logs(...p)), weights.map((w) => w / sum), FIRST);
});

Deno.test("AdaptiveTarget aims on the other side of what was chosen, and forgets", () => {
  const a = new AdaptiveTarget(0.4, 0.5);
  assert.ok(Math.abs(a.next - 0.4) < 1e-12);
  a.accept(0.8); // the average of 0.8 and a past that weighs 2 * 0.5 at 0.4 is 0.6
  assert.ok(Math.abs(a.next - 0.2) < 1e-12);
  a.accept(0.2); // (0.2 + 0.5 * 1.2) / (1 + 0.5 * 2) = 0.4
  assert.ok(Math.abs(a.next - 0.4) < 1e-12);
  for (let i = 0; i < 50; i++) a.accept(1);
  assert.equal(a.next, 0, "never below 0");
  const b = new AdaptiveTarget(0.9, 0);
  b.accept(0.1);
  assert.equal(b.next, 1, "nor above 1");
  assert.equal(new AdaptiveTarget(7, 0.5).next, 1);
  assert.ok(Math.abs(new AdaptiveTarget(0.4, 1).next - 0.4) < 1e-12, "a decay of 1 would never move");
});

Deno.test("Sampler's adaptive draw keeps the average probability of its choices near the target", () => {
  const probabilities = [0.6, 0.25, 0.1, 0.05], p = logs(...probabilities);
  const average = (adaptive_target: number) => {
    const s = new Sampler(only({ adaptive_target }), p.length);
    let sum = 0;
    for (let i = 0; i < 2000; i++) sum += probabilities[s.sample(p).token];
    return sum / 2000;
  };
  // A plain draw gives 0.435 on average.
  for (const target of [0.2, 0.3, 0.4, 0.5]) assert.ok(Math.abs(average(target) - target) < 0.05, `${average(target)}`);
  const short = new Sampler(only({ top_k: 3, adaptive_target: 0.3 }), 3);
  assert.equal(short.candidatesEnough, 3);
  assert.ok(short.sampleCandidates(Int32Array.of(0, 1, 2), row(1, 0, -1), 1.4).token >= 0);
  const greedy = new Sampler(only({ temperature: 0, adaptive_target: 0.1 }), 3);
  assert.equal(greedy.sample(row(1, 2, 0)).token, 1);
});
