// elementwise.h: norms, activations, rotary embedding, softmax: what is done value by value or over one row.
#pragma once

#include "../kernels.h"
#include "../simd.h"
#include "functions.h"

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

// bits: as rms_norm; LAYER: the values by 8 lanes in order, sum8, for their mean, which is taken from each value first; L2 does not divide
// the sum of squares. Then * w, + b, each rounded.
static void norm(uint32_t kind, const float *x, const float *w, const float *b, float *y, uint64_t n, float eps) {
  if (kind == BL_NORM_RMS && w != nullptr && b == nullptr) return rms_norm(x, w, y, n, eps);
  float mean = 0.0f;
  if (kind == BL_NORM_LAYER) {
    f32x8 sum = zero8();
    for (uint64_t i = 0; i < n; i += 8) sum = add8(sum, load_up_to(x + i, n - i));
    mean = sum8(sum) / float(n);
  }
  f32x8 squares = zero8();
  const f32x8 shift = set8(mean);
  for (uint64_t i = 0; i < n; i += 8) {
    f32x8 v = sub8(load_up_to(x + i, n - i), shift);
    if (n - i < 8) {
      float part[8];
      store8(part, v);
      v = load_part(part, n - i);
    }
    squares = fma8(v, v, squares);
  }
  const float sum = sum8(squares);
  const f32x8 scale = set8(1.0f / std::sqrt((kind == BL_NORM_L2 ? sum : sum / float(n)) + eps));
  for (uint64_t i = 0; i < n; i += 8) {
    f32x8 v = mul8(sub8(load_up_to(x + i, n - i), shift), scale);
    if (w != nullptr) v = mul8(v, load_up_to(w + i, n - i));
    if (b != nullptr) v = add8(v, load_up_to(b + i, n - i));
    store_up_to(y + i, v, n - i);
  }
}

template <class F>
static inline void map1(const float *x, float *y, uint64_t n, const F &f) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(y + i, f(load8(x + i)));
  if (i < n) store_part(y + i, f(load_part(x + i, n - i)), n - i);
}

template <class F>
static inline void map2(const float *x, const float *y, float *z, uint64_t n, const F &f) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(z + i, f(load8(x + i), load8(y + i)));
  if (i < n) store_part(z + i, f(load_part(x + i, n - i), load_part(y + i, n - i)), n - i);
}

static void add(const float *a, const float *b, float *y, uint64_t n) { map2(a, b, y, n, [](f32x8 u, f32x8 v) { return add8(u, v); }); }
static void mul(const float *a, const float *b, float *y, uint64_t n) { map2(a, b, y, n, [](f32x8 u, f32x8 v) { return mul8(u, v); }); }
static void add_one(const float *a, float b, float *y, uint64_t n) { map1(a, y, n, [b](f32x8 u) { return add8(u, set8(b)); }); }
static void mul_one(const float *a, float b, float *y, uint64_t n) { map1(a, y, n, [b](f32x8 u) { return mul8(u, set8(b)); }); }

static void unary(uint32_t kind, const float *x, float *y, uint64_t n, float a, float b) {
  const auto each = [&](const auto &f) { map1(x, y, n, f); };
  const f32x8 A = set8(a), B = set8(b);
  switch (kind) {
    case BL_UNARY_SCALE: return each([=](f32x8 v) { return fma8(A, v, B); });
    case BL_UNARY_SILU: return each([](f32x8 v) { return silu8(v); });
    case BL_UNARY_GELU_TANH: return each([](f32x8 v) { return gelu_tanh8(v); });
    case BL_UNARY_GELU_ERF: return each([](f32x8 v) { return gelu_erf8(v); });
    case BL_UNARY_RELU: return each([](f32x8 v) { return relu8(v); });
    case BL_UNARY_RELU2: return each([](f32x8 v) { return mul8(relu8(v), relu8(v)); });
    case BL_UNARY_SIGMOID: return each([](f32x8 v) { return sigmoid8(v); });
    case BL_UNARY_TANH: return each([](f32x8 v) { return tanh8(v); });
    case BL_UNARY_SOFTPLUS: return each([](f32x8 v) { return softplus8(v); });
    case BL_UNARY_SOFTCAP: return each([=](f32x8 v) { return mul8(A, tanh8(div8(v, A))); });
    case BL_UNARY_CLAMP: return each([=](f32x8 v) { return clamp8(v, A, B); });
    case BL_UNARY_SIGNED_SQRT: return each([=](f32x8 v) { return copysign8(sqrt8(max8(A, abs8(v))), v); });
    case BL_UNARY_EXP: return each([](f32x8 v) { return exp8(v); });
  }
}

