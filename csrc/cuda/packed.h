// packed.h: how weights and activations lie in card memory for the matrix kernels.
//
// A weight lies as [tile of 16 rows][superblock of 256 k] of packed_sb_bytes(): codes in the order of a warp's lanes, then scales. Rows are
// padded to 16 and k to 256 with zeros. Lane (g, t) = (lane / 4, lane % 4) of a warp has weight rows g and g + 8, and row g of activations.
//
//   quantized weights   whole.h: products of whole numbers, exact, with the bits of the host's
//   float weights       here: sums of bfloat16 terms, m16n8k16; within 32 values of k a lane has k = 8t .. 8t + 7
//
// Activation rows are encoded once for all the weights that read them:
//   for quantized weights  14 bits as two signed bytes, q = 128 hi + lo, a scale for each 256 values. Within 32 values lane t has 16 bytes:
//                          hi of k = 4t .. 4t + 3, hi of 16 + 4t .., lo of the same. And sums of 16 values of hi, then of lo, as halves
//   for float weights      three planes of bfloat16 whose sum is the f32 value
//
// What a dot product is, in every kernel (so that bits do not depend on how many rows share a launch): for each superblock one number, by
// the weight's formula; superblocks are added in order within a span, a quarter of them, and the spans in order (whole.h). Float weights: one
// f32 accumulator a superblock from zero through its products in ascending k, superblocks added in order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "../common/blocks.h"
#include "cuda.h"

namespace bl::cuda {

constexpr uint32_t TILE_ROWS = 16;
constexpr uint32_t SB = 256;    // values of k whose products share an accumulator
constexpr uint32_t STEP = 64;   // k per pipeline step
constexpr uint32_t SB_STEPS = SB / STEP;

// Whether weights of this type have products.
bool has_products(uint32_t type);

// Activation rows as the matrix kernels read them.
struct Encoded {
  uint16_t *values = nullptr;  // [rows, k_stride] pairs of bytes, or three planes of bf16
  uint64_t plane = 0;          // elements from one bf16 plane to the next
  uint16_t *sums = nullptr;    // f16 [rows, n_sb, 2, 16]: of hi, of lo
  float *scale = nullptr;      // [rows, n_sb]
  uint32_t k_stride = 0;       // k rounded up to SB; the padding is zero
  uint32_t n_sb = 0;
};

// Whether weights of this type multiply rows of whole numbers (else bf16 planes).
BL_HD constexpr bool reads_whole_rows(uint32_t type) { return type != TYPE_F32 && type != TYPE_F16 && type != TYPE_BF16; }

// Bytes of a packed superblock of 16 rows; 0: the type has no kernels.
uint32_t packed_sb_bytes(uint32_t type);
BL_HD constexpr uint32_t float_sb_bytes(uint32_t type) { return TILE_ROWS * SB * (type == TYPE_F32 ? 4 : 2); }

#if defined(__CUDACC__)

// --- products -------------------------------------------------------------------------------------------------------------------

__device__ inline void mma_bf16(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- words ----------------------------------------------------------------------------------------------------------------------------

__device__ inline uint32_t h2_bits(half2 v) { return *reinterpret_cast<uint32_t *>(&v); }
__device__ inline half2 h2(uint32_t v) { return *reinterpret_cast<half2 *>(&v); }
__device__ inline uint32_t word(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ inline float half_lo(uint32_t v) { return __low2float(h2(v)); }
__device__ inline float half_hi(uint32_t v) { return __high2float(h2(v)); }
__device__ inline float half_at(const uint4 &v, int i) { return i & 1 ? half_hi(word(v, i / 2)) : half_lo(word(v, i / 2)); }
// `w` shifted left by a compile-time amount that may be negative.
__device__ inline uint32_t shift_left(uint32_t w, int n) { return n >= 0 ? w << n : w >> -n; }

__device__ inline uint4 load16(const uint8_t *p) { return __ldcs(reinterpret_cast<const uint4 *>(p)); }
__device__ inline uint2 load8(const uint8_t *p) { return __ldcs(reinterpret_cast<const uint2 *>(p)); }
__device__ inline uint32_t load4(const uint8_t *p) { return __ldcs(reinterpret_cast<const uint32_t *>(p)); }

// --- float weights --------------------------------------------------------------------------------------------------------------------
//
// Each format has Codes (per STEP of k) and fragment(b, codes, a): A operands of block b of the superblock, a[term][0..3] first product,
// a[term][4..7] second. NA: terms of the weight.

// Floats: sums of bfloat16 terms, so that products with three-term activations carry f32's 24 bits.
struct FormatBF16 {
  static constexpr uint32_t TYPE = TYPE_BF16, NA = 1;
  struct Codes { uint4 w[2][2]; };  // [block][row g, row g + 8]
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) c.w[i / 2][i % 2] = load16(sb + (step * 4 + i) * 512 + lane * 16);
  }
  static __device__ void fragment(int b, const Codes &c, uint32_t (&a)[1][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < 4; i++) a[0][2 * i + r] = word(c.w[b & 1][r], i);
  }
};

__device__ inline uint32_t bf2_bits(float x, float y) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t *>(&v);
}
__device__ inline float bf_lo(uint32_t v) { return __uint_as_float(v << 16); }
__device__ inline float bf_hi(uint32_t v) { return __uint_as_float(v & 0xFFFF0000u); }

