// lanes_host.h: lanes.h for host compilers: vectors of the language, with AVX2's own instructions where they are.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions only
#endif

#define BL_INLINE static inline __attribute__((always_inline))
#define BL_ENCODER static  // a whole row encoder
#define BL_UNROLL          // a loop whose arrays must lie in registers: host compilers decide for themselves

namespace bl {
namespace BL_LANES {

typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef uint32_t U8 __attribute__((vector_size(32)));

// Superblocks that share a second-level search: its lanes are their groups.
constexpr int BATCH = 8;

BL_INLINE F8 splat(float v) { return F8{v, v, v, v, v, v, v, v}; }
BL_INLINE I8 splat_i(int32_t v) { return I8{v, v, v, v, v, v, v, v}; }

BL_INLINE F8 load8(const float *p) {
  F8 v;
  memcpy(&v, p, 32);
  return v;
}
BL_INLINE void store8(float *p, F8 v) { memcpy(p, &v, 32); }

// N floats that the lanes share and that only store() writes. On a card those of equal AT are the same memory: a row's encoder has them
// at different places, and one of each at a time.
template <int N, int AT>
struct Scratch {
  float at[N];
  operator const float *() const { return at; }
  void store(int i, F8 v) { store8(at + i, v); }
};

BL_INLINE I8 bits(F8 v) { return (I8)v; }
BL_INLINE F8 from_bits(I8 v) { return (F8)v; }
BL_INLINE F8 to_f(I8 v) { return __builtin_convertvector(v, F8); }

// mask lanes are 0 or -1.
BL_INLINE F8 select(I8 mask, F8 yes, F8 no) {
#if defined(__AVX2__)
  return (F8)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
  return (F8)((mask & (I8)yes) | (~mask & (I8)no));
#endif
}
BL_INLINE I8 select(I8 mask, I8 yes, I8 no) { return (mask & yes) | (~mask & no); }

// a > b ? a : b, which is what the instruction does with NaN and signed zeros too.
BL_INLINE F8 max2(F8 a, F8 b) {
#if defined(__AVX2__)
  return (F8)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return select(a > b, a, b);
#endif
}
BL_INLINE F8 min2(F8 a, F8 b) {
#if defined(__AVX2__)
  return (F8)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return select(a < b, a, b);
#endif
}
BL_INLINE I8 imin(I8 a, I8 b) {
#if defined(__AVX2__)
  return (I8)_mm256_min_epi32((__m256i)a, (__m256i)b);
#else
  return select(a < b, a, b);
#endif
}
BL_INLINE I8 imax(I8 a, I8 b) {
#if defined(__AVX2__)
  return (I8)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
  return select(a > b, a, b);
#endif
}
BL_INLINE F8 abs8(F8 v) { return (F8)((I8)v & splat_i(0x7FFFFFFF)); }

BL_INLINE float sqrt1(float v) {
#if defined(__x86_64__)
  return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(v)));
#else
  return __builtin_sqrtf(v);
#endif
}
BL_INLINE F8 sqrt8(F8 v) {
#if defined(__AVX2__)
  return (F8)_mm256_sqrt_ps((__m256)v);
#elif defined(__x86_64__)
  F8 out;
  for (int h = 0; h < 2; h++) {
    __m128 part;
    memcpy(&part, (const char *)&v + 16 * h, 16);
    part = _mm_sqrt_ps(part);
    memcpy((char *)&out + 16 * h, &part, 16);
  }
  return out;
#else
  for (int i = 0; i < 8; i++) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}

// Bit i is the sign of lane i.
BL_INLINE uint32_t lane_bits(I8 mask) {
#if defined(__AVX2__)
  return (uint32_t)_mm256_movemask_ps((__m256)mask);
#else
  uint32_t out = 0;
  for (int i = 0; i < 8; i++) out |= (uint32_t(mask[i]) >> 31) << i;
  return out;
#endif
}

