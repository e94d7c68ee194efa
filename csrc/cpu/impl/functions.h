// functions.h: the functions of UNARY and GATE over eight floats, built from exp8. Polynomials of tanh and erf are those of the Cephes
// library's single precision functions; each function below is within two units in the last place of what its argument allows.
#pragma once

#include "../simd.h"

namespace bl {
namespace BL_ISA {

template <int N>
static inline f32x8 polynomial8(f32x8 x, const float (&c)[N]) {
  f32x8 p = set8(c[0]);
  for (int i = 1; i < N; i++) p = fma8(p, x, set8(c[i]));
  return p;
}

static inline f32x8 abs8(f32x8 x) { return copysign8(x, set8(1.0f)); }
static inline f32x8 neg8(f32x8 x) { return sub8(zero8(), x); }
// A NaN in x stays, here and below.
static inline f32x8 relu8(f32x8 x) { return max8(zero8(), x); }
static inline f32x8 clamp8(f32x8 x, f32x8 low, f32x8 high) { return min8(high, max8(low, x)); }
static inline f32x8 sigmoid8(f32x8 x) { return div8(set8(1.0f), add8(set8(1.0f), exp8(neg8(x)))); }
static inline f32x8 silu8(f32x8 x) { return div8(x, add8(set8(1.0f), exp8(sub8(zero8(), x)))); }

static inline f32x8 tanh8(f32x8 x) {
  static const float near_zero[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};
  const f32x8 z = abs8(x), s = mul8(x, x);
  const f32x8 near = fma8(mul8(polynomial8(s, near_zero), s), x, x);
  const f32x8 far = sub8(set8(1.0f), div8(set8(2.0f), add8(exp8(add8(z, z)), set8(1.0f))));
  return pick_less8(z, set8(0.625f), near, copysign8(far, x));
}

// ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|; ln(1 + t) = 2 artanh(s), s = t / (2 + t) <= 1/3, by its series.
static inline f32x8 softplus8(f32x8 x) {
  static const float series[] = {1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f};
  const f32x8 t = exp8(neg8(abs8(x)));
  const f32x8 s = div8(t, add8(set8(2.0f), t));
  return add8(relu8(x), mul8(add8(s, s), polynomial8(mul8(s, s), series)));
}

// 1 - erf(z) for z >= 0.
static inline f32x8 erfc8(f32x8 z) {
  static const float below_1[] = {7.853861353153693e-5f,  -8.010193625184903e-4f, 5.188327685732524e-3f, -2.685381193529856e-2f,
                                  1.128358514861418e-1f, -3.761262582423300e-1f, 1.128379165726710e+0f};
  static const float below_2[] = {2.326819970068386e-2f, -1.387039388740657e-1f, 3.687424674597105e-1f,
                                  -5.824733027278666e-1f, 6.210004621745983e-1f, -4.944515323274145e-1f,
                                  3.404879937665872e-1f, -2.741127028184656e-1f, 5.638259427386472e-1f};
  static const float above_2[] = {-1.047766399936249e+1f, 1.297719955372516e+1f, -7.495518717768503e+0f, 2.921019019210786e+0f,
                                  -1.015265279202700e+0f, 4.218463358204948e-1f, -2.820767439740514e-1f, 5.641895067754075e-1f};
  const f32x8 s = mul8(z, z);
  const f32x8 near = sub8(set8(1.0f), mul8(z, polynomial8(s, below_1)));
  const f32x8 r = div8(set8(1.0f), max8(set8(1.0f), z)), y = mul8(r, r);
  const f32x8 p = pick_less8(z, set8(2.0f), polynomial8(y, below_2), polynomial8(y, above_2));
  return pick_less8(z, set8(1.0f), near, mul8(mul8(exp8(neg8(s)), r), p));
}

static inline f32x8 gelu_erf8(f32x8 x) {
  const f32x8 e = erfc8(mul8(abs8(x), set8(0.70710678118654752f)));
  return mul8(mul8(x, set8(0.5f)), pick_less8(x, zero8(), e, sub8(set8(2.0f), e)));
}

// x / 2 (1 + tanh(u)) = x / (1 + e^-2u)
static inline f32x8 gelu_tanh8(f32x8 x) {
  const f32x8 u = mul8(set8(-1.59576912160573071f), fma8(mul8(mul8(x, x), x), set8(0.044715f), x));
  return div8(x, add8(set8(1.0f), exp8(u)));
}

}  // namespace BL_ISA
}  // namespace bl
