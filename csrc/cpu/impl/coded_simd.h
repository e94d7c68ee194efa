// coded_simd.h: rows of blocks to codes, and codes times activation rows, with AVX2. Lanes are neighbouring values of a row.
//
// Codes gain 128 to become unsigned, are multiplied with the rows' bytes to pairs in i16 (at most 255 * 64 * 2 = 32,640), and then with
// the scale of their 16 values to i32; what the 128 added is taken off by the sums of the row's bytes. All of it is exact.
//
// cost    per 32 values and activation row: 2 loads, 2 + 2 multiplies, 2 additions; per 32 values 1 load and 3 operations for scales
#pragma once

#include "coded_scales.h"
#include "packed_dot_simd.h"

namespace bl {
namespace BL_ISA {

static inline __m256i splat(int v) { return _mm256_set1_epi8(char(v)); }
static inline __m128i load16(const void *p) { return _mm_loadu_si128(static_cast<const __m128i *>(p)); }
static inline void put32(int8_t *code, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(code), v); }

// 16 bytes to their low nibbles, then their high ones.
static inline __m256i nibbles32(const uint8_t *qs) {
  const __m128i q = load16(qs);
  return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(q), _mm_srli_epi16(q, 4), 1), splat(15));
}

// 32 bits to bytes: 0xFF where a bit is set.
static inline __m256i bytes_of_bits(uint32_t bits) {
  const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i each = _mm256_set1_epi64x(int64_t(0x8040201008040201));
  return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(int32_t(bits)), order), each), each);
}

static inline uint32_t bits_at(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

static inline __m256i look_up(const int8_t *table, __m256i index) { return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(table)), index); }

static inline void codes_of(const BlockQ1_0 &b, int at, Coded &c) {
  for (int i = 0; i < 4; i++)  // 2 - 1 where the bit is set, else 0 - 1
    put32(c.code + at + 32 * i, _mm256_sub_epi8(_mm256_and_si256(bytes_of_bits(bits_at(b.qs + 4 * i)), splat(2)), splat(1)));
}

static inline void codes_of(const BlockQ2_0 &b, int at, Coded &c) {
  const __m256i order = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  for (int i = 0; i < 2; i++) {
    int64_t eight;
    memcpy(&eight, b.qs + 8 * i, 8);
    const __m256i four = _mm256_shuffle_epi8(_mm256_set1_epi64x(eight), order);  // each byte four times: code j is at bit 2 j of the j-th
    const __m256i a = _mm256_and_si256(four, _mm256_set1_epi32(0x00000003));
    const __m256i s = _mm256_srli_epi16(_mm256_and_si256(four, _mm256_set1_epi32(0x00000C00)), 2);
    const __m256i t = _mm256_srli_epi16(_mm256_and_si256(four, _mm256_set1_epi32(0x00300000)), 4);
    const __m256i u = _mm256_srli_epi16(_mm256_and_si256(four, _mm256_set1_epi32(int32_t(0xC0000000u))), 6);
    put32(c.code + at + 32 * i, _mm256_sub_epi8(_mm256_or_si256(_mm256_or_si256(a, s), _mm256_or_si256(t, u)), splat(1)));
  }
}

static inline void codes_of(const BlockQ4_1 &b, int at, Coded &c) { put32(c.code + at, nibbles32(b.qs)); }
static inline void codes_of(const BlockQ5_1 &b, int at, Coded &c) {
  put32(c.code + at, _mm256_or_si256(nibbles32(b.qs), _mm256_and_si256(bytes_of_bits(bits_at(b.qh)), splat(16))));
}
static inline void codes_of(const BlockQ5_0 &b, int at, Coded &c) {  // 16 less where the fifth bit is not set
  put32(c.code + at, _mm256_or_si256(nibbles32(b.qs), _mm256_andnot_si256(bytes_of_bits(bits_at(b.qh)), splat(-16))));
}
static inline void codes_of(const BlockIQ4_NL &b, int at, Coded &c) { put32(c.code + at, look_up(kvalues_iq4nl, nibbles32(b.qs))); }
static inline void codes_of(const BlockMXFP4 &b, int at, Coded &c) { put32(c.code + at, look_up(kvalues_mxfp4, nibbles32(b.qs))); }
static inline void codes_of(const BlockNVFP4 &b, int at, Coded &c) {
  for (int i = 0; i < 2; i++)  // low nibbles of two groups, high nibbles of both: in between come the groups' own
    put32(c.code + at + 32 * i, look_up(kvalues_mxfp4, _mm256_permute4x64_epi64(nibbles32(b.qs + 16 * i), 0xD8)));
}

