// float_dot.h: activation rows against one row of f32, f16 or bf16 weights.
//
// bits    16 lanes, k mod 16, each in order by fma; lanes 0-7 plus lanes 8-15; sum8. A tail of k is a vector filled up with zeros.
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

template <int TYPE>
static inline f32x8 load_weights(const uint8_t *w, uint64_t k) {
  if (TYPE == FLOAT_F16) return load_f16x8(reinterpret_cast<const uint16_t *>(w) + k);
  if (TYPE == FLOAT_BF16) return load_bf16x8(reinterpret_cast<const uint16_t *>(w) + k);
  return load8(reinterpret_cast<const float *>(w) + k);
}

template <int TYPE>
static inline f32x8 load_weights_part(const uint8_t *w, uint64_t k, uint64_t n) {
  constexpr uint64_t SIZE = TYPE == FLOAT_F32 ? 4 : 2;
  uint8_t part[32] = {};
  memcpy(part, w + k * SIZE, n * SIZE);
  return load_weights<TYPE>(part, 0);
}

template <int TYPE, int R>
static void float_dot(const uint8_t *w, const float *const *x, uint64_t n_in, float *out) {
  f32x8 even[R], odd[R];
  for (int r = 0; r < R; r++) even[r] = odd[r] = zero8();
  uint64_t k = 0;
  for (; k + 16 <= n_in; k += 16) {
    const f32x8 w0 = load_weights<TYPE>(w, k), w1 = load_weights<TYPE>(w, k + 8);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      even[r] = fma8(w0, load8(x[r] + k), even[r]);
      odd[r] = fma8(w1, load8(x[r] + k + 8), odd[r]);
    }
  }
  if (k + 8 <= n_in) {
    const f32x8 w0 = load_weights<TYPE>(w, k);
    for (int r = 0; r < R; r++) even[r] = fma8(w0, load8(x[r] + k), even[r]);
    k += 8;
    if (k < n_in) {
      const f32x8 w1 = load_weights_part<TYPE>(w, k, n_in - k);
      for (int r = 0; r < R; r++) odd[r] = fma8(w1, load_part(x[r] + k, n_in - k), odd[r]);
    }
  } else if (k < n_in) {
    const f32x8 w0 = load_weights_part<TYPE>(w, k, n_in - k);
    for (int r = 0; r < R; r++) even[r] = fma8(w0, load_part(x[r] + k, n_in - k), even[r]);
  }
  for (int r = 0; r < R; r++) out[r] = sum8(add8(even[r], odd[r]));
}

}  // namespace BL_ISA
}  // namespace bl
