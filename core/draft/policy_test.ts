import assert from "node:assert/strict";
import { Acceptance, StepCosts, WidthPolicy } from "./policy.ts";

/** A generator of numbers in [0, 1) for a seed. */
function random(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6D2B79F5) | 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A machine: milliseconds of a step of some rows, and of a guess. */
interface Machine {
  readonly step: (rows: number) => number;
  readonly guess: number;
}

const MOST = 12, N_TOKENS = 6000;

/** Milliseconds a token of an answer whose guesses are right with `acceptance(token)`. */
function simulate(m: Machine, acceptance: (token: number) => number, fixed?: number): number {
  const policy = new WidthPolicy(), seen = new Acceptance(), next = random(7);
  let ms = 0, tokens = 0;
  while (tokens < N_TOKENS) {
    const [n] = fixed === undefined ? policy.widths([{ acceptance: seen, rows: 1, most: MOST }]) : [fixed];
    let right = 0;
    while (right < n && next() < acceptance(tokens + right)) right++;
    if (n > 0) seen.judged(n, right);
    const step = m.step(1 + n), guess_ms = n * m.guess;
    policy.stepped({ rows: 1, n_guesses: n, n_right: right, n_sequences: 1, ms: step, guess_ms });
    ms += step + guess_ms;
    tokens += 1 + right;
  }
  return ms / tokens;
}

const MACHINES: Readonly<Record<string, Machine>> = {
  "rows are nearly free": { step: (n) => 20 + 0.4 * n, guess: 0 },
  "a row costs a tenth": { step: (n) => 18 + 2 * n, guess: 0 },
  "a row costs two fifths, as experts on a drive do": { step: (n) => 12 + 8 * n, guess: 0 },
  "rows cost all": { step: (n) => 20 * n, guess: 0 },
  "guesses cost a twelfth": { step: (n) => 20 + 0.4 * n, guess: 1.7 },
};

for (const [name, machine] of Object.entries(MACHINES)) {
  Deno.test(`WidthPolicy is near the best fixed width at every acceptance: ${name}`, () => {
    for (const a of [0, 0.2, 0.5, 0.8, 0.95]) {
      const plain = machine.step(1), got = simulate(machine, () => a);
      const best = Math.min(...Array.from({ length: MOST + 1 }, (_, n) => simulate(machine, () => a, n)));
      assert.ok(got <= 1.02 * plain, `acceptance ${a}: ${got.toFixed(2)} ms a token, ${plain} without`);
      assert.ok(got <= 1.05 * best, `acceptance ${a}: ${got.toFixed(2)} ms a token, ${best.toFixed(2)} at best`);
    }
  });
}

Deno.test("WidthPolicy follows an acceptance that changes", () => {
  for (const machine of Object.values(MACHINES)) {
    const got = simulate(machine, (token) => Math.floor(token / 500) % 2 === 0 ? 0.9 : 0);
    assert.ok(got <= 1.02 * machine.step(1), `${got} ms a token`);
  }
});

Deno.test("WidthPolicy gives guesses to the sequences whose guesses are right", () => {
  const policy = new WidthPolicy(), good = new Acceptance(0.95), bad = new Acceptance(0.05);
  for (let i = 0; i < 3; i++) {
    policy.stepped({ rows: 2, n_guesses: 0, n_right: 0, n_sequences: 2, ms: 20, guess_ms: 0 });
    policy.stepped({ rows: 2, n_guesses: 4, n_right: 4, n_sequences: 2, ms: 24, guess_ms: 0 });
  }
  const [n_good, n_bad] = policy.widths([{ acceptance: good, rows: 1, most: 8 }, {
    acceptance: bad,
    rows: 1,
    most: 8,
  }]);
  assert.ok(n_good >= 4 && n_bad === 0, `${n_good} and ${n_bad} guesses`);
});

Deno.test("StepCosts does not count the first step of a size, and goes by the rate between sizes", () => {
  const costs = new StepCosts();
  costs.measured(1, 500);
  assert.equal(costs.of(1), undefined);
  costs.measured(1, 20);
  costs.measured(5, 500);
  costs.measured(5, 28);
  assert.equal(costs.of(1), 20);
  assert.equal(costs.of(3), 24);
  assert.equal(costs.of(7), 32);
  costs.measured(1, 10);
  assert.equal(costs.of(1), 10);
});