// The codes of plane p (0 .. 7) of a superblock's two-bit codes.
static inline __m256i plane(const uint8_t *qs, int p) {
  return _mm256_and_si256(_mm256_srl_epi16(load_i(qs + 32 * (p / 4)), _mm_cvtsi32_si128(2 * (p % 4))), splat(3));
}
static inline void codes_of(const BlockQ2_K &b, Coded &c) {
#pragma GCC unroll 8
  for (int p = 0; p < 8; p++) put32(c.code + 32 * p, plane(b.qs, p));
}
static inline void codes_of(const BlockTQ2_0 &b, Coded &c) {
#pragma GCC unroll 8
  for (int p = 0; p < 8; p++) put32(c.code + 32 * p, _mm256_sub_epi8(plane(b.qs, p), splat(1)));
}
static inline void codes_of(const BlockQ3_K &b, Coded &c) {
  const __m256i high = load_i(b.hmask);
#pragma GCC unroll 8
  for (int p = 0; p < 8; p++) {  // 4 less where the bit is not set
    const __m256i bit = splat(1 << p), set = _mm256_cmpeq_epi8(_mm256_and_si256(high, bit), bit);
    put32(c.code + 32 * p, _mm256_or_si256(plane(b.qs, p), _mm256_andnot_si256(set, splat(-4))));
  }
}

// The first trit of each byte, less 1; the bytes move on to the next.
static inline __m256i next_trits(__m256i &bytes) {
  const auto reach = [&](int least) { return _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, splat(least)), bytes); };
  const __m256i trits = _mm256_sub_epi8(splat(-1), _mm256_add_epi8(reach(86), reach(171)));  // (3 byte) >> 8
  bytes = _mm256_add_epi8(_mm256_add_epi8(bytes, bytes), bytes);
  return trits;
}
static inline void codes_of(const BlockTQ1_0 &b, Coded &c) {
  __m256i first = load_i(b.qs), second = _mm256_castsi128_si256(load16(b.qs + 32));
  for (int k = 0; k < 5; k++) {
    put32(c.code + 32 * k, next_trits(first));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(c.code + 160 + 16 * k), _mm256_castsi256_si128(next_trits(second)));
  }
  last_trits(b, c);
}

static inline void codes_of(const BlockIQ4_XS &b, Coded &c) {
#pragma GCC unroll 8
  for (int g = 0; g < 8; g++) put32(c.code + 32 * g, look_up(kvalues_iq4nl, nibbles32(b.qs + 16 * g)));
}

// As in coded_portable.h.
static inline void put_signed(const uint64_t *points, uint32_t signs, int8_t *code) {
  const __m256i minus = bytes_of_bits(signs);
  put32(code, _mm256_sub_epi8(_mm256_xor_si256(load_i(points), minus), minus));
}
static inline void put_eighths(const uint64_t *points, uint32_t down, int8_t *code) {
  const __m256i each = _mm256_setr_epi64x(1, 2, 4, 8);
  const __m256i minus = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(down), each), each);
  __m256i p = load_i(points);
  for (int i = 0; i < 3; i++) p = _mm256_add_epi8(p, p);
  put32(code, _mm256_add_epi8(p, _mm256_or_si256(minus, splat(1))));  // -1 or 1
}

// Sums of the lanes of four vectors.
static inline __m128i sums4(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
static inline __m256i sums8(const __m256i *v) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(sums4(v[0], v[1], v[2], v[3])), sums4(v[4], v[5], v[6], v[7]), 1);
}

