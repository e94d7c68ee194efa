// float_panel.h: many activation rows against 8 rows of float weights, which become f32 once for all of them.
//
// bits    those of float_dot.h: lanes 0-7 and lanes 8-15 of a sum do not meet before its end, so each half runs over all k by itself, in
//         order; where a sum waits in memory it waits as it is. n_in is a multiple of 16: no tail.
// floor   two fma of 8 lanes a cycle; 4 weight rows x 3 activation rows are 12 fma on 7 loads, in all 16 registers of AVX2
#pragma once

#include "float_dot.h"

namespace bl {
namespace BL_ISA {

constexpr uint64_t PANEL_HALF = 4;      // weight rows whose sums are in registers at once
constexpr uint32_t PANEL_TILE = 3;      // activation rows likewise
constexpr uint64_t PANEL_SUMS = 2 * 8 * GROUP;  // floats of the sums of one activation row: [lanes 0-7, lanes 8-15][weight row][8]

// Values k .. k + n of n_w weight rows as a panel, f32 [2][n / 8][4][8]: the first index and the third are the weight row's.
template <int TYPE>
static inline void float_expand(const uint8_t *const *w, uint32_t n_w, uint64_t k, uint64_t n, float *panel) {
  for (uint32_t first = 0; first < n_w; first += PANEL_HALF) {
    const uint32_t m = n_w - first < PANEL_HALF ? n_w - first : uint32_t(PANEL_HALF);
    float *to = panel + first * n;
    if (m == PANEL_HALF) {
      for (uint64_t j = 0; j < n; j += 8)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < PANEL_HALF; i++) store8(to + j * PANEL_HALF + i * 8, load_weights<TYPE>(w[first + i], k + j));
    } else {
      for (uint32_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j += 8) store8(to + j * PANEL_HALF + i * 8, load_weights<TYPE>(w[first + i], k + j));
    }
  }
}

// Adds n values of k to the sums of 4 weight rows x R activation rows, or starts them.   w: half a panel from k on
template <int R>
static inline void float_tile(const float *w, const float *const *x, uint64_t k, uint64_t n, bool start, float *sums) {
  for (uint64_t half = 0; half < 2; half++) {
    f32x8 acc[PANEL_HALF * R];
    const float *row[R];
    const float *wk = w + half * 8 * PANEL_HALF;
#pragma GCC unroll 3
    for (int r = 0; r < R; r++) {
      row[r] = x[r] + k + half * 8;
#pragma GCC unroll 4
      for (uint64_t i = 0; i < PANEL_HALF; i++)
        acc[i * R + r] = start ? zero8() : load8(sums + r * PANEL_SUMS + half * 8 * GROUP + i * 8);
    }
    for (uint64_t j = 0; j < n; j += 16) {
      f32x8 xv[R];
#pragma GCC unroll 3
      for (int r = 0; r < R; r++) xv[r] = load8(row[r] + j);
#pragma GCC unroll 4
      for (uint64_t i = 0; i < PANEL_HALF; i++) {
        const f32x8 wv = load8(wk + j * PANEL_HALF + i * 8);
#pragma GCC unroll 3
        for (int r = 0; r < R; r++) acc[i * R + r] = fma8(wv, xv[r], acc[i * R + r]);
      }
    }
#pragma GCC unroll 3
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (uint64_t i = 0; i < PANEL_HALF; i++) store8(sums + r * PANEL_SUMS + half * 8 * GROUP + i * 8, acc[i * R + r]);
  }
}

template <int R>
static inline void float_tiles(const float *panel, const float *const *x, uint64_t k, uint64_t n, float *sums) {
  float_tile<R>(panel, x, k, n, k == 0, sums);
  float_tile<R>(panel + n * PANEL_HALF, x, k, n, k == 0, sums + 8 * PANEL_HALF);
}

template <int TYPE>
static void float_panel(const uint8_t *const *w, uint32_t n_w, uint64_t n_in, const float *const *x, uint32_t n_rows, float *buffer,
                        float *const *y, uint64_t o) {
  float *panel = buffer, *sums = buffer + GROUP * PANEL_K;
  for (uint64_t k = 0; k < n_in; k += PANEL_K) {
    const uint64_t n = n_in - k < PANEL_K ? n_in - k : PANEL_K;
    float_expand<TYPE>(w, n_w, k, n, panel);
    for (uint32_t row = 0; row < n_rows; row += PANEL_TILE) {
      const uint32_t R = n_rows - row < PANEL_TILE ? n_rows - row : PANEL_TILE;
      float *s = sums + (n_in > PANEL_K ? row * PANEL_SUMS : 0);  // sums that need not wait stay close
      if (R == 3) float_tiles<3>(panel, x + row, k, n, s);
      else if (R == 2) float_tiles<2>(panel, x + row, k, n, s);
      else float_tiles<1>(panel, x + row, k, n, s);
      if (k + n < n_in) continue;
      for (uint32_t r = 0; r < R; r++) {
        f32x8 v[GROUP];
        for (uint64_t i = 0; i < GROUP; i++) v[i] = add8(load8(s + r * PANEL_SUMS + i * 8), load8(s + r * PANEL_SUMS + (GROUP + i) * 8));
        if (n_w == GROUP) store8(y[row + r] + o, sum8x8(v));
        else store_part(y[row + r] + o, sum8x8(v), n_w);
      }
    }
  }
}

}  // namespace BL_ISA
}  // namespace bl
