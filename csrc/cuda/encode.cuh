// encode.cuh: one superblock of a row into the encodings the matrix kernels read (packed.h). A warp holds it, lane l the values
// 8 l .. 8 l + 7.
#pragma once

#include "packed.h"

namespace bl::cuda {

__device__ inline void encode_f16(const Encoded &e, uint32_t row, uint32_t sb, const float (&v)[8], int lane) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; i++) largest = fmaxf(largest, fabsf(v[i]));
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
  // 2^(exponent - 9): the largest comes to lie in [512, 1024). Exponents are kept where both powers are normal numbers.
  const int exponent = min(max(int(__float_as_uint(largest) >> 23), 20), 240);
  const float scale = __uint_as_float(uint32_t(exponent - 9) << 23), inverse = __uint_as_float(uint32_t(254 - (exponent - 9)) << 23);

  uint32_t packed[4];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    packed[i] = h2_bits(__floats2half2_rn(v[2 * i] * inverse, v[2 * i + 1] * inverse));
    sum = __fadd_rn(__fadd_rn(sum, half_lo(packed[i])), half_hi(packed[i]));
  }
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 1));
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 2));
  const uint32_t k = sb * SB + lane * 8;
  if (k < e.k_stride)
    *reinterpret_cast<uint4 *>(e.values + uint64_t(row) * e.k_stride + k) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  if (lane % 4 == 0) {
    __half *sums = reinterpret_cast<__half *>(e.sums) + (uint64_t(row) * e.n_sb + sb) * 16;
    const __half high = __float2half_rn(sum);
    sums[lane / 4] = high;
    sums[8 + lane / 4] = __float2half_rn(__fsub_rn(sum, __half2float(high)));
  }
  if (lane == 0) e.scale[uint64_t(row) * e.n_sb + sb] = scale;
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
