// attention_state.cuh: the arithmetic all attention kernels share: what a chunk's state is, and how two states merge.
#pragma once

#include "attention.h"

namespace bl::cuda {

__device__ inline float exp2_fast(float x) {  // 2^x; 0 gives exactly 1, -inf gives 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float LOG2_E = 1.4426950408889634f;

// Weights of an older and a newer state in their union. A state that saw no key has largest = -inf and weighs nothing; one that
// meets such a state keeps its bits: the weights are then exactly 1 and 0.
__device__ inline void merge_weights(float &largest, float newer, float &keep, float &take) {
  const float both = fmaxf(largest, newer);
  keep = largest == -INFINITY ? 0.0f : exp2_fast(__fsub_rn(largest, both));
  take = newer == -INFINITY ? 0.0f : exp2_fast(__fsub_rn(newer, both));
  largest = both;
}
__device__ inline float merge(float older, float keep, float newer, float take) {
  return __fmaf_rn(older, keep, __fmul_rn(newer, take));
}
// The row's result from its merged sum and values; a row that saw no key is 0.
__device__ inline float attention_result(float value, float sum) { return sum > 0.0f ? __fdiv_rn(value, sum) : 0.0f; }

}  // namespace bl::cuda
