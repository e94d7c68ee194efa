// coded_scales.h: what the portable and the vector path of coded rows share: scales, and the floats that follow the exact sums.
//
// bits    H, L: exact sums of codes (times their whole scales) with the high and low bytes of a row; joined(H, L) = fma(H, 128, L):
//           scaled       d joined(H, L)
//           scaled_min   fma(d, joined(H, L), -(dmin joined(sums of minimums times sums of the row's bytes)))
//           blocks, blocks16   a = fma(block_d, joined(H, L), a) over the blocks from 0
//           blocks_min   likewise, each block followed by a = fma(block_m, joined(sums of the row's bytes), a)
//         times the row's scale; superblocks are added in spans (packing.h).
#pragma once

#include "../../common/decode.h"
#include "../coded.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

#if defined(__AVX2__)
static inline float half(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
#else
static inline float half(uint16_t h) { return f16_to_f32(h); }
#endif

template <CodedForm F>
static inline float scaled_value(const Coded &c, int32_t hi, int32_t lo, int32_t min_hi, int32_t min_lo) {
  const float value = fma1(float(hi), 128.0f, float(lo));
  if constexpr (F == CodedForm::scaled_min) return fma1(c.d, value, -(c.dmin * fma1(float(min_hi), 128.0f, float(min_lo))));
  else return c.d * value;
}

template <CodedForm F>
static inline float blocks_value(const Coded &c, const float *parts, const ActRow &x) {
  float a = 0.0f;
  for (int b = 0; b < (F == CodedForm::blocks16 ? 16 : 8); b++) {
    a = fma1(c.block_d[b], parts[b], a);
    if constexpr (F == CodedForm::blocks_min) a = fma1(c.block_m[b], fma1(float(x.sum32[0][b]), 128.0f, float(x.sum32[1][b])), a);
  }
  return a;
}

// Scales of blocks that are smaller than a superblock, for values from `at` on.
template <class Block>
static inline void scales_of(const Block &b, int at, Coded &c) {
  c.block_d[at / 32] = half(b.d);
}
static inline void scales_of(const BlockQ1_0 &b, int at, Coded &c) {
  for (int i = 0; i < 4; i++) c.block_d[at / 32 + i] = half(b.d);
}
static inline void scales_of(const BlockQ2_0 &b, int at, Coded &c) {
  for (int i = 0; i < 2; i++) c.block_d[at / 32 + i] = half(b.d);
}
static inline void scales_of(const BlockQ4_1 &b, int at, Coded &c) { c.block_d[at / 32] = half(b.d), c.block_m[at / 32] = half(b.m); }
static inline void scales_of(const BlockQ5_1 &b, int at, Coded &c) { c.block_d[at / 32] = half(b.d), c.block_m[at / 32] = half(b.m); }
static inline void scales_of(const BlockMXFP4 &b, int at, Coded &c) { c.block_d[at / 32] = e8m0_half(b.e); }
static inline void scales_of(const BlockNVFP4 &b, int at, Coded &c) {
  for (int s = 0; s < 4; s++) c.block_d[at / 16 + s] = ue4m3_half(b.d[s]);
}

static inline void equal_scales(Coded &c) {
  for (int j = 0; j < 16; j++) c.scale[j] = 1;
}
// The scale of a group of 32 values.
static inline void scale32(Coded &c, int g, int scale) { c.scale[2 * g] = c.scale[2 * g + 1] = int16_t(scale); }

static inline void scales_of(const BlockQ2_K &b, Coded &c) {
  c.d = half(b.d), c.dmin = half(b.dmin);
  for (int j = 0; j < 16; j++) c.scale[j] = b.scales[j] & 15, c.min[j] = b.scales[j] >> 4;
}
static inline void scales_of(const BlockQ3_K &b, Coded &c) {
  c.d = half(b.d);
  for (int j = 0; j < 16; j++) c.scale[j] = int16_t(unpack_k3(b.scales, j) - 32);
}
static inline void scales_of(const BlockTQ1_0 &b, Coded &c) {
  c.d = half(b.d);
  equal_scales(c);
}
static inline void scales_of(const BlockTQ2_0 &b, Coded &c) {
  c.d = half(b.d);
  equal_scales(c);
}
static inline void scales_of(const BlockIQ4_XS &b, Coded &c) {
  c.d = half(b.d);
  for (int g = 0; g < 8; g++) scale32(c, g, (((b.scales_l[g / 2] >> (4 * (g % 2))) & 15) | ((b.scales_h >> (2 * g)) & 3) << 4) - 32);
}
// d (1 / 2 + u) / 4 = d / 8 (2 u + 1)
static inline void scales_of(const BlockIQ2_XXS &b, Coded &c) {
  c.d = half(b.d) * 0.125f;
  for (int g = 0; g < 8; g++) scale32(c, g, 2 * (b.qs[4 * g + 3] >> 12) + 1);
}
static inline void odd_nibbles(const uint8_t *scales, Coded &c) {
  for (int j = 0; j < 16; j++) c.scale[j] = int16_t(2 * ((scales[j / 2] >> (4 * (j % 2))) & 15) + 1);
}
static inline void scales_of(const BlockIQ2_XS &b, Coded &c) {
  c.d = half(b.d) * 0.125f;
  odd_nibbles(b.scales, c);
}
static inline void scales_of(const BlockIQ2_S &b, Coded &c) {
  c.d = half(b.d) * 0.125f;
  odd_nibbles(b.scales, c);
}
static inline void scales_of(const BlockIQ3_XXS &b, Coded &c) {
  c.d = half(b.d) * 0.25f;
  for (int g = 0; g < 8; g++) scale32(c, g, 2 * (b.sas[4 * g + 3] >> 4) + 1);
}
static inline void scales_of(const BlockIQ3_S &b, Coded &c) {
  c.d = half(b.d);
  for (int g = 0; g < 8; g++) scale32(c, g, 2 * ((b.scales[g / 2] >> (4 * (g % 2))) & 15) + 1);
}
static inline void scales_of(const BlockIQ1_S &b, Coded &c) {
  c.d = half(b.d) * 0.125f;
  for (int g = 0; g < 8; g++) scale32(c, g, 2 * ((b.qh[g] >> 12) & 7) + 1);
}
static inline void scales_of(const BlockIQ1_M &b, Coded &c) {
  uint16_t sc[4];
  c.d = half(iq1_m_scale(b, sc)) * 0.125f;
  for (int j = 0; j < 16; j++) c.scale[j] = int16_t(2 * ((sc[j / 4] >> (3 * (j % 4))) & 7) + 1);
}

// The sixteen values of tq1_0 that lie four to a byte.
static inline void last_trits(const BlockTQ1_0 &b, Coded &c) {
  for (int k = 0; k < 4; k++)
    for (int m = 0; m < 4; m++) c.code[240 + 4 * k + m] = int8_t(trit(b.qh[m], k) - 1);
}

}  // namespace BL_ISA
}  // namespace bl