template <CodedForm F, int R>
static inline void add_scaled_super(const Coded &c, const ActRow *const *x, float *value) {
  const __m256i sign = splat(-128), scales = load_i(c.scale);
  __m256i hi[R], lo[R];
  for (int r = 0; r < R; r++) hi[r] = lo[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int b = 0; b < 8; b++) {
    const __m256i codes = _mm256_xor_si256(load_i(c.code + 32 * b), sign);
    const __m256i s = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi16(c.scale[2 * b])), _mm_set1_epi16(c.scale[2 * b + 1]), 1);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      hi[r] = _mm256_add_epi32(hi[r], _mm256_madd_epi16(_mm256_maddubs_epi16(codes, load_i(x[r]->hi + 32 * b)), s));
      lo[r] = _mm256_add_epi32(lo[r], _mm256_madd_epi16(_mm256_maddubs_epi16(codes, load_i(x[r]->lo + 32 * b)), s));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) {
    const __m256i sum_hi = load_i(x[r]->sum16[0]), sum_lo = load_i(x[r]->sum16[1]);
    const __m256i h = _mm256_sub_epi32(hi[r], _mm256_slli_epi32(_mm256_madd_epi16(scales, sum_hi), 7));
    const __m256i l = _mm256_sub_epi32(lo[r], _mm256_slli_epi32(_mm256_madd_epi16(scales, sum_lo), 7));
    __m256i min_hi = _mm256_setzero_si256(), min_lo = min_hi;
    if constexpr (F == CodedForm::scaled_min) {
      const __m256i mins = load_i(c.min);
      min_hi = _mm256_madd_epi16(mins, sum_hi), min_lo = _mm256_madd_epi16(mins, sum_lo);
    }
    alignas(16) int32_t s[4];
    _mm_store_si128(reinterpret_cast<__m128i *>(s), sums4(h, l, min_hi, min_lo));
    value[r] = scaled_value<F>(c, s[0], s[1], s[2], s[3]);
  }
}

// A block's sums are small: 128 H + L, at most 127 * 8192 * 32, is exact in i32, and joined() is it rounded once.
template <CodedForm F>
static inline float blocks_super(const Coded &c, const ActRow &x) {
  const __m256i sign = splat(-128), ones = _mm256_set1_epi16(1), high = _mm256_set1_epi16(128);
  constexpr int N = F == CodedForm::blocks16 ? 16 : 8;
  __m256i sum[N];
#pragma GCC unroll 8
  for (int b = 0; b < 8; b++) {
    const __m256i codes = _mm256_xor_si256(load_i(c.code + 32 * b), sign);
    const __m256i hi = _mm256_madd_epi16(_mm256_maddubs_epi16(codes, load_i(x.hi + 32 * b)), high);
    const __m256i all = _mm256_add_epi32(hi, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, load_i(x.lo + 32 * b)), ones));
    if constexpr (N == 16) {  // halves apart
      sum[2 * b] = _mm256_zextsi128_si256(_mm256_castsi256_si128(all)), sum[2 * b + 1] = _mm256_zextsi128_si256(_mm256_extracti128_si256(all, 1));
    } else {
      sum[b] = all;
    }
  }
  float parts[N];
#pragma GCC unroll 2
  for (int i = 0; i < N; i += 8) {
    const __m256i sum_hi = _mm256_cvtepi16_epi32(load16(N == 16 ? x.sum16[0] + i : x.sum32[0]));
    const __m256i sum_lo = _mm256_cvtepi16_epi32(load16(N == 16 ? x.sum16[1] + i : x.sum32[1]));
    const __m256i too_much = _mm256_slli_epi32(_mm256_add_epi32(_mm256_slli_epi32(sum_hi, 7), sum_lo), 7);
    _mm256_storeu_ps(parts + i, _mm256_cvtepi32_ps(_mm256_sub_epi32(sums8(sum + i), too_much)));
  }
  return blocks_value<F>(c, parts, x);
}

template <CodedForm F, int R>
static void coded_dot(const Coded *w, uint64_t n_super, const ActRow *act, uint64_t stride, float *out) {
  const uint64_t span = span_length(n_super);
  uint64_t left = span;
  float total[R], acc[R];
  for (int r = 0; r < R; r++) total[r] = acc[r] = 0.0f;
  for (uint64_t sb = 0; sb < n_super; sb++) {
    const ActRow *x[R];
    float value[R];
    for (int r = 0; r < R; r++) x[r] = act + uint64_t(r) * stride + sb;
    if constexpr (F == CodedForm::scaled || F == CodedForm::scaled_min) {
      add_scaled_super<F, R>(w[sb], x, value);
    } else {
      for (int r = 0; r < R; r++) value[r] = blocks_super<F>(w[sb], *x[r]);
    }
    for (int r = 0; r < R; r++) acc[r] += value[r] * x[r]->d;
    if (--left == 0 || sb + 1 == n_super) {
      left = span;
      for (int r = 0; r < R; r++) total[r] += acc[r], acc[r] = 0.0f;
    }
  }
  for (int r = 0; r < R; r++) out[r] = total[r];
}

}  // namespace BL_ISA
}  // namespace bl
