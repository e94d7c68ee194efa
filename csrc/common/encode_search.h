// encode_search.h: the scale searches the encoders share, eight groups at a time (one group a lane).
//
// Each lane does exactly the scalar search: the same operations, in the same order, with accepted candidates blended in under a mask.
// Codes of an accepted candidate are a function of its inverse scale, so a search remembers that and computes codes once, at the end.
#pragma once

#include "lanes.h"

namespace bl {
namespace BL_LANES {

// First value of largest magnitude, and that magnitude (0 when all are zero).
template <int N>
BL_INLINE void extreme(const F8 *x, F8 *amax, F8 *xm) {
  *amax = *xm = splat(0.0f);
  for (int i = 0; i < N; i++) {
    const F8 a = abs8(x[i]);
    const I8 larger = a > *amax;
    *amax = select(larger, a, *amax);
    *xm = select(larger, x[i], *xm);
  }
}

// --- symmetric: codes -half .. half - 1, value = s * (code - half) ----------------------------------------------------------------

// Where a symmetric search ended. zero: all codes are 0.
struct Symmetric {
  F8 scale, r;
  I8 zero;
};

template <int N>
BL_INLINE void symmetric_sums(const F8 *x, const F8 *v, const F8 *vx, int half, F8 r, F8 *a, F8 *b) {
  F8 sa = splat(0.0f), sb = splat(0.0f);
  for (int i = 0; i < N; i++) {
    const F8 l = to_f(clamp(rnd(r * x[i]), -half, half - 1));
    sa += vx[i] * l;
    sb += v[i] * l * l;
  }
  *a = sa;
  *b = sb;
}

// v: weights of the values (x^2 where there are no importance weights).
template <int N>
BL_INLINE Symmetric symmetric(const F8 *x, const F8 *v, int half) {
  Symmetric s;
  F8 amax, xm, a, b, vx[N];
  extreme<N>(x, &amax, &xm);
  s.zero = amax < splat(EPS15);
  for (int i = 0; i < N; i++) vx[i] = v[i] * x[i];
  s.r = splat(float(-half)) / xm;
  symmetric_sums<N>(x, v, vx, half, s.r, &a, &b);
  s.scale = select(b != splat(0.0f), a / b, splat(0.0f));
  F8 best = s.scale * a;
  for (int t = -9; t <= 9; t++) {
    if (t == 0) continue;
    const float top = -(float(half) + 0.1f * float(t));
    const F8 r = splat(top) / xm;
    symmetric_sums<N>(x, v, vx, half, r, &a, &b);
    const I8 better = (b > splat(0.0f)) & (a * a > best * b);
    s.r = select(better, r, s.r);
    s.scale = select(better, a / b, s.scale);
    best = select(better, s.scale * a, best);
  }
  s.scale = select(s.zero, splat(0.0f), s.scale);
  return s;
}

// Codes 0 .. 2 half - 1 of one position.
BL_INLINE I8 symmetric_code(F8 x, F8 r, I8 zero, int half) {
  return ~zero & (clamp(rnd(r * x), -half, half - 1) + splat_i(half));
}

// --- affine: codes 0 .. max, value = scale * code + low, low <= 0 -----------------------------------------------------------------

struct Affine {
  F8 scale, minimum;  // minimum = -low
  F8 r, base;         // code = clamp(rnd(r * (x - base)), 0, max)
};

struct AffineGrid {
  int max;
  float rmin, rstep;
  int steps;
};

template <int N, bool ABS>
BL_INLINE F8 affine_error(const F8 *x, const F8 *w, const F8 *code, F8 scale, F8 low) {
  F8 sum = splat(0.0f);
  for (int i = 0; i < N; i++) {
    const F8 e = scale * code[i] + low - x[i];
    sum += w[i] * (ABS ? abs8(e) : e * e);
  }
  return sum;
}

template <int N, bool ABS>
BL_INLINE Affine affine(const F8 *x, const F8 *w, const AffineGrid grid) {
  const F8 zero = splat(0.0f);
  F8 low = x[0], high = x[0], sum_w = w[0], sum_wx = w[0] * x[0];
  for (int i = 1; i < N; i++) {
    low = min2(x[i], low);
    high = max2(x[i], high);
    sum_w += w[i];
    sum_wx += w[i] * x[i];
  }
  low = select(low > zero, zero, low);
  const I8 flat = high == low;
  const F8 flat_minimum = -low;

  Affine best;
  F8 code[N];
  best.r = splat(float(grid.max)) / (high - low);
  best.base = low;
  best.scale = splat(1.0f) / best.r;
  for (int i = 0; i < N; i++) code[i] = to_f(clamp(rnd(best.r * (x[i] - low)), 0, grid.max));
  F8 err = affine_error<N, ABS>(x, w, code, best.scale, low);

  for (int t = 0; t <= grid.steps; t++) {
    const float top = grid.rmin + grid.rstep * float(t) + float(grid.max);
    const F8 r = splat(top) / (high - low);
    F8 a = zero, b = zero, q = zero;
    for (int i = 0; i < N; i++) {
      code[i] = to_f(clamp(rnd(r * (x[i] - low)), 0, grid.max));
      const F8 wk = w[i] * code[i];
      a += wk;
      b += wk * code[i];
      q += wk * x[i];
    }
    const F8 det = sum_w * b - a * a;
    const I8 solvable = det > zero;
    F8 scale = (sum_w * q - sum_wx * a) / det;
    F8 minimum = (b * sum_wx - a * q) / det;
    const I8 above = minimum > zero;
    minimum = select(above, zero, minimum);
    scale = select(above, q / b, scale);
    const F8 cur = affine_error<N, ABS>(x, w, code, scale, minimum);
    const I8 better = solvable & (cur < err);
    err = select(better, cur, err);
    best.scale = select(better, scale, best.scale);
    best.r = select(better, r, best.r);
    best.base = select(better, low, best.base);
    low = select(better, minimum, low);
  }
  best.scale = select(flat, zero, best.scale);
  best.minimum = select(flat, flat_minimum, -low);
  best.r = select(flat, zero, best.r);
  best.base = select(flat, zero, best.base);
  return best;
}

BL_INLINE I8 affine_code(F8 x, F8 r, F8 base, int max) { return clamp(rnd(r * (x - base)), 0, max); }

// --- positive: codes are bytes, value = scale * code -------------------------------------------------------------------------------

// Codes as the integers 0..255 their bytes read back as.
template <int N>
BL_INLINE F8 positive(const F8 *x, const F8 *w, int max, I8 *code) {
  const F8 zero = splat(0.0f);
  const I8 top = splat_i(max), byte = splat_i(255);
  F8 largest = zero;
  for (int i = 0; i < N; i++) largest = max2(largest, x[i]);
  const I8 skip = largest < splat(EPS15);

  F8 r = splat(float(max)) / largest;
  F8 scale = splat(1.0f) / r, mse = zero;
  for (int i = 0; i < N; i++) {
    const F8 e = x[i] - scale * to_f(rnd(r * x[i]) & byte);
    mse += w[i] * e * e;
  }
  for (int t = -4; t <= 4; t++) {
    if (t == 0) continue;
    const float num = 0.1f * float(t) + float(max);
    const F8 rt = splat(num) / largest, st = splat(1.0f) / rt;
    F8 m = zero;
    for (int i = 0; i < N; i++) {
      const F8 e = x[i] - st * to_f(imin(top, rnd(rt * x[i])));
      m += w[i] * e * e;
    }
    const I8 better = m < mse;
    mse = select(better, m, mse);
    r = select(better, rt, r);
  }
  F8 a = zero, b = zero;
  for (int i = 0; i < N; i++) {
    const I8 l = imin(top, rnd(r * x[i]));
    code[i] = l & byte;
    a += w[i] * x[i] * to_f(l);
    b += w[i] * to_f(l) * to_f(l);
  }
  for (int pass = 0; pass < 5; pass++) {
    I8 changed = splat_i(0);
    for (int i = 0; i < N; i++) {
      const F8 c = to_f(code[i]);
      F8 ra = a - w[i] * x[i] * c, rb = b - w[i] * c * c;
      I8 move = (ra > zero) & (rb > zero);
      const I8 l = imin(top, rnd(x[i] * rb / ra));
      move &= l != code[i];
      const F8 fl = to_f(l);
      ra += w[i] * x[i] * fl;
      rb += w[i] * fl * fl;
      move &= ra * ra * b > a * a * rb;
      code[i] = select(move, l & byte, code[i]);
      a = select(move, ra, a);
      b = select(move, rb, b);
      changed |= move;
    }
    if (!any(changed & ~skip)) break;
  }
  for (int i = 0; i < N; i++) code[i] &= ~skip;
  return select(skip, zero, select(b > zero, a / b, zero));
}

// --- refinement: codes -4 .. 3 of plain q3_K, returned as 0 .. 7 -------------------------------------------------------------------

template <int N>
BL_INLINE F8 refine3(const F8 *x, I8 *code) {
  const F8 zero = splat(0.0f);
  F8 amax, xm, a = zero, b = zero;
  extreme<N>(x, &amax, &xm);
  const I8 skip = amax < splat(EPS15);
  const F8 r = splat(-4.0f) / xm;
  for (int i = 0; i < N; i++) {
    code[i] = clamp(rnd(r * x[i]), -4, 3);
    const F8 v = x[i] * x[i], l = to_f(code[i]);
    a += v * x[i] * l;
    b += v * l * l;
  }
  for (int pass = 0; pass < 5; pass++) {
    I8 changed = splat_i(0);
    for (int i = 0; i < N; i++) {
      const F8 v = x[i] * x[i], l = to_f(code[i]);
      F8 ra = a - v * x[i] * l;
      I8 move = ra > zero;
      F8 rb = b - v * l * l;
      const I8 k = clamp(rnd(x[i] * rb / ra), -4, 3);
      move &= k != code[i];
      const F8 fk = to_f(k);
      ra += v * x[i] * fk;
      rb += v * fk * fk;
      move &= (rb > zero) & (ra * ra * b > a * a * rb);
      code[i] = select(move, k, code[i]);
      a = select(move, ra, a);
      b = select(move, rb, b);
      changed |= move;
    }
    if (!any(changed & ~skip)) break;
  }
  for (int i = 0; i < N; i++) code[i] = ~skip & (code[i] + splat_i(4));
  return select(skip, zero, select(b > zero, a / b, zero));
}

// --- scalar helpers ----------------------------------------------------------------------------------------------------------------

// First to last, from +0: sums are never split over lanes.
BL_INLINE float sum_of_squares(const float *x, uint64_t n) {
  float sum = 0.0f;
  for (uint64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

// Index of the entry of largest magnitude (strictly larger replaces, start 0); -1 when all are zero.
BL_INLINE int largest_magnitude(const float *s, int n) {
  float best = 0.0f;
  int at = -1;
  for (int i = 0; i < n; i++) {
    const float a = s[i] < 0 ? -s[i] : s[i];
    if (a > best) {
      best = a;
      at = i;
    }
  }
  return at;
}

BL_INLINE float largest_of(const float *s, int n) {
  float best = 0.0f;
  for (int i = 0; i < n; i++)
    if (s[i] > best) best = s[i];
  return best;
}

// qw * sqrt(g + x^2): the importance of a value, raised where the value is large.
BL_INLINE F8 importance(F8 qw, F8 g, F8 x) { return qw * sqrt8(g + x * x); }

}  // namespace BL_LANES
}  // namespace bl
