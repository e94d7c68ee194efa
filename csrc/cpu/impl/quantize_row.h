// quantize_row.h: f32 activations to the 14-bit records that packed matmuls read (packing.h), and the rows of q8_0 caches.
//
// bits    per 256 values: amax = max |x|; d = amax / 8191, q = round_half_even(x * (8191 / amax)), hi = (q + 64) >> 7, lo = q - 128 hi.
//         Cache rows per 32 values: d = amax / 127, q = round_half_even(x * (127 / amax)). Below 1e-30 a block is zeros; a NaN or
//         infinity makes d NaN and the codes 0, so that it reaches every result that it should.
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

struct BlockScale {
  float d, inverse;
};

static inline BlockScale block_scale(uint32_t amax_bits, float top) {
  if (amax_bits >= 0x7F800000u) return {NAN, 0.0f};
  const float amax = f32_from_bits(amax_bits);
  if (amax < 1e-30f) return {0.0f, 0.0f};
  return {amax / top, top / amax};
}

// The nearest whole number, ties to even, of |x| < 2^21.
static inline int32_t round_even(float x) {
  const float magic = x + 12582912.0f;  // 1.5 * 2^23
  return int32_t(f32_bits(magic) & 0x7FFFFFu) - 0x400000;
}

// 32 floats to codes. Returns d.
static inline float quantize_block(const float *x, int8_t *q) {
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
  const BlockScale scale = block_scale(uint32_t(_mm_cvtsi128_si32(t)), 127.0f);
  if (scale.inverse == 0.0f) {
    memset(q, 0, 32);
    return scale.d;
  }
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  __m256i c[4];
  for (int i = 0; i < 4; i++) c[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  const __m256i s16 = _mm256_packs_epi32(c[0], c[1]);  // 0-3 8-11 | 4-7 12-15
  const __m256i t16 = _mm256_packs_epi32(c[2], c[3]);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(s16, t16), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), bytes);
  return scale.d;
#else
  uint32_t top = 0;
  for (int i = 0; i < 32; i++) {
    const uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
    if (bits > top) top = bits;
  }
  const BlockScale scale = block_scale(top, 127.0f);
  if (scale.inverse == 0.0f) {
    memset(q, 0, 32);
    return scale.d;
  }
  for (int i = 0; i < 32; i++) q[i] = int8_t(round_even(x[i] * scale.inverse));
  return scale.d;
#endif
}

// One superblock of n <= 256 floats.
static inline void encode_super(const float *x, uint64_t n, ActRow &r) {
  memset(&r, 0, sizeof r);
  uint32_t top = 0;
#if defined(__AVX2__)
  float padded[SUPER];
  if (n < SUPER) {
    memset(padded, 0, sizeof padded);
    memcpy(padded, x, n * 4);
    x = padded;
  }
  const __m256i no_sign = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i most = _mm256_setzero_si256();
  for (uint32_t i = 0; i < SUPER; i += 8)
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), no_sign));
  __m128i t = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4E));
  top = uint32_t(_mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xB1))));
#else
  for (uint64_t i = 0; i < n; i++) {
    const uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
    if (bits > top) top = bits;
  }
#endif
  const BlockScale scale = block_scale(top, 8191.0f);
  r.d = scale.d;
  if (scale.inverse == 0.0f) return;
#if defined(__AVX2__)
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  const __m256i half = _mm256_set1_epi16(64), ones = _mm256_set1_epi16(1);
  for (uint32_t i = 0; i < SUPER; i += 32) {
    __m256i hi[2], lo[2];
    for (uint32_t j = 0; j < 2; j++) {
      const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 16 * j), inverse));
      const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 16 * j + 8), inverse));
      const __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);  // 16 values in order
      hi[j] = _mm256_srai_epi16(_mm256_add_epi16(q, half), 7);
      lo[j] = _mm256_sub_epi16(q, _mm256_slli_epi16(hi[j], 7));
      const __m256i sums = _mm256_hadd_epi32(_mm256_madd_epi16(hi[j], ones), _mm256_madd_epi16(lo[j], ones));  // h h l l | h h l l
      const __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
      r.sum16[0][i / 16 + j] = int16_t(_mm_extract_epi32(s, 0) + _mm_extract_epi32(s, 1));
      r.sum16[1][i / 16 + j] = int16_t(_mm_extract_epi32(s, 2) + _mm_extract_epi32(s, 3));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(r.hi + i), _mm256_permute4x64_epi64(_mm256_packs_epi16(hi[0], hi[1]), 0xD8));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(r.lo + i), _mm256_permute4x64_epi64(_mm256_packs_epi16(lo[0], lo[1]), 0xD8));
  }
#else
  for (uint64_t i = 0; i < n; i++) {
    const int32_t q = round_even(x[i] * scale.inverse), hi = (q + 64) >> 7, lo = q - 128 * hi;
    r.hi[i] = int8_t(hi), r.lo[i] = int8_t(lo);
    r.sum16[0][i / 16] = int16_t(r.sum16[0][i / 16] + hi);
    r.sum16[1][i / 16] = int16_t(r.sum16[1][i / 16] + lo);
  }
#endif
  for (int part = 0; part < 2; part++)
    for (int b = 0; b < 8; b++) r.sum32[part][b] = int16_t(r.sum16[part][2 * b] + r.sum16[part][2 * b + 1]);
}

static void encode_row(const float *x, uint64_t n_in, ActRow *out) {
  for (uint64_t i = 0; i < n_in; i += SUPER) encode_super(x + i, n_in - i < SUPER ? n_in - i : uint64_t(SUPER), *out++);
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
      const uint16_t d = f32_to_f16(quantize_block(x + 32 * b, reinterpret_cast<int8_t *>(row) + 2));
      memcpy(row, &d, 2);
    }
  } else {
    memcpy(row, x, n * 4);
  }
}

}  // namespace BL_ISA
}  // namespace bl
