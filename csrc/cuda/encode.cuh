// encode.cuh: one superblock of a row into the encodings the matrix kernels read (packed.h). A warp holds it, lane l the values
// 8 l .. 8 l + 7.
#pragma once

#include "packed.h"

namespace bl::cuda {

// By the rule of ../cpu/impl/quantize_row.h, to the same bits.
__device__ inline void encode_whole(const Encoded &e, uint32_t row, uint32_t sb, const float (&v)[8], int lane) {
  uint32_t largest = 0;  // |x| orders as its bits; NaN on top
#pragma unroll
  for (int i = 0; i < 8; i++) largest = max(largest, __float_as_uint(v[i]) & 0x7FFFFFFFu);
  largest = __reduce_max_sync(~0u, largest);
  const float amax = __uint_as_float(largest);
  const bool finite = largest < 0x7F800000u, zero = !finite || amax < 1e-30f;
  const float d = !finite ? __uint_as_float(0x7FC00000u) : zero ? 0.0f : __fdiv_rn(amax, 8191.0f);
  const float inverse = zero ? 0.0f : __fdiv_rn(8191.0f, amax);
  uint32_t hi[2] = {0, 0}, lo[2] = {0, 0};
  int32_t sum_hi = 0, sum_lo = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int32_t q = zero ? 0 : __float2int_rn(__fmul_rn(v[i], inverse)), h = (q + 64) >> 7, l = q - 128 * h;
    sum_hi += h, sum_lo += l;
    hi[i / 4] |= (uint32_t(h) & 255u) << (8 * (i % 4)), lo[i / 4] |= (uint32_t(l) & 255u) << (8 * (i % 4));
  }
  sum_hi += __shfl_xor_sync(~0u, sum_hi, 1), sum_lo += __shfl_xor_sync(~0u, sum_lo, 1);
  const uint32_t k = sb * SB + lane * 8;
  if (k < e.k_stride) {
    // Values 8 l .. are of lanes t and t + 1 of a product, in one half of its block.
    const uint32_t at = (lane / 4 * 64) + (lane % 2 * 2) * 16 + (lane % 4 / 2) * 4;
    uint8_t *to = reinterpret_cast<uint8_t *>(e.values + uint64_t(row) * e.k_stride + sb * SB) + at;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      *reinterpret_cast<uint32_t *>(to + i * 16) = hi[i];
      *reinterpret_cast<uint32_t *>(to + i * 16 + 8) = lo[i];
    }
  }
  if (lane % 2 == 0) {
    __half *sums = reinterpret_cast<__half *>(e.sums) + (uint64_t(row) * e.n_sb + sb) * 32;
    sums[lane / 2] = __int2half_rn(sum_hi), sums[16 + lane / 2] = __int2half_rn(sum_lo);
  }
  if (lane == 0) e.scale[uint64_t(row) * e.n_sb + sb] = d;
}

__device__ inline void encode_bf16(const Encoded &e, uint32_t row, uint32_t sb, const float (&v)[8], int lane) {
  const uint32_t k = sb * SB + lane * 8;
  if (k >= e.k_stride) return;
  float rest[8];
#pragma unroll
  for (int i = 0; i < 8; i++) rest[i] = v[i];
#pragma unroll
  for (int plane = 0; plane < 3; plane++) {
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      packed[i] = bf2_bits(rest[2 * i], rest[2 * i + 1]);
      rest[2 * i] = __fsub_rn(rest[2 * i], bf_lo(packed[i]));
      rest[2 * i + 1] = __fsub_rn(rest[2 * i + 1], bf_hi(packed[i]));
    }
    *reinterpret_cast<uint4 *>(e.values + plane * e.plane + uint64_t(row) * e.k_stride + k) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

}  // namespace bl::cuda
