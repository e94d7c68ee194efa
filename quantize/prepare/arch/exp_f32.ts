/**
 * The exponential in f32 as PyTorch has it on CPUs: the converter writes `-exp(A_log)` with it, and a different bit would be
 * a different file.
 * Source: SLEEF, expf within 1.0 ULP: range reduction by ln 2 in two parts, a polynomial of degree 5 by Horner's rule with
 * fused multiply-adds. A product of two f32 is exact in f64, so one rounding of the f64 sum stands for the fused operation.
 * @module
 */
const f = Math.fround;
const fma = (a: number, b: number, c: number) => f(a * b + c);

const LOG2_E = f(Math.LOG2E);
const LN2_HIGH = f(0.693145751953125);
const LN2_LOW = f(1.428606765330187045e-6);
const POLYNOMIAL = [
  0.000198527617612853646278381,
  0.00139304355252534151077271,
  0.00833336077630519866943359,
  0.0416664853692054748535156,
  0.166666671633720397949219,
  0.5,
].map(f);

/** e to the power of an f32. */
export function expF32(x: number): number {
  const q = Math.round(f(x * LOG2_E));
  let s = fma(q, -LN2_HIGH, x);
  s = fma(q, -LN2_LOW, s);
  let u = POLYNOMIAL[0];
  for (let i = 1; i < POLYNOMIAL.length; i++) u = fma(u, s, POLYNOMIAL[i]);
  u = f(1 + fma(f(s * s), u, s));
  if (x < -104) return 0;
  return x > 100 ? Infinity : f(u * 2 ** q);
}