// The smallest of the lanes, in every lane.
BL_INLINE F8 least(F8 v) {
  v = min2(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = min2(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  return min2(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
}

BL_INLINE int lowest_bit(uint32_t v) { return __builtin_ctz(v); }         // v is not 0
BL_INLINE int highest_bit(uint32_t v) { return 31 - __builtin_clz(v); }   // v is not 0
BL_INLINE int count_bits(uint32_t v) { return __builtin_popcount(v); }

// table[index & 7] in every lane.
BL_INLINE F8 lookup(F8 table, I8 index) {
#if defined(__AVX2__)
  return (F8)_mm256_permutevar8x32_ps((__m256)table, (__m256i)index);
#else
  F8 out;
  for (int i = 0; i < 8; i++) out[i] = table[index[i] & 7];
  return out;
#endif
}

// v + 1.5 * 2^23, whose low bits are v rounded to nearest even (lanes.h). A NaN that an operation made has 0x400000 there.
BL_INLINE I8 rounded_bits(F8 v) { return bits(v + splat(12582912.0f)); }
BL_INLINE uint32_t rounded_bits1(float v) { return f32_bits(v + 12582912.0f); }

// Toward zero; NaN and what does not fit give INT32_MIN.
BL_INLINE I8 trunc8(F8 v) {
#if defined(__AVX2__)
  return (I8)_mm256_cvttps_epi32((__m256)v);
#else
  const I8 fits = (v >= splat(-2147483648.0f)) & (v < splat(2147483648.0f));
  const I8 whole = __builtin_convertvector(select(fits, v, splat(0.0f)), I8);
  return select(fits, whole, splat_i(INT32_MIN));
#endif
}

// Low byte of every lane, lane 0 lowest.
BL_INLINE uint64_t low_bytes(I8 v) {
#if defined(__AVX2__)
  const __m256i picked = _mm256_shuffle_epi8(
      (__m256i)v, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                   -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1));
  return uint64_t(_mm_cvtsi128_si64(_mm_or_si128(_mm256_castsi256_si128(picked), _mm256_extracti128_si256(picked, 1))));
#else
  uint64_t out = 0;
  for (int i = 0; i < 8; i++) out |= uint64_t(uint8_t(v[i])) << (8 * i);
  return out;
#endif
}
BL_INLINE void store_bytes(uint8_t *p, I8 v) {
  const uint64_t bytes = low_bytes(v);
  memcpy(p, &bytes, 8);
}

// Eight 16-bit integers, widened.
BL_INLINE I8 load_u16x8(const uint16_t *p) {
#if defined(__AVX2__)
  return (I8)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
#else
  return I8{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]};
#endif
}

BL_INLINE void transpose8(F8 *r) {
  F8 a[8], b[8];
  for (int i = 0; i < 4; i++) {
    a[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    a[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int h = 0; h < 2; h++) {
    for (int i = 0; i < 2; i++) {
      b[4 * h + 2 * i] = __builtin_shufflevector(a[4 * h + i], a[4 * h + 2 + i], 0, 1, 8, 9, 4, 5, 12, 13);
      b[4 * h + 2 * i + 1] = __builtin_shufflevector(a[4 * h + i], a[4 * h + 2 + i], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; i++) {
    r[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Lane g of out[i] = x[g * N + i]: eight groups of N values side by side. Lanes from n_groups on are zero.
template <int N>
BL_INLINE void load_groups(const float *x, int n_groups, F8 *out) {
  for (int i = 0; i < N; i += 8) {
    for (int g = 0; g < 8; g++) out[i + g] = g < n_groups ? load8(x + g * N + i) : splat(0.0f);
    transpose8(out + i);
  }
}

// The inverse for codes: p[g * N + i] = low byte of lane g of v[i].
template <int N>
BL_INLINE void store_groups(uint8_t *p, int n_groups, const I8 *v) {
  for (int i = 0; i < N; i += 8) {
    F8 r[8];
    for (int k = 0; k < 8; k++) r[k] = from_bits(v[i + k]);
    transpose8(r);
    for (int g = 0; g < n_groups; g++) store_bytes(p + g * N + i, bits(r[g]));
  }
}

}  // namespace BL_LANES
}  // namespace bl
