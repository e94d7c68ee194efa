// elementwise.h: norms, activations, rotary embedding, log-sum-exp: what is done value by value or over one row.
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

// bits: squares by 8 lanes in order, sum8; then x * (1 / sqrt(mean + eps)) * w, left to right.
static void rms_norm(const float *x, const float *w, float *y, uint64_t n, float eps) {
  f32x8 sum = zero8();
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const f32x8 v = load8(x + i);
    sum = fma8(v, v, sum);
  }
  if (i < n) {
    const f32x8 v = load_part(x + i, n - i);
    sum = fma8(v, v, sum);
  }
  const f32x8 scale = set8(1.0f / std::sqrt(sum8(sum) / float(n) + eps));
  for (i = 0; i + 8 <= n; i += 8) store8(y + i, mul8(mul8(load8(x + i), scale), load8(w + i)));
  if (i < n) store_part(y + i, mul8(mul8(load_part(x + i, n - i), scale), load_part(w + i, n - i)), n - i);
}

static void add(const float *a, const float *b, float *y, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(y + i, add8(load8(a + i), load8(b + i)));
  for (; i < n; i++) y[i] = a[i] + b[i];
}

static inline f32x8 silu_mul8(f32x8 a, f32x8 b) {
  const f32x8 e = exp8(sub8(zero8(), a));
  return mul8(div8(a, add8(set8(1.0f), e)), b);
}

static void silu_mul(const float *a, const float *b, float *y, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(y + i, silu_mul8(load8(a + i), load8(b + i)));
  if (i < n) store_part(y + i, silu_mul8(load_part(a + i, n - i), load_part(b + i, n - i)), n - i);
}

static void axpy(float c, const float *x, float *y, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(y + i, fma8(set8(c), load8(x + i), load8(y + i)));
  for (; i < n; i++) y[i] = fma1(c, x[i], y[i]);
}

// (u, v) -> (u cos - v sin, v cos + u sin), both as fma(-v, sin, u * cos) and fma(u, sin, v * cos)
static void rope(const float *x, float *y, const float *cos, const float *sin, uint32_t n_head, uint32_t head_dim, uint32_t n_rot,
                 bool halves) {
  const uint32_t half = n_rot / 2;
  for (uint32_t h = 0; h < n_head; h++, x += head_dim, y += head_dim) {
    uint32_t i = 0;
    if (halves) {
      for (; i + 8 <= half; i += 8) {
        const f32x8 u = load8(x + i), v = load8(x + half + i), c = load8(cos + i), s = load8(sin + i);
        store8(y + i, fma8(sub8(zero8(), v), s, mul8(u, c)));
        store8(y + half + i, fma8(u, s, mul8(v, c)));
      }
    }
    for (; i < half; i++) {
      const uint32_t at = halves ? i : 2 * i, to = halves ? i + half : 2 * i + 1;
      const float u = x[at], v = x[to];
      y[at] = fma1(0.0f - v, sin[i], u * cos[i]);
      y[to] = fma1(u, sin[i], v * cos[i]);
    }
    for (i = n_rot; i < head_dim; i++) y[i] = x[i];
  }
}

// bits: the largest value; then sums of e^(x - largest) over 8 lanes within runs of 4096, the runs added in order in f64.
static float log_sum_exp(const float *x, uint64_t n, float *largest) {
  constexpr uint64_t RUN = 4096;
  f32x8 top = set8(-INFINITY);
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) top = max8(top, load8(x + i));
  float most = max_of8(top);
  for (; i < n; i++) most = x[i] > most ? x[i] : most;
  double sum = 0;
  const f32x8 shift = set8(most);
  for (uint64_t run = 0; run < n; run += RUN) {
    const uint64_t end = run + RUN < n ? run + RUN : n;
    f32x8 acc = zero8();
    for (i = run; i + 8 <= end; i += 8) acc = add8(acc, exp8(sub8(load8(x + i), shift)));
    float part = sum8(acc);
    for (; i < end; i++) part += exp1(x[i] - most);
    sum += double(part);
  }
  *largest = most;
  return float(double(most) + std::log(sum));
}

static uint64_t find_above(const float *x, uint64_t i, uint64_t n, float bound) {
#if defined(__AVX2__)
  const __m256 b = _mm256_set1_ps(bound);
  for (; i + 8 <= n; i += 8) {
    const int above = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), b, _CMP_GT_OQ));
    if (above != 0) return i + uint64_t(__builtin_ctz(unsigned(above)));
  }
#endif
  for (; i < n; i++)
    if (x[i] > bound) return i;
  return n;
}

static void exp_row(const float *x, float shift, float *y, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(y + i, exp8(sub8(load8(x + i), set8(shift))));
  if (i < n) store_part(y + i, exp8(sub8(load_part(x + i, n - i), set8(shift))), n - i);
}

}  // namespace BL_ISA
}  // namespace bl