static void gate(uint32_t kind, const float *x, const float *y, float *z, uint64_t n, float a, float b) {
  const auto each = [&](const auto &f) { map2(x, y, z, n, f); };
  const f32x8 A = set8(a), B = set8(b);
  switch (kind) {
    case BL_GATE_SILU: return each([](f32x8 u, f32x8 v) { return mul8(silu8(u), v); });
    case BL_GATE_GELU_TANH: return each([](f32x8 u, f32x8 v) { return mul8(gelu_tanh8(u), v); });
    case BL_GATE_GELU_ERF: return each([](f32x8 u, f32x8 v) { return mul8(gelu_erf8(u), v); });
    case BL_GATE_SIGMOID: return each([](f32x8 u, f32x8 v) { return mul8(sigmoid8(u), v); });
    case BL_GATE_SILU_CLAMP: return each([=](f32x8 u, f32x8 v) { return mul8(silu8(min8(A, u)), clamp8(v, neg8(A), A)); });
    case BL_GATE_SITU:
      return each([=](f32x8 u, f32x8 v) {
        return mul8(mul8(mul8(A, tanh8(div8(u, A))), sigmoid8(u)), b > 0 ? mul8(B, tanh8(div8(v, B))) : v);
      });
    case BL_GATE_OAI:
      return each([=](f32x8 u, f32x8 v) {
        const f32x8 g = min8(A, u);
        return mul8(mul8(g, sigmoid8(mul8(B, g))), add8(clamp8(v, neg8(A), A), set8(1.0f)));
      });
    case BL_GATE_RELU2: return each([](f32x8 u, f32x8 v) { return mul8(mul8(relu8(u), relu8(u)), v); });
  }
}

// Sum of a b over 8 lanes in order, sum8.
static float dot(const float *a, const float *b, uint64_t n) {
  f32x8 sum = zero8();
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) sum = fma8(load8(a + i), load8(b + i), sum);
  if (i < n) sum = fma8(load_part(a + i, n - i), load_part(b + i, n - i), sum);
  return sum8(sum);
}

static void axpy(float c, const float *x, float *y, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(y + i, fma8(set8(c), load8(x + i), load8(y + i)));
  for (; i < n; i++) y[i] = fma1(c, x[i], y[i]);
}

// (u, v) -> (u cos - v sin, v cos + u sin), both as fma(-v, sin, u * cos) and fma(u, sin, v * cos)
static void rope(const float *x, uint64_t x_head, float *y, const float *cos, const float *sin, uint32_t n_head, uint32_t head_dim,
                 uint32_t offset, uint32_t n_rot, bool halves) {
  const uint32_t half = n_rot / 2;
  for (uint32_t h = 0; h < n_head; h++, x += x_head, y += head_dim) {
    for (uint32_t i = 0; i < offset; i++) y[i] = x[i];
    const float *from = x + offset;
    float *to = y + offset;
    uint32_t i = 0;
    if (halves) {
      for (; i + 8 <= half; i += 8) {
        const f32x8 u = load8(from + i), v = load8(from + half + i), c = load8(cos + i), s = load8(sin + i);
        store8(to + i, fma8(sub8(zero8(), v), s, mul8(u, c)));
        store8(to + half + i, fma8(u, s, mul8(v, c)));
      }
    }
    for (; i < half; i++) {
      const uint32_t one = halves ? i : 2 * i, other = halves ? i + half : 2 * i + 1;
      const float u = from[one], v = from[other];
      to[one] = fma1(0.0f - v, sin[i], u * cos[i]);
      to[other] = fma1(u, sin[i], v * cos[i]);
    }
    for (i = offset + n_rot; i < head_dim; i++) y[i] = x[i];
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

// bits: e^(x - largest) by 8 lanes, their sum in order, sum8; each divided by it.
static void softmax(const float *x, float *y, uint64_t n) {
  float most = x[0];
  for (uint64_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
  f32x8 sum = zero8();
  const f32x8 shift = set8(most);
  for (uint64_t i = 0; i < n; i += 8) {
    store_up_to(y + i, exp8(sub8(load_up_to(x + i, n - i), shift)), n - i);
    sum = add8(sum, load_up_to(y + i, n - i));
  }
  const f32x8 total = set8(sum8(sum));
  map1(y, y, n, [=](f32x8 v) { return div8(v, total); });
}

// bits: b, then fma over the taps in order.
static void conv(const float *const *x, const float *w, const float *b, float *y, uint64_t n, uint32_t n_tap, bool silu) {
  for (uint64_t c = 0; c < n; c += 8) {
    f32x8 sum = b == nullptr ? zero8() : load_up_to(b + c, n - c);
    for (uint32_t j = 0; j < n_tap; j++)
      if (x[j] != nullptr) sum = fma8(load_up_to(w + j * n + c, n - c), load_up_to(x[j] + c, n - c), sum);
    store_up_to(y + c, silu ? silu8(sum) : sum, n - c);
  }
}

// bits: MEAN: k in order, divided by their number. SOFTMAX: s = z + ape, their largest, e = e^(s - largest); sums of e and fma of e and k in
// order; their quotient.
static void pool(const float *const *k, const float *const *z, const float *const *ape, uint32_t n_row, float *y, uint64_t n) {
  for (uint64_t c = 0; c < n; c += 8) {
    const auto score = [&](uint32_t i) {
      const f32x8 s = load_up_to(z[i] + c, n - c);
      return ape == nullptr ? s : add8(s, load_up_to(ape[i] + c, n - c));
    };
    f32x8 sum = zero8(), total = zero8();
    if (z == nullptr) {
      for (uint32_t i = 0; i < n_row; i++) sum = add8(sum, load_up_to(k[i] + c, n - c));
      total = set8(float(n_row));
    } else {
      f32x8 most = score(0);
      for (uint32_t i = 1; i < n_row; i++) most = max8(most, score(i));
      for (uint32_t i = 0; i < n_row; i++) {
        const f32x8 e = exp8(sub8(score(i), most));
        total = add8(total, e);
        sum = fma8(e, load_up_to(k[i] + c, n - c), sum);
      }
    }
    store_up_to(y + c, div8(sum, total), n - c);
  }
}

}  // namespace BL_ISA
}  // namespace bl
