// index.h: scores of INDEX, and rows of a stream as floats.
//
// bits    per key and head the dot of attention.h, times scale; then over heads in order fma(w, max(score, 0), sum), from 0.
#pragma once

#include "attention.h"

namespace bl {
namespace BL_ISA {

static void decode_cache(const uint8_t *row, uint32_t type, uint64_t n, float *x) { decode_head(row, type, uint32_t(n), x); }

static void index_keys(const IndexJob &a, const uint8_t *const *keys, uint32_t n, float *scores, float *buffer) {
  const uint64_t dim = round8(a.dim);
  constexpr uint64_t S = INDEX_ROWS + 8;
  float *k = buffer, *s = k + INDEX_ROWS * dim, *q_pad = s + a.n_head * S;
  const uint8_t *row[INDEX_ROWS];
  for (uint32_t j = 0; j < n; j++) {
    decode_head(keys[j], a.type, a.dim, k + j * dim);
    row[j] = reinterpret_cast<const uint8_t *>(k + j * dim);
  }
  const float *q = a.q;
  uint64_t q_head = a.q_head;
  if (dim != a.dim) {
    for (uint32_t h = 0; h < a.n_head; h++)
      for (uint64_t d = 0; d < dim; d++) q_pad[h * dim + d] = d < a.dim ? q[h * q_head + d] : 0.0f;
    q = q_pad;
    q_head = dim;
  }
  score_all<FromF32>(q, q_head, row, 0, n, dim, a.scale, s, S, a.n_head);
  for (uint32_t j = 0; j < n; j += 8) {
    f32x8 sum = zero8();
    for (uint32_t h = 0; h < a.n_head; h++)
      sum = fma8(set8(a.w == nullptr ? 1.0f : a.w[h]), relu8(load8(s + h * S + j)), sum);
    store_up_to(scores + j, sum, n - j);
  }
}

}  // namespace BL_ISA
}  // namespace bl
