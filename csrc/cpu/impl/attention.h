// attention.h: causal attention over paged caches, for one kv head and a block of rows of one sequence.
//
// bits    Keys are taken in chunks of 32 absolute positions, whatever the rows of the step or the pages are. Per chunk and query head:
//         scores by 8-lane fma over the head dimension and the tree of sum8; m' = max(m, chunk); p = e^(s - m') (0 outside the row's
//         range), their sum by lanes j mod 8 and sum8; l = l e^(m - m') + sum; o = o e^(m - m'), then o = fma(p_j, v_j, o) for j
//         ascending over the row's range. A row's result depends on its own query and keys alone.
// cost    4 n_head (dim_k + dim_v) flops and n_head_kv (row_k + row_v) / n_head_kv bytes per key and row
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

constexpr uint32_t CHUNK = 32;  // absolute key positions of one softmax update

static inline uint64_t round8(uint64_t n) { return (n + 7) / 8 * 8; }

static inline float f32_at(const uint8_t *p) {
  float v;
  memcpy(&v, p, 4);
  return v;
}

// One head of a cache row to f32, zero-padded to a multiple of 8.
static inline void decode_head(const uint8_t *row, uint32_t type, uint32_t n, float *out) {
  if (type == TYPE_F16) {
    const uint16_t *h = reinterpret_cast<const uint16_t *>(row);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) store8(out + i, load_f16x8(h + i));
    for (; i < n; i++) {
      uint16_t b;
      memcpy(&b, row + 2 * i, 2);
      out[i] = f16_to_f32(b);
    }
  } else if (type == TYPE_Q8_0) {
    for (uint32_t b = 0; b < n / 32; b++, row += 34) {
      uint16_t d16;
      memcpy(&d16, row, 2);
      const f32x8 d = set8(f16_to_f32(d16));
      for (int i = 0; i < 32; i += 8) store8(out + 32 * b + i, mul8(d, load_i8x8(reinterpret_cast<const int8_t *>(row) + 2 + i)));
    }
  } else {
    memcpy(out, row, n * 4);
  }
  for (uint64_t i = n; i < round8(n); i++) out[i] = 0.0f;
}

struct FromF16 {
  static inline f32x8 load(const uint8_t *row, uint64_t i) { return load_f16x8(reinterpret_cast<const uint16_t *>(row) + i); }
};
struct FromF32 {
  static inline f32x8 load(const uint8_t *row, uint64_t i) { return load8(reinterpret_cast<const float *>(row) + i); }
};

// s[q][j] = scale * (q . k_j) for NQ queries q_stride apart, j in [lo, hi). Up to 7 values past hi are overwritten.
template <class From, int NQ>
static inline void score_heads(const float *q, uint64_t q_stride, const uint8_t *const *k, uint32_t lo, uint32_t hi, uint64_t dim, float scale,
                               float *s, uint64_t s_stride) {
  constexpr int NK = 8 / NQ;
  for (uint32_t j = lo; j < hi; j += NK) {
    f32x8 acc[8];
    const uint8_t *row[NK];
    for (int i = 0; i < NK; i++) row[i] = k[j + i < hi ? j + i : hi - 1];
    for (int i = 0; i < 8; i++) acc[i] = zero8();
    for (uint64_t d = 0; d < dim; d += 8) {
      f32x8 qv[NQ];
#pragma GCC unroll 8
      for (int h = 0; h < NQ; h++) qv[h] = load8(q + h * q_stride + d);
#pragma GCC unroll 8
      for (int i = 0; i < NK; i++) {
        const f32x8 kv = From::load(row[i], d);
#pragma GCC unroll 8
        for (int h = 0; h < NQ; h++) acc[h * NK + i] = fma8(qv[h], kv, acc[h * NK + i]);
      }
    }
    float out[8];
    store8(out, mul8(sum8x8(acc), set8(scale)));
    for (int h = 0; h < NQ; h++) memcpy(s + h * s_stride + j, out + h * NK, NK * 4);
  }
}

