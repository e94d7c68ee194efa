// attention.h: attention over streams of paged caches, for some heads of one kv head and a block of rows of one sequence.
//
// bits    A segment's rows are taken in chunks of 32: of the stream, from a multiple of 32 on; behind a selection of the listed rows,
//         ascending, from the first on. Neither the rows of the step nor pages move a chunk. Per chunk and query head:
//         scores by 8-lane fma over the head dimension and the tree of sum8; softcap; m' = max(m, chunk); p = e^(s - m') (0 outside the row's
//         range), their sum by lanes j mod 8 and sum8; l = l e^(m - m') + sum; o = o e^(m - m'), then o = fma(p_j, v_j, o) for j
//         ascending over the row's range. Segment b goes on from segment a; a sink comes last, as a chunk of one score without a value.
//         A row's result depends on its own query and keys alone; no visible row gives zeros.
// cost    4 n_head (dim_k + dim_v) flops and n_head_kv (row_k + row_v) / n_head_kv bytes per key and row
#pragma once

#include "../kernels.h"
#include "../simd.h"
#include "functions.h"

namespace bl {
namespace BL_ISA {

constexpr uint32_t CHUNK = 32;  // rows of a stream, or listed rows, of one softmax update

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

// n values of a q8_0 row from value `first` on, which need not begin a block; zero-padded as decode_head.
static inline void decode_span(const uint8_t *row, uint64_t first, uint32_t n, float *out) {
  for (uint64_t i = 0; i < n; i++) {
    const uint8_t *block = row + (first + i) / 32 * 34;
    uint16_t d;
    memcpy(&d, block, 2);
    out[i] = f16_to_f32(d) * float(int8_t(block[2 + (first + i) % 32]));
  }
  for (uint64_t i = n; i < round8(n); i++) out[i] = 0.0f;
}

// One of n_head heads of n values of a cache row, as decode_head.
static inline void decode_head_of(const uint8_t *row, uint64_t row_bytes, uint32_t type, uint32_t head, uint32_t n_head, uint32_t n, float *out) {
  if (type == TYPE_Q8_0 && n % 32 != 0) decode_span(row, uint64_t(head) * n, n, out);
  else decode_head(row + row_bytes / n_head * head, type, n, out);
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

// The state of the rows and heads of one work item.
struct AttentionState {
  float *o;  // [n][n_head][dim_v]
  float *m;  // [n][n_head] running maximum
  float *l;  // [n][n_head] running sum
  float *s;  // [n][n_head][SCORES]
  float *q_pad, *k_buf, *v_buf;
  uint32_t n, n_head;  // rows, heads of the kv head
  uint64_t dim_k, dim_v;
};

constexpr uint64_t SCORES = CHUNK + 8;

static void attend_segment(const AttentionJob &a, const AttentionSegment &g, uint32_t kv_head, uint32_t first_head, RowBlock rows,
                           const AttentionState &t) {
  const uint32_t n = t.n, n_head = t.n_head;
  const uint64_t dim_k = t.dim_k, dim_v = t.dim_v;
  // A single row with few heads reads f16 in place; others share one decoding. Values that are part of keys lie where the keys do.
  const bool alone = n == 1 && n_head <= 8;
  const bool part = g.v == g.k;
  const bool k_direct = alone && g.type_k == TYPE_F16 && dim_k == a.dim_k;
  const bool v_direct = part ? k_direct : alone && g.type_v == TYPE_F16 && dim_v == a.dim_v;
  const uint64_t head_k = g.row_k / a.n_head_kv * kv_head, head_v = g.row_v / a.n_head_kv * kv_head;
  const int32_t *pages = g.pages + uint64_t(uint32_t(a.seqs[rows.begin])) * g.n_page;
  const uint32_t page_rows = (g.page_size + g.ratio - 1) / g.ratio;
  const uint32_t *list = g.list == nullptr ? nullptr : g.list + rows.begin * g.list_stride;

  const auto first_of = [&](uint32_t row) { return list != nullptr ? 0 : first_visible(uint32_t(a.positions[row]), g.window, g.ratio); };
  const auto end_of = [&](uint32_t row) { return list != nullptr ? g.n_list[row] : end_visible(uint32_t(a.sees[row]), g.ratio); };
  const uint32_t first_key = first_of(rows.begin), end_key = end_of(rows.end - 1);
  for (uint32_t base = first_key / CHUNK * CHUNK; base < end_key; base += CHUNK) {
    const uint32_t n_key = end_key - base < CHUNK ? end_key - base : CHUNK;
    const uint8_t *k_row[CHUNK], *v_row[CHUNK];
    for (uint32_t j = first_key > base ? first_key - base : 0; j < n_key; j++) {  // pages before the first key may be gone
      const uint32_t w = list != nullptr ? list[base + j] : base + j;
      const uint32_t pos = (w + 1) * g.ratio - 1;
      const uint64_t slot = uint64_t(uint32_t(pages[pos / g.page_size])) * page_rows + pos % g.page_size / g.ratio;
      k_row[j] = g.k + slot * g.row_k;
      if (!part) v_row[j] = g.v + slot * g.row_v;
      if (k_direct) {
        k_row[j] += head_k;
      } else {
        decode_head_of(k_row[j], g.row_k, g.type_k, kv_head, a.n_head_kv, a.dim_k, t.k_buf + j * dim_k);
        k_row[j] = reinterpret_cast<const uint8_t *>(t.k_buf + j * dim_k);
      }
      if (part) {
        v_row[j] = k_row[j];
      } else if (v_direct) {
        v_row[j] += head_v;
      } else {
        decode_head_of(v_row[j], g.row_v, g.type_v, kv_head, a.n_head_kv, a.dim_v, t.v_buf + j * dim_v);
        v_row[j] = reinterpret_cast<const uint8_t *>(t.v_buf + j * dim_v);
      }
    }
    // All rows against the keys, then all rows against the values: each half of the chunk stays in the first-level cache.
    const auto range = [&](uint32_t i, uint32_t *lo, uint32_t *hi) {
      const uint32_t first = first_of(rows.begin + i), end = end_of(rows.begin + i);
      if (end <= base) return false;
      *lo = first > base ? first - base : 0;
      *hi = end - base < CHUNK ? end - base : CHUNK;
      return *lo < *hi;
    };
    uint32_t lo, hi;
    for (uint32_t i = 0; i < n; i++) {
      if (!range(i, &lo, &hi)) continue;
      const float *q = a.q + (rows.begin + i) * a.q_row + first_head * a.q_head;
      uint64_t q_head = a.q_head;
      if (dim_k != a.dim_k) {
        for (uint32_t h = 0; h < n_head; h++)
          for (uint64_t d = 0; d < dim_k; d++) t.q_pad[h * dim_k + d] = d < a.dim_k ? q[h * q_head + d] : 0.0f;
        q = t.q_pad;
        q_head = dim_k;
      }
      float *st = t.s + i * n_head * SCORES;
      if (k_direct) score_all<FromF16>(q, q_head, k_row, lo, hi, dim_k, a.scale, st, SCORES, n_head);
      else score_all<FromF32>(q, q_head, k_row, lo, hi, dim_k, a.scale, st, SCORES, n_head);
      if (a.softcap != 0.0f)
        for (uint32_t h = 0; h < n_head; h++)
          for (uint32_t j = lo; j < hi; j += 8) {
            float *at = st + h * SCORES + j;
            store8(at, mul8(set8(a.softcap), tanh8(div8(load8(at), set8(a.softcap)))));
          }
    }
    for (uint32_t i = 0; i < n; i++) {
      if (!range(i, &lo, &hi)) continue;
      float *ot = t.o + uint64_t(i) * n_head * dim_v, *st = t.s + i * n_head * SCORES;
      for (uint32_t h = 0; h < n_head; h++) soften(st + h * SCORES, lo, hi, t.m + i * n_head + h, t.l + i * n_head + h, ot + h * dim_v, dim_v);
      if (v_direct) mix_all<FromF16>(st, SCORES, v_row, lo, hi, dim_v, ot, dim_v, n_head);
      else mix_all<FromF32>(st, SCORES, v_row, lo, hi, dim_v, ot, dim_v, n_head);
    }
  }
}

static void attend(const AttentionJob &a, uint32_t kv_head, uint32_t head, uint32_t n_head, RowBlock rows, float *buffer) {
  const uint32_t first_head = kv_head * (a.n_head / a.n_head_kv) + head, n = rows.end - rows.begin;
  AttentionState t;
  t.n = n, t.n_head = n_head, t.dim_k = round8(a.dim_k), t.dim_v = round8(a.dim_v);
  t.o = buffer;
  t.m = t.o + n * n_head * t.dim_v;
  t.l = t.m + n * n_head;
  t.s = t.l + n * n_head;
  t.q_pad = t.s + n * n_head * SCORES;
  t.k_buf = t.q_pad + n_head * t.dim_k;
  t.v_buf = t.k_buf + CHUNK * t.dim_k;
  for (uint64_t i = 0; i < n * n_head * t.dim_v; i++) t.o[i] = 0.0f;
  for (uint64_t i = 0; i < n * n_head; i++) t.m[i] = -INFINITY, t.l[i] = 0.0f;
  for (uint32_t i = 0; i < a.n_segment; i++) attend_segment(a, a.segment[i], kv_head, first_head, rows, t);

  for (uint32_t r = 0; r < n; r++)
    for (uint32_t h = 0; h < n_head; h++) {
      float *y = a.y + (uint64_t(rows.begin + r) * a.n_head + first_head + h) * a.dim_v;
      float *from = t.o + (uint64_t(r) * n_head + h) * t.dim_v, *l = t.l + r * n_head + h;
      if (a.sinks != nullptr) {
        float s[CHUNK];
        s[0] = a.sinks[first_head + h];
        soften(s, 0, 1, t.m + r * n_head + h, l, from, t.dim_v);
      }
      const f32x8 sum = set8(*l == 0.0f ? 1.0f : *l);  // without a visible row the values are zeros
      for (uint64_t d = 0; d < a.dim_v; d += 8) store_up_to(y + d, div8(load8(from + d), sum), a.dim_v - d);
    }
}

}  // namespace BL_ISA
}  // namespace bl
