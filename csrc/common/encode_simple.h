// encode_simple.h: f16, bf16, the legacy block types, the ternary types, and the 4-bit floats. One function a type, one row a call.
//
//   x [n] one row · qw [n] importance or nullptr · dst the encoded row.   returns false when a block cannot be encoded
#pragma once

#include "encode_search.h"
#include "generated/grids.h"

namespace bl {
namespace BL_LANES {

// --- floats -------------------------------------------------------------------------------------------------------------------------

BL_ENCODER bool encode_f32(const float *x, uint64_t n, const float *, void *dst) {
  memcpy(dst, x, n * 4);
  return true;
}

BL_ENCODER bool encode_f16(const float *x, uint64_t n, const float *, void *dst) {
  uint16_t *y = static_cast<uint16_t *>(dst);
  uint64_t i = 0;
#if defined(__AVX2__) && defined(__F16C__)
  for (; i + 8 <= n; i += 8) {  // the instruction keeps a NaN's payload; inputs are finite, so only infinities of overflow matter
    const __m256 v = _mm256_loadu_ps(x + i);
    if (_mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q))) break;
    _mm_storeu_si128(reinterpret_cast<__m128i *>(y + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#endif
  for (; i < n; i++) y[i] = f32_to_f16(x[i]);
  return true;
}

BL_ENCODER bool encode_bf16(const float *x, uint64_t n, const float *, void *dst) {
  uint16_t *y = static_cast<uint16_t *>(dst);
  for (uint64_t i = 0; i < n; i++) y[i] = f32_to_bf16(x[i]);
  return true;
}

// --- one and two bits ---------------------------------------------------------------------------------------------------------------

BL_ENCODER bool encode_q1_0(const float *x, uint64_t n, const float *, void *dst) {
  BlockQ1_0 *y = static_cast<BlockQ1_0 *>(dst);
  for (uint64_t b = 0; b < n / 128; b++, x += 128, y++) {
    float sum = 0.0f;
    for (int j = 0; j < 128; j++) sum += x[j] < 0 ? -x[j] : x[j];
    y->d = f32_to_f16(sum / 128.0f);
    for (int j = 0; j < 16; j++) y->qs[j] = uint8_t(lane_bits(load8(x + 8 * j) >= splat(0.0f)));
  }
  return true;
}

BL_INLINE float largest_lane(F8 v) {
#if defined(__AVX2__)
  __m128 m = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
#else
  float best = v[0];
  for (int i = 1; i < LANES; i++) best = v[i] > best ? v[i] : best;
  return best;
#endif
}

// What f32_to_f16 gives for a scale; of a NaN, that it is one.
BL_INLINE uint16_t half_of(float v) {
#if defined(__AVX2__) && defined(__F16C__)
  return uint16_t(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
#else
  return f32_to_f16(v);
#endif
}

BL_INLINE float largest_abs(const float *x, int n) {
  F8 m = splat(0.0f);
  for (int i = 0; i < n; i += 8) m = max2(abs8(load8(x + i)), m);
  return largest_lane(m);
}

// Low bytes of 32 values, in order.
BL_INLINE void store_codes(const I8 *q, uint8_t *code) {
#if defined(__AVX2__)
  const __m256i low = _mm256_set1_epi32(255);
  const __m256i a = _mm256_packs_epi32(_mm256_and_si256((__m256i)q[0], low), _mm256_and_si256((__m256i)q[1], low));
  const __m256i b = _mm256_packs_epi32(_mm256_and_si256((__m256i)q[2], low), _mm256_and_si256((__m256i)q[3], low));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(code), _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
#else
  for (int i = 0; i < 4; i++) store_bytes(code + 8 * i, q[i]);
#endif
}

BL_ENCODER bool encode_q2_0(const float *x, uint64_t n, const float *, void *dst) {
  BlockQ2_0 *y = static_cast<BlockQ2_0 *>(dst);
  for (uint64_t b = 0; b < n / 64; b++, x += 64, y++) {
    const float amax = largest_abs(x, 64);
    const F8 r = splat(amax > 0 ? 1.0f / amax : 0.0f);
    y->d = f32_to_f16(amax);
    uint8_t q[64];
    for (int half = 0; half < 64; half += 32) {
      I8 t[4];
      for (int i = 0; i < 4; i++) {
        // unsigned add: INT32_MIN + 1 and the like wrap as the bytes of the format do
        t[i] = clamp((I8)((U8)round_away(load8(x + half + 8 * i) * r) + (U8)splat_i(1)), 0, 3);
      }
      store_codes(t, q + half);
    }
    for (int j = 0; j < 16; j++) y->qs[j] = uint8_t(q[4 * j] | q[4 * j + 1] << 2 | q[4 * j + 2] << 4 | q[4 * j + 3] << 6);
  }
  return true;
}

// --- q4_0, q4_1, q5_0, q5_1 -----------------------------------------------------------------------------------------------------------

// Low nibbles of 32 codes, value j with value j + 16.
BL_INLINE void pack_nibbles(const uint8_t *code, uint8_t *qs) {
#if defined(__AVX2__)
  const __m128i *c = reinterpret_cast<const __m128i *>(code);
  const __m128i nibble = _mm_set1_epi8(15), a = _mm_loadu_si128(c), b = _mm_loadu_si128(c + 1);
  const __m128i high = _mm_slli_epi16(_mm_and_si128(b, nibble), 4);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(qs), _mm_or_si128(_mm_and_si128(a, nibble), high));
#else
  for (int j = 0; j < 16; j++) qs[j] = uint8_t((code[j] & 15) | code[j + 16] << 4);
#endif
}

// Fifth bits of 32 codes.
BL_INLINE void pack_fifth_bits(const uint8_t *code, uint8_t *qh) {
#if defined(__AVX2__)
  const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(code));
  const uint32_t bits = uint32_t(_mm256_movemask_epi8(_mm256_slli_epi16(c, 3)));
#else
  uint32_t bits = 0;
  for (int j = 0; j < 32; j++) bits |= uint32_t((code[j] >> 4) & 1) << j;
#endif
  memcpy(qh, &bits, 4);
}

BL_INLINE void put_codes(BlockQ4_0 *y, const uint8_t *code) { pack_nibbles(code, y->qs); }
BL_INLINE void put_codes(BlockQ4_1 *y, const uint8_t *code) { pack_nibbles(code, y->qs); }
BL_INLINE void put_codes(BlockQ5_0 *y, const uint8_t *code) {
  pack_nibbles(code, y->qs);
  pack_fifth_bits(code, y->qh);
}
BL_INLINE void put_codes(BlockQ5_1 *y, const uint8_t *code) {
  pack_nibbles(code, y->qs);
  pack_fifth_bits(code, y->qh);
}

BL_INLINE I8 signed_byte(I8 v) { return (I8)((U8)v << 24) >> 24; }

// Weights of up to eight blocks of 32: the row's mean square stands for what a value contributes on its own.
BL_INLINE void row_importance(const F8 *x, const float *qw, int n_groups, F8 g, F8 *w) {
  load_groups<32>(qw, n_groups, w);
  for (int i = 0; i < 32; i++) w[i] = importance(w[i], g, x[i]);
}

// Of a whole row, first to last: the one thing an encoder takes from beyond its own block.
BL_INLINE float mean_square(const float *x, uint64_t n) { return sum_of_squares(x, n) / float(n); }

BL_INLINE int groups_left(uint64_t n_blocks, uint64_t b) { return n_blocks - b < 8 ? int(n_blocks - b) : 8; }

template <class Block, int HALF>
BL_INLINE void encode_symmetric_plain(const float *x, uint64_t n, Block *y) {
  for (uint64_t b = 0; b < n / 32; b++, x += 32, y++) {
    const float amax = largest_abs(x, 32);
    float xm = 0.0f;
    if (amax > 0) {  // the first of that size
      uint32_t hits = 0;
      for (int i = 0; i < 32; i += 8) hits |= lane_bits(abs8(load8(x + i)) == splat(amax)) << i;
      xm = x[lowest_bit(hits)];
    }
    const float d = xm / float(-HALF);
    const F8 r = splat(d != 0 ? 1.0f / d : 0.0f);
    y->d = half_of(d);
    I8 q[4];
    for (int i = 0; i < 4; i++) {
      q[i] = imin(signed_byte(trunc8(load8(x + 8 * i) * r + splat(float(HALF) + 0.5f))), splat_i(2 * HALF - 1));
    }
    uint8_t code[32];
    store_codes(q, code);
    put_codes(y, code);
  }
}

template <class Block, int HALF>
BL_INLINE bool encode_symmetric_type(const float *x, uint64_t n, const float *qw, float row_mean_square, void *dst) {
  Block *y = static_cast<Block *>(dst);
  if (!qw) {
    encode_symmetric_plain<Block, HALF>(x, n, y);
    return true;
  }
  const F8 g = splat(row_mean_square);
  for (uint64_t b = 0; b < n / 32; b += 8) {
    const int groups = groups_left(n / 32, b);
    F8 v[32], w[32];
    load_groups<32>(x + 32 * b, groups, v);
    row_importance(v, qw + 32 * b, groups, g, w);
    const Symmetric s = symmetric<32>(v, w, HALF);
    I8 code[32];
    for (int i = 0; i < 32; i++) code[i] = symmetric_code(v[i], s.r, s.zero, HALF);
    uint8_t bytes[8 * 32];
    store_groups<32>(bytes, groups, code);
    for (int k = 0; k < groups; k++) {
      y[b + k].d = f32_to_f16(s.scale[k]);
      put_codes(y + b + k, bytes + 32 * k);
    }
  }
  return true;
}

template <class Block, int MAX>
BL_INLINE void encode_affine_plain(const float *x, uint64_t n, Block *y) {
  for (uint64_t b = 0; b < n / 32; b++, x += 32, y++) {
    F8 lo8 = splat(F32_LARGEST), hi8 = splat(-F32_LARGEST);
    for (int i = 0; i < 32; i += 8) {
      lo8 = min2(load8(x + i), lo8);
      hi8 = max2(load8(x + i), hi8);
    }
    float lo = least(lo8)[0], hi = largest_lane(hi8);
    if (lo == 0) {  // zeros of both signs compare equal; the first of them is the one that is stored
      for (int i = 0; i < 32; i++) {
        if (x[i] == 0) {
          lo = x[i];
          break;
        }
      }
      if (hi == 0) hi = lo;
    }
    const float d = (hi - lo) / float(MAX);
    const F8 r = splat(d != 0 ? 1.0f / d : 0.0f), base = splat(lo);
    y->d = half_of(d);
    y->m = half_of(lo);
    I8 q[4];
    for (int i = 0; i < 4; i++) {
      q[i] = trunc8((load8(x + 8 * i) - base) * r + splat(0.5f));
      if (MAX == 15) q[i] = imin(signed_byte(q[i]), splat_i(15));
    }
    uint8_t code[32];
    store_codes(q, code);
    put_codes(y, code);
  }
}

template <class Block, int MAX>
BL_INLINE bool encode_affine_type(const float *x, uint64_t n, const float *qw, float row_mean_square, void *dst) {
  Block *y = static_cast<Block *>(dst);
  if (!qw) {
    encode_affine_plain<Block, MAX>(x, n, y);
    return true;
  }
  const F8 g = splat(row_mean_square);
  for (uint64_t b = 0; b < n / 32; b += 8) {
    const int groups = groups_left(n / 32, b);
    F8 v[32], w[32];
    load_groups<32>(x + 32 * b, groups, v);
    row_importance(v, qw + 32 * b, groups, g, w);
    const Affine s = affine<32, false>(v, w, AffineGrid{MAX, -0.9f, 0.05f, 36});
    I8 code[32];
    for (int i = 0; i < 32; i++) code[i] = affine_code(v[i], s.r, s.base, MAX);
    uint8_t bytes[8 * 32];
    store_groups<32>(bytes, groups, code);
    for (int k = 0; k < groups; k++) {
      y[b + k].d = f32_to_f16(s.scale[k]);
      y[b + k].m = f32_to_f16(-s.minimum[k]);
      put_codes(y + b + k, bytes + 32 * k);
    }
  }
  return true;
}

BL_ENCODER bool encode_q4_0(const float *x, uint64_t n, const float *qw, void *dst) {
  return encode_symmetric_type<BlockQ4_0, 8>(x, n, qw, qw ? mean_square(x, n) : 0.0f, dst);
}
BL_ENCODER bool encode_q5_0(const float *x, uint64_t n, const float *qw, void *dst) {
  return encode_symmetric_type<BlockQ5_0, 16>(x, n, qw, qw ? mean_square(x, n) : 0.0f, dst);
}
BL_ENCODER bool encode_q4_1(const float *x, uint64_t n, const float *qw, void *dst) {
  return encode_affine_type<BlockQ4_1, 15>(x, n, qw, qw ? mean_square(x, n) : 0.0f, dst);
}
BL_ENCODER bool encode_q5_1(const float *x, uint64_t n, const float *qw, void *dst) {
  return encode_affine_type<BlockQ5_1, 31>(x, n, qw, qw ? mean_square(x, n) : 0.0f, dst);
}

BL_ENCODER bool encode_q8_0(const float *x, uint64_t n, const float *, void *dst) {
  BlockQ8_0 *y = static_cast<BlockQ8_0 *>(dst);
  for (uint64_t b = 0; b < n / 32; b++, x += 32, y++) {
    const float d = largest_abs(x, 32) / 127.0f;
    const F8 r = splat(d != 0 ? 1.0f / d : 0.0f);
    y->d = half_of(d);
    I8 q[4];
    for (int i = 0; i < 4; i++) q[i] = round_away(load8(x + 8 * i) * r);
    store_codes(q, reinterpret_cast<uint8_t *>(y->qs));
  }
  return true;
}

// --- ternary ------------------------------------------------------------------------------------------------------------------------

// Trits 0, 1, 2 of a block, and its scale. Rounding goes through 64 bits in the format's definition: what does not fit counts as 0.
BL_INLINE uint16_t encode_trits(const float *x, uint8_t *trits) {
  const float amax = largest_abs(x, 256);
  const F8 r = splat(amax != 0 ? 1.0f / amax : 0.0f);
  for (int at = 0; at < 256; at += 32) {
    I8 t[4];
    for (int i = 0; i < 4; i++) {
      const I8 q = round_away(load8(x + at + 8 * i) * r);
      t[i] = select(q == splat_i(INT32_MIN), splat_i(0), q) + splat_i(1);
    }
    store_codes(t, trits + at);
  }
  return f32_to_f16(amax);
}

BL_INLINE uint8_t pack_trits(const uint8_t *t, int stride, int count) {
  uint32_t q = 0;
  for (int k = 0; k < 5; k++) q = q * 3 + (k < count ? t[k * stride] : 0);
  return uint8_t((q * 256 + 242) / 243);
}

BL_ENCODER bool encode_tq1_0(const float *x, uint64_t n, const float *, void *dst) {
  BlockTQ1_0 *y = static_cast<BlockTQ1_0 *>(dst);
  for (uint64_t b = 0; b < n / 256; b++, x += 256, y++) {
    uint8_t t[256];
    y->d = encode_trits(x, t);
    for (int m = 0; m < 32; m++) y->qs[m] = pack_trits(t + m, 32, 5);
    for (int m = 0; m < 16; m++) y->qs[32 + m] = pack_trits(t + 160 + m, 16, 5);
    for (int j = 0; j < 4; j++) y->qh[j] = pack_trits(t + 240 + j, 4, 4);
  }
  return true;
}

// Four 2-bit planes of a half of 128 codes.
BL_INLINE void pack_planes2(const uint8_t *code, uint8_t *qs) {
  for (int h = 0; h < 2; h++)
    for (int l = 0; l < 32; l++) {
      const uint8_t *c = code + 128 * h + l;
      qs[32 * h + l] = uint8_t((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
    }
}

BL_ENCODER bool encode_tq2_0(const float *x, uint64_t n, const float *, void *dst) {
  BlockTQ2_0 *y = static_cast<BlockTQ2_0 *>(dst);
  for (uint64_t b = 0; b < n / 256; b++, x += 256, y++) {
    uint8_t t[256];
    y->d = encode_trits(x, t);
    pack_planes2(t, y->qs);
  }
  return true;
}

// --- 4-bit floats -------------------------------------------------------------------------------------------------------------------

// First index whose value times d is nearest to x; index 8 repeats index 0 and is never produced.
BL_INLINE I8 nearest_fp4(F8 x, float d) {
  F8 best = abs8(splat(0.0f * d) - x);
  I8 index = splat_i(0);
  for (int i = 1; i < 16; i++) {
    const F8 err = abs8(splat(float(kvalues_mxfp4[i]) * d) - x);
    const I8 better = err < best;
    best = select(better, err, best);
    index = select(better, splat_i(i), index);
  }
  return index;
}

// floor of the f32-rounded base-2 logarithm: close below a power of two the logarithm itself rounds up to the whole number. How many
// floats below 2^k do so follows from the spacing of floats near k: found by evaluating all floats, tabulated by magnitude of k.
BL_INLINE int floor_log2(float v) {
  const uint32_t b = f32_bits(v);
  int next;            // the smallest k with v < 2^k
  uint32_t below;      // how many floats v lies below 2^k
  if (b >= 0x00800000u) {
    next = int(b >> 23) - 126;
    below = ((b | 0x007FFFFFu) + 1) - b;
  } else {
    const int top = highest_bit(b);  // v = b * 2^-149
    next = top - 148;
    below = (1u << (top + 1)) - b;
  }
  uint32_t reach;
  if (next >= -2) {
    reach = next <= 2 ? (next == -2 ? 1 : 0) : next <= 4 ? 1 : next <= 8 ? 2 : next <= 16 ? 5 : next <= 32 ? 11 : next <= 64 ? 22 : 44;
  } else if (next >= -125) {
    reach = next == -3 ? 1 : next >= -7 ? 2 : next >= -15 ? 5 : next >= -31 ? 11 : next >= -63 ? 22 : 44;
  } else {
    reach = next == -126 ? 22 : next >= -128 ? 11 : next == -129 ? 5 : next == -130 ? 2 : next == -131 ? 1 : 0;
  }
  return below <= reach ? next : next - 1;
}

BL_ENCODER bool encode_mxfp4(const float *x, uint64_t n, const float *, void *dst) {
  BlockMXFP4 *y = static_cast<BlockMXFP4 *>(dst);
  for (uint64_t b = 0; b < n / 32; b++, x += 32, y++) {
    const float amax = largest_abs(x, 32);
    y->e = amax > 0 ? uint8_t(floor_log2(amax) - 2 + 127) : 0;
    const float d = e8m0_half(y->e);
    uint8_t code[32];
    for (int i = 0; i < 32; i += 8) store_bytes(code + i, nearest_fp4(load8(x + i), d));
    pack_nibbles(code, y->qs);
  }
  return true;
}

// UE4M3 of v: three mantissa bits, rounded half up by the next bit alone.
BL_INLINE uint8_t encode_ue4m3(float v) {
  if (!(v > 0)) return 0;
  if (v > 448.0f) v = 448.0f;
  const uint32_t b = f32_bits(v);
  int e = int(b >> 23) - 127 + 7;
  if (e <= 0) {
    const int m = trunc1(v * 512.0f + 0.5f);
    return uint8_t(m > 7 ? 7 : m < 1 ? 0 : m);
  }
  if (e >= 15) return 0x7E;
  uint32_t m = ((b >> 20) & 7) + ((b >> 19) & 1);
  if (m > 7) {
    m = 0;
    if (++e >= 15) return 0x7E;
  }
  return uint8_t(uint32_t(e) << 3 | m);
}

BL_ENCODER bool encode_nvfp4(const float *x, uint64_t n, const float *, void *dst) {
  BlockNVFP4 *y = static_cast<BlockNVFP4 *>(dst);
  for (uint64_t b = 0; b < n / 64; b++, y++) {
    for (int s = 0; s < 4; s++, x += 16) {
      y->d[s] = encode_ue4m3(largest_abs(x, 16) / 6.0f);
      const float d = ue4m3_half(y->d[s]);
      uint8_t code[16];
      for (int i = 0; i < 16; i += 8) store_bytes(code + i, nearest_fp4(load8(x + i), d));
      for (int j = 0; j < 8; j++) y->qs[8 * s + j] = uint8_t(code[j] | code[j + 8] << 4);
    }
  }
  return true;
}

}  // namespace BL_LANES
}  // namespace bl
