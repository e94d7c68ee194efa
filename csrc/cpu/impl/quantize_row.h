// quantize_row.h: f32 activations to int8 per 32 values, the tiles that packed matmuls read, and the rows of q8_0 caches.
//
// bits    per 32 values: amax = max |x|; d = amax / 127, q = round_half_even(x * (127 / amax)). Below 1e-30 a block is zeros; a NaN
//         or infinity makes d NaN and the codes 0, so that it reaches every result that it should.
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

struct BlockScale {
  float d, inverse;
};

static inline BlockScale block_scale(uint32_t amax_bits) {
  if (amax_bits >= 0x7F800000u) return {NAN, 0.0f};
  const float amax = f32_from_bits(amax_bits);
  if (amax < 1e-30f) return {0.0f, 0.0f};
  return {amax / 127.0f, 127.0f / amax};
}

// 32 floats to codes; sums[0..1] are the sums of 16 codes each. Returns d.
static inline float quantize_block(const float *x, int8_t *q, int16_t *sums) {
#if defined(__AVX2__)
  const __m256i no_sign = _mm256_set1_epi32(0x7FFFFFFF);
  __m256 v[4];
  __m256i top = _mm256_setzero_si256();
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), no_sign));  // |x| orders as its bits; NaN on top
  }
  __m128i t = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4E));
  t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xB1));
  const BlockScale scale = block_scale(uint32_t(_mm_cvtsi128_si32(t)));
  if (scale.inverse == 0.0f) {
    memset(q, 0, 32);
    sums[0] = sums[1] = 0;
    return scale.d;
  }
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  __m256i c[4];
  for (int i = 0; i < 4; i++) c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  const __m256i s16 = _mm256_packs_epi32(c[0], c[1]);  // 0-3 8-11 | 4-7 12-15
  const __m256i t16 = _mm256_packs_epi32(c[2], c[3]);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(s16, t16), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), bytes);
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i pairs = _mm256_hadd_epi32(_mm256_madd_epi16(s16, ones), _mm256_madd_epi16(t16, ones));
  const __m128i quads = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));  // s s t t
  sums[0] = int16_t(_mm_extract_epi32(quads, 0) + _mm_extract_epi32(quads, 1));
  sums[1] = int16_t(_mm_extract_epi32(quads, 2) + _mm_extract_epi32(quads, 3));
  return scale.d;
#else
  uint32_t top = 0;
  for (int i = 0; i < 32; i++) {
    const uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
    if (bits > top) top = bits;
  }
  const BlockScale scale = block_scale(top);
  if (scale.inverse == 0.0f) {
    memset(q, 0, 32);
    sums[0] = sums[1] = 0;
    return scale.d;
  }
  for (int half = 0; half < 2; half++) {
    int sum = 0;
    for (int i = 16 * half; i < 16 * half + 16; i++) {
      const float magic = x[i] * scale.inverse + 12582912.0f;  // rounds to nearest even
      const int code = int32_t(f32_bits(magic) & 0x7FFFFFu) - 0x400000;
      q[i] = int8_t(code);
      sum += code;
    }
    sums[half] = int16_t(sum);
  }
  return scale.d;
#endif
}

static void quantize_tile(const float *const *x, uint32_t R, uint64_t n_in, uint8_t *tile) {
  for (uint64_t b = 0; b < n_in / 32; b++, tile += ACT_BYTES * R) {
    for (uint32_t r = 0; r < R; r++) {
      int16_t sums[2];
      const float d = quantize_block(x[r] + 32 * b, reinterpret_cast<int8_t *>(tile) + 32 * r, sums);
      const float s = d * float(sums[0] + sums[1]);
      memcpy(tile + 32 * R + 4 * r, &d, 4);
      memcpy(tile + 36 * R + 4 * r, &s, 4);
      memcpy(tile + 40 * R + 4 * r, sums, 4);
    }
  }
}

static void encode_cache(const float *x, uint32_t type, uint64_t n, uint8_t *row) {
  if (type == TYPE_F16) {
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) store_f16x8(reinterpret_cast<uint16_t *>(row) + i, load8(x + i));
    for (; i < n; i++) {
      const uint16_t h = f32_to_f16(x[i]);
      memcpy(row + 2 * i, &h, 2);
    }
  } else if (type == TYPE_Q8_0) {
    for (uint64_t b = 0; b < n / 32; b++, row += 34) {
      int16_t sums[2];
      const uint16_t d = f32_to_f16(quantize_block(x + 32 * b, reinterpret_cast<int8_t *>(row) + 2, sums));
      memcpy(row, &d, 2);
    }
  } else {
    memcpy(row, x, n * 4);
  }
}

}  // namespace BL_ISA
}  // namespace bl