struct FormatF16 {
  static constexpr uint32_t TYPE = TYPE_F16, NA = 2;
  struct Codes { uint4 w[2][2]; };
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) c.w[i / 2][i % 2] = load16(sb + (step * 4 + i) * 512 + lane * 16);
  }
  // 11 bits are the sum of two bfloat16, exactly.
  static __device__ void fragment(int b, const Codes &c, uint32_t (&a)[2][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint32_t w = word(c.w[b & 1][r], i);
        const float x = half_lo(w), y = half_hi(w);
        const uint32_t top = bf2_bits(x, y);
        a[0][2 * i + r] = top;
        a[1][2 * i + r] = bf2_bits(x - bf_lo(top), y - bf_hi(top));
      }
  }
};

struct FormatF32 {
  static constexpr uint32_t TYPE = TYPE_F32, NA = 3;
  struct Codes { uint4 w[2][4]; };  // [block][row g k 0-3, 4-7, row g + 8 k 0-3, 4-7]
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
#pragma unroll
    for (int i = 0; i < 8; i++) c.w[i / 4][i % 4] = load16(sb + (step * 8 + i) * 512 + lane * 16);
  }
  static __device__ void fragment(int b, const Codes &c, uint32_t (&a)[3][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float x = __uint_as_float(word(c.w[b & 1][r * 2 + i / 2], i % 2 * 2));
        float y = __uint_as_float(word(c.w[b & 1][r * 2 + i / 2], i % 2 * 2 + 1));
#pragma unroll
        for (int term = 0; term < 3; term++) {
          const uint32_t top = bf2_bits(x, y);
          a[term][2 * i + r] = top;
          x -= bf_lo(top), y -= bf_hi(top);
        }
      }
  }
};

// c += the products of one block of 32: in this order, everywhere. x[plane] are the B operands of the block.
template <class F>
__device__ inline void accumulate(float (&c)[4], const uint32_t (&a)[F::NA][8], const uint4 (&x)[3]) {
#pragma unroll
  for (int k = 0; k < 2; k++)
#pragma unroll
    for (int i = 0; i < int(F::NA); i++)
#pragma unroll
      for (int j = 0; j < 3 - i; j++) mma_bf16(c, a[i] + 4 * k, k ? x[j].z : x[j].x, k ? x[j].w : x[j].y);
}

#endif  // __CUDACC__

}  // namespace bl::cuda
