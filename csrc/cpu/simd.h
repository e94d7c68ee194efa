// simd.h: eight floats at a time, for the instruction set a file is compiled for. The kernels in impl/ are written once over these
// and compiled per instruction set (kernels_portable.cpp, kernels_avx2.cpp); each operation below is the same function of its inputs,
// bit for bit, in every version, so the kernels are too.
//
// Everything is static in a namespace of its own: an inline function that two translation units share could be kept by the linker in
// the version that the running CPU does not have.
#pragma once

#ifndef BL_ISA
#error "define BL_ISA (portable, avx2 or avx512) before including simd.h"
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "../common/blocks.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace bl {
namespace BL_ISA {

#if defined(__AVX2__)

struct f32x8 {
  __m256 v;
};

static inline f32x8 zero8() { return {_mm256_setzero_ps()}; }
static inline f32x8 set8(float x) { return {_mm256_set1_ps(x)}; }
static inline f32x8 load8(const float *p) { return {_mm256_loadu_ps(p)}; }
static inline void store8(float *p, f32x8 a) { _mm256_storeu_ps(p, a.v); }
static inline f32x8 add8(f32x8 a, f32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
static inline f32x8 sub8(f32x8 a, f32x8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
static inline f32x8 mul8(f32x8 a, f32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
static inline f32x8 div8(f32x8 a, f32x8 b) { return {_mm256_div_ps(a.v, b.v)}; }
static inline f32x8 fma8(f32x8 a, f32x8 b, f32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
// a > b ? a : b, so a NaN in b stays.
static inline f32x8 max8(f32x8 a, f32x8 b) { return {_mm256_max_ps(a.v, b.v)}; }
static inline f32x8 min8(f32x8 a, f32x8 b) { return {_mm256_min_ps(a.v, b.v)}; }
static inline f32x8 load_f16x8(const uint16_t *p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)))};
}
static inline void store_f16x8(uint16_t *p, f32x8 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
static inline f32x8 load_bf16x8(const uint16_t *p) {
  const __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(w, 16))};
}
static inline f32x8 load_i8x8(const int8_t *p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))))};
}
// 2^n for the integer n in the low bits of t = n + 1.5 * 2^23.
static inline f32x8 pow2_from_magic8(f32x8 t) {
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t.v), 23), _mm256_set1_epi32(127 << 23)))};
}
// ((v0 + v1) + (v2 + v3)) + ((v4 + v5) + (v6 + v7))
static inline float sum8(f32x8 a) {
  const __m128 lo = _mm256_castps256_ps128(a.v), hi = _mm256_extractf128_ps(a.v, 1);
  const __m128 pairs = _mm_hadd_ps(lo, hi);
  const __m128 quads = _mm_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(quads, _mm_movehdup_ps(quads)));
}
// out[i] = sum8(a[i])
static inline f32x8 sum8x8(const f32x8 *a) {
  const __m256 p01 = _mm256_hadd_ps(a[0].v, a[1].v), p23 = _mm256_hadd_ps(a[2].v, a[3].v);
  const __m256 p45 = _mm256_hadd_ps(a[4].v, a[5].v), p67 = _mm256_hadd_ps(a[6].v, a[7].v);
  const __m256 q03 = _mm256_hadd_ps(p01, p23), q47 = _mm256_hadd_ps(p45, p67);  // low half: v0..v3 of each, high half: v4..v7
  return {_mm256_add_ps(_mm256_permute2f128_ps(q03, q47, 0x20), _mm256_permute2f128_ps(q03, q47, 0x31))};
}
static inline float max_of8(f32x8 a) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
static inline f32x8 sqrt8(f32x8 a) { return {_mm256_sqrt_ps(a.v)}; }
// a < b ? x : y
static inline f32x8 pick_less8(f32x8 a, f32x8 b, f32x8 x, f32x8 y) {
  return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
// The size of a with the sign of b.
static inline f32x8 copysign8(f32x8 a, f32x8 b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(sign, a.v), _mm256_and_ps(sign, b.v))};
}
static inline float fma1(float a, float b, float c) { return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c))); }

#else

struct f32x8 {
  float v[8];
};

#define BL_LANES(expression)                \
  f32x8 r;                                  \
  for (int i = 0; i < 8; i++) r.v[i] = (expression); \
  return r

