// delta.h: the linear recurrence of DELTA for one value head and neighbouring rows of one sequence.
//
// bits    per row and state column j (dk numbers that lie together): S = e^g S; seen = sum of S k; u = beta (v_j - seen), or beta v_j for
//         the plain rule; S = fma(k, u, S); y_j = sum of S q. Sums by 8 lanes over dk in order by fma, then sum8. A column depends on no
//         other, so columns go through the rows eight at a time.
// cost    9 dk dv flops a row; eight columns stay in the first-level cache over the rows of a pass
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

// Rows [first, last) through N columns of the state.   decay [last - first, padded dk]
template <int N>
static inline void delta_columns(const DeltaJob &a, uint32_t j, uint32_t first, uint32_t last, const float *decay, uint64_t padded) {
  float *S[N];
  for (int c = 0; c < N; c++) S[c] = a.state + uint64_t(j + c) * a.dk;
  for (uint32_t r = first; r < last; r++, decay += padded) {
    const float *q = a.q + r * a.q_row, *k = a.k + r * a.k_row, *v = a.v + r * a.v_row + j;
    const float beta = a.beta[r * a.beta_row];
    f32x8 acc[8];
    float out[8];
    for (int c = 0; c < 8; c++) acc[c] = zero8();
    for (uint64_t i = 0; i < a.dk; i += 8) {
      const uint64_t n = a.dk - i;
      const f32x8 kv = load_up_to(k + i, n), dv = load8(decay + i);
#pragma GCC unroll 8
      for (int c = 0; c < N; c++) {
        const f32x8 s = mul8(load_up_to(S[c] + i, n), dv);
        store_up_to(S[c] + i, s, n);
        acc[c] = fma8(s, kv, acc[c]);
      }
    }
    store8(out, sum8x8(acc));
    f32x8 u[N];
    for (int c = 0; c < N; c++) {
      u[c] = set8(beta * (a.plain ? v[c] : v[c] - out[c]));
      acc[c] = zero8();
    }
    for (uint64_t i = 0; i < a.dk; i += 8) {
      const uint64_t n = a.dk - i;
      const f32x8 kv = load_up_to(k + i, n), qv = load_up_to(q + i, n);
#pragma GCC unroll 8
      for (int c = 0; c < N; c++) {
        const f32x8 s = fma8(kv, u[c], load_up_to(S[c] + i, n));
        store_up_to(S[c] + i, s, n);
        acc[c] = fma8(s, qv, acc[c]);
      }
    }
    store8(out, sum8x8(acc));
    memcpy(a.y + r * a.y_row + j, out, N * sizeof(float));
  }
}

static void delta(const DeltaJob &a, float *buffer) {
  const uint64_t padded = (uint64_t(a.dk) + 7) / 8 * 8;
  for (uint32_t first = 0; first < a.n_row; first += DELTA_ROWS) {
    const uint32_t last = a.n_row - first < DELTA_ROWS ? a.n_row : first + DELTA_ROWS;
    for (uint32_t r = first; r < last; r++) {
      const float *g = a.g + r * a.g_row;
      float *decay = buffer + (r - first) * padded;
      for (uint64_t i = 0; i < padded; i += 8) store8(decay + i, exp8(a.dg == 1 ? set8(g[0]) : load_up_to(g + i, a.dk - i)));
    }
    uint32_t j = 0;
    for (; j + 8 <= a.dv; j += 8) delta_columns<8>(a, j, first, last, buffer, padded);
    for (; j < a.dv; j++) delta_columns<1>(a, j, first, last, buffer, padded);
  }
}

}  // namespace BL_ISA
}  // namespace bl