// o[h][d] = fma(p[h][j], v_j[d], o[h][d]) for j in [lo, hi) ascending, NQ heads.
template <class From, int NQ>
static inline void mix_heads(const float *p, uint64_t p_stride, const uint8_t *const *v, uint32_t lo, uint32_t hi, uint64_t dim, float *o,
                             uint64_t o_stride) {
  constexpr int NV = 8 / NQ;
  uint64_t d = 0;
  for (; d + 8 * NV <= dim; d += 8 * NV) {
    f32x8 acc[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) acc[i] = load8(o + (i / NV) * o_stride + d + 8 * (i % NV));
    for (uint32_t j = lo; j < hi; j++) {
      f32x8 pv[NQ];
#pragma GCC unroll 8
      for (int h = 0; h < NQ; h++) pv[h] = set8(p[h * p_stride + j]);
#pragma GCC unroll 8
      for (int i = 0; i < NV; i++) {
        const f32x8 vv = From::load(v[j], d + 8 * i);
#pragma GCC unroll 8
        for (int h = 0; h < NQ; h++) acc[h * NV + i] = fma8(pv[h], vv, acc[h * NV + i]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) store8(o + (i / NV) * o_stride + d + 8 * (i % NV), acc[i]);
  }
  for (; d < dim; d += 8)
    for (int h = 0; h < NQ; h++) {
      f32x8 acc = load8(o + h * o_stride + d);
      for (uint32_t j = lo; j < hi; j++) acc = fma8(set8(p[h * p_stride + j]), From::load(v[j], d), acc);
      store8(o + h * o_stride + d, acc);
    }
}

template <class From>
static inline void score_all(const float *q, uint64_t q_stride, const uint8_t *const *k, uint32_t lo, uint32_t hi, uint64_t dim, float scale,
                             float *s, uint64_t s_stride, uint32_t n) {
  uint32_t h = 0;
  for (; h + 4 <= n; h += 4) score_heads<From, 4>(q + h * q_stride, q_stride, k, lo, hi, dim, scale, s + h * s_stride, s_stride);
  for (; h + 2 <= n; h += 2) score_heads<From, 2>(q + h * q_stride, q_stride, k, lo, hi, dim, scale, s + h * s_stride, s_stride);
  for (; h < n; h++) score_heads<From, 1>(q + h * q_stride, q_stride, k, lo, hi, dim, scale, s + h * s_stride, s_stride);
}

template <class From>
static inline void mix_all(const float *p, uint64_t p_stride, const uint8_t *const *v, uint32_t lo, uint32_t hi, uint64_t dim, float *o,
                           uint64_t o_stride, uint32_t n) {
  uint32_t h = 0;
  for (; h + 4 <= n; h += 4) mix_heads<From, 4>(p + h * p_stride, p_stride, v, lo, hi, dim, o + h * o_stride, o_stride);
  for (; h + 2 <= n; h += 2) mix_heads<From, 2>(p + h * p_stride, p_stride, v, lo, hi, dim, o + h * o_stride, o_stride);
  for (; h < n; h++) mix_heads<From, 1>(p + h * p_stride, p_stride, v, lo, hi, dim, o + h * o_stride, o_stride);
}

// Turns scores [lo, hi) of a chunk into probabilities against the running maximum and rescales the running state.
static inline void soften(float *s, uint32_t lo, uint32_t hi, float *m, float *l, float *o, uint64_t dim) {
  for (uint32_t j = 0; j < lo; j++) s[j] = -INFINITY;
  for (uint32_t j = hi; j < CHUNK; j++) s[j] = -INFINITY;
  f32x8 top = load8(s);
  for (uint32_t j = 8; j < CHUNK; j += 8) top = max8(top, load8(s + j));
  float now = max_of8(top);
  if (!(now > *m)) now = *m;
  const float old = *m;
  for (uint32_t j = 0; j < CHUNK; j += 8) store8(s + j, exp8(sub8(load8(s + j), set8(now))));
  for (uint32_t j = 0; j < lo; j++) s[j] = 0.0f;
  for (uint32_t j = hi; j < CHUNK; j++) s[j] = 0.0f;
  f32x8 sum = load8(s);
  for (uint32_t j = 8; j < CHUNK; j += 8) sum = add8(sum, load8(s + j));
  if (old == -INFINITY) {
    *l = sum8(sum);
  } else {
    const float shrink = exp1(old - now);
    *l = fma1(*l, shrink, sum8(sum));
    if (shrink != 1.0f)
      for (uint64_t d = 0; d < dim; d += 8) store8(o + d, mul8(load8(o + d), set8(shrink)));
  }
  *m = now;
}

static void attend(const AttentionJob &a, uint32_t kv_head, RowBlock rows, float *buffer) {
  const uint32_t n_rep = a.n_head / a.n_head_kv;  // query heads of a kv head
  const uint64_t dim_k = round8(a.dim_k), dim_v = round8(a.dim_v);
  const uint32_t n = rows.end - rows.begin;
  constexpr uint64_t S = CHUNK + 8;
  float *o = buffer;                       // [n][n_rep][dim_v]
  float *m = o + n * n_rep * dim_v;        // [n][n_rep] running maximum
  float *l = m + n * n_rep;                // [n][n_rep] running sum
  float *s = l + n * n_rep;                // [n][n_rep][S]
  float *q_pad = s + n * n_rep * S;        // [n_rep][dim_k], used when dim_k is padded
  float *k_buf = q_pad + n_rep * dim_k;    // [CHUNK][dim_k]
  float *v_buf = k_buf + CHUNK * dim_k;    // [CHUNK][dim_v]
  for (uint64_t i = 0; i < n * n_rep * dim_v; i++) o[i] = 0.0f;
  for (uint64_t i = 0; i < n * n_rep; i++) m[i] = -INFINITY, l[i] = 0.0f;

  // A single row reads f16 in place; several rows share one decoding.
  const bool k_direct = n == 1 && a.type_k == TYPE_F16 && dim_k == a.dim_k;
  const bool v_direct = n == 1 && a.type_v == TYPE_F16 && dim_v == a.dim_v;
  const uint64_t head_k = a.row_k / a.n_head_kv * kv_head, head_v = a.row_v / a.n_head_kv * kv_head;
  const int32_t *pages = a.pages + uint64_t(a.seqs[rows.begin]) * a.n_page;

  const auto first_key = [&](uint32_t pos) { return a.window != 0 && pos + 1 > a.window ? pos + 1 - a.window : 0; };
  const uint32_t end_key = uint32_t(a.positions[rows.end - 1]) + 1;
  for (uint32_t base = first_key(uint32_t(a.positions[rows.begin])) / CHUNK * CHUNK; base < end_key; base += CHUNK) {
    const uint32_t n_key = end_key - base < CHUNK ? end_key - base : CHUNK;
    const uint8_t *k_row[CHUNK], *v_row[CHUNK];
    for (uint32_t j = 0; j < n_key; j++) {
      const uint32_t pos = base + j;
      const uint64_t slot = uint64_t(uint32_t(pages[pos / a.page_size])) * a.page_size + pos % a.page_size;
      k_row[j] = a.k + slot * a.row_k + head_k;
      v_row[j] = a.v + slot * a.row_v + head_v;
      if (!k_direct) {
        decode_head(k_row[j], a.type_k, a.dim_k, k_buf + j * dim_k);
        k_row[j] = reinterpret_cast<const uint8_t *>(k_buf + j * dim_k);
      }
      if (!v_direct) {
        decode_head(v_row[j], a.type_v, a.dim_v, v_buf + j * dim_v);
        v_row[j] = reinterpret_cast<const uint8_t *>(v_buf + j * dim_v);
      }
    }
    // All rows against the keys, then all rows against the values: each half of the chunk stays in the first-level cache.
    const auto range = [&](uint32_t t, uint32_t *lo, uint32_t *hi) {
      const uint32_t pos = uint32_t(a.positions[rows.begin + t]), first = first_key(pos);
      if (pos < base) return false;
      *lo = first > base ? first - base : 0;
      *hi = pos - base < CHUNK ? pos - base + 1 : CHUNK;
      return *lo < *hi;
    };
    uint32_t lo, hi;
    for (uint32_t t = 0; t < n; t++) {
      if (!range(t, &lo, &hi)) continue;
      const float *q = a.q + (uint64_t(rows.begin + t) * a.n_head + uint64_t(kv_head) * n_rep) * a.dim_k;
      if (dim_k != a.dim_k) {
        for (uint32_t h = 0; h < n_rep; h++)
          for (uint64_t d = 0; d < dim_k; d++) q_pad[h * dim_k + d] = d < a.dim_k ? q[h * a.dim_k + d] : 0.0f;
        q = q_pad;
      }
      float *st = s + t * n_rep * S;
      if (k_direct) score_all<FromF16>(q, dim_k, k_row, lo, hi, dim_k, a.scale, st, S, n_rep);
      else score_all<FromF32>(q, dim_k, k_row, lo, hi, dim_k, a.scale, st, S, n_rep);
    }
    for (uint32_t t = 0; t < n; t++) {
      if (!range(t, &lo, &hi)) continue;
      float *ot = o + uint64_t(t) * n_rep * dim_v, *st = s + t * n_rep * S;
      for (uint32_t h = 0; h < n_rep; h++) soften(st + h * S, lo, hi, m + t * n_rep + h, l + t * n_rep + h, ot + h * dim_v, dim_v);
      if (v_direct) mix_all<FromF16>(st, S, v_row, lo, hi, dim_v, ot, dim_v, n_rep);
      else mix_all<FromF32>(st, S, v_row, lo, hi, dim_v, ot, dim_v, n_rep);
    }
  }
  for (uint32_t t = 0; t < n; t++)
    for (uint32_t h = 0; h < n_rep; h++) {
      float *y = a.y + (uint64_t(rows.begin + t) * a.n_head + uint64_t(kv_head) * n_rep + h) * a.dim_v;
      const float *from = o + (uint64_t(t) * n_rep + h) * dim_v;
      const f32x8 sum = set8(l[t * n_rep + h]);
      uint64_t d = 0;
      for (; d + 8 <= a.dim_v; d += 8) store8(y + d, div8(load8(from + d), sum));
      if (d < a.dim_v) store_part(y + d, div8(load8(from + d), sum), a.dim_v - d);
    }
}

}  // namespace BL_ISA
}  // namespace bl