static inline float fma1(float a, float b, float c) { return std::fma(a, b, c); }
static inline f32x8 zero8() { BL_LANES(0.0f); }
static inline f32x8 set8(float x) { BL_LANES(x); }
static inline f32x8 load8(const float *p) {
  f32x8 r;
  memcpy(r.v, p, sizeof r.v);
  return r;
}
static inline void store8(float *p, f32x8 a) { memcpy(p, a.v, sizeof a.v); }
static inline f32x8 add8(f32x8 a, f32x8 b) { BL_LANES(a.v[i] + b.v[i]); }
static inline f32x8 sub8(f32x8 a, f32x8 b) { BL_LANES(a.v[i] - b.v[i]); }
static inline f32x8 mul8(f32x8 a, f32x8 b) { BL_LANES(a.v[i] * b.v[i]); }
static inline f32x8 div8(f32x8 a, f32x8 b) { BL_LANES(a.v[i] / b.v[i]); }
static inline f32x8 fma8(f32x8 a, f32x8 b, f32x8 c) { BL_LANES(fma1(a.v[i], b.v[i], c.v[i])); }
static inline f32x8 max8(f32x8 a, f32x8 b) { BL_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
static inline f32x8 min8(f32x8 a, f32x8 b) { BL_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
static inline uint16_t u16_at(const uint16_t *p, int i) {
  uint16_t h;
  memcpy(&h, reinterpret_cast<const uint8_t *>(p) + 2 * i, 2);  // mapped files promise no alignment
  return h;
}
static inline f32x8 load_f16x8(const uint16_t *p) { BL_LANES(f16_to_f32(u16_at(p, i))); }
static inline void store_f16x8(uint16_t *p, f32x8 a) {
  for (int i = 0; i < 8; i++) p[i] = f32_to_f16(a.v[i]);
}
static inline f32x8 load_bf16x8(const uint16_t *p) { BL_LANES(bf16_to_f32(u16_at(p, i))); }
static inline f32x8 load_i8x8(const int8_t *p) { BL_LANES(float(p[i])); }
static inline f32x8 pow2_from_magic8(f32x8 t) { BL_LANES(f32_from_bits((f32_bits(t.v[i]) << 23) + (127u << 23))); }
static inline float sum8(f32x8 a) {
  const float *v = a.v;
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}
static inline f32x8 sum8x8(const f32x8 *a) { BL_LANES(sum8(a[i])); }
static inline float max_of8(f32x8 a) {
  float m = a.v[0];
  for (int i = 1; i < 8; i++) m = m > a.v[i] ? m : a.v[i];
  return m;
}

static inline f32x8 sqrt8(f32x8 a) { BL_LANES(std::sqrt(a.v[i])); }
static inline f32x8 pick_less8(f32x8 a, f32x8 b, f32x8 x, f32x8 y) { BL_LANES(a.v[i] < b.v[i] ? x.v[i] : y.v[i]); }
static inline f32x8 copysign8(f32x8 a, f32x8 b) { BL_LANES(std::copysign(a.v[i], b.v[i])); }

#undef BL_LANES

#endif

// The first n < 8 lanes; the others are 0.
static inline f32x8 load_part(const float *p, uint64_t n) {
  float v[8] = {};
  memcpy(v, p, n * sizeof(float));
  return load8(v);
}

static inline void store_part(float *p, f32x8 a, uint64_t n) {
  float v[8];
  store8(v, a);
  memcpy(p, v, n * sizeof(float));
}

// The first n <= 8 lanes.
static inline f32x8 load_up_to(const float *p, uint64_t n) { return n >= 8 ? load8(p) : load_part(p, n); }

static inline void store_up_to(float *p, f32x8 a, uint64_t n) {
  if (n >= 8) store8(p, a);
  else store_part(p, a, n);
}

// e^x to about one unit in the last place; below -87.3 it stays at 1.2e-38, above 88.3 at 2.4e38; NaN stays.
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r by the minimax polynomial of the Cephes library's expf.
static inline f32x8 exp8(f32x8 x) {
  x = max8(set8(-87.3f), min8(set8(88.3f), x));
  const f32x8 magic = set8(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const f32x8 t = fma8(x, set8(1.44269504088896341f), magic);
  const f32x8 n = sub8(t, magic);
  f32x8 r = fma8(n, set8(-0.693359375f), x);
  r = fma8(n, set8(2.12194440e-4f), r);
  f32x8 p = set8(1.9875691500e-4f);
  p = fma8(p, r, set8(1.3981999507e-3f));
  p = fma8(p, r, set8(8.3334519073e-3f));
  p = fma8(p, r, set8(4.1665795894e-2f));
  p = fma8(p, r, set8(1.6666665459e-1f));
  p = fma8(p, r, set8(5.0000001201e-1f));
  p = fma8(p, mul8(r, r), r);
  return mul8(add8(p, set8(1.0f)), pow2_from_magic8(t));
}

static inline float exp1(float x) {
  float v[8];
  store8(v, exp8(set8(x)));
  return v[0];
}

}  // namespace BL_ISA
}  // namespace bl
