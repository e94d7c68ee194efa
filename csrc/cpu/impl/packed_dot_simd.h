// packed_dot_simd.h: R quantized activation rows against 8 packed output rows, AVX2 or AVX-512 VNNI. Lanes are output rows.
//
// One vector of packed codes holds 4 codes of each of the 8 rows; the matching 4 activation codes are broadcast to all lanes. AVX2
// multiplies u8 x i8 to pairs in i16 and adds as many of them as fit; VNNI adds all four products in i32. Both are exact,
// and the f32 operations that follow are the same, so results are equal bit for bit to packed_dot_portable.h.
//
// bits    packing.h types in the order of blocks, as stated in csrc/cpu/ops_matmul.cpp
// cost    per 32 values, 8 rows and activation row: 8 multiplies, 8 broadcasts, 7 to 16 adds, 3 float operations
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

static inline __m256i load_i(const void *p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }

static inline int32_t word_at(const uint8_t *p) {
  int32_t w;
  memcpy(&w, p, 4);
  return w;
}

static inline float float_at(const uint8_t *p) {
  float f;
  memcpy(&f, p, 4);
  return f;
}

static inline __m256 scales_f16(const uint16_t *d) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(d))); }
static inline __m256i bytes_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))); }
static inline __m256i bytes_i8(const int8_t *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))); }

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
using Scale = __m256i;  // i32 a lane
static inline Scale spread(__m256i s) { return s; }
static inline __m256i dot_add(__m256i acc, __m256i codes, __m256i act) { return _mm256_dpbusd_epi32(acc, codes, act); }
// sum of products times the lane's scale
static inline __m256i scaled(__m256i acc, Scale s) { return _mm256_mullo_epi32(acc, s); }
static inline __m256i summed(__m256i acc) { return acc; }
#else
using Scale = __m256i;  // the scale twice a lane, i16
static inline Scale spread(__m256i s) { return _mm256_blend_epi16(s, _mm256_slli_epi32(s, 16), 0xAA); }
static inline __m256i dot_add(__m256i acc, __m256i codes, __m256i act) { return _mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, act)); }
static inline __m256i scaled(__m256i acc, Scale s) { return _mm256_madd_epi16(acc, s); }
static inline __m256i summed(__m256i acc) { return _mm256_madd_epi16(acc, _mm256_set1_epi16(1)); }
#endif

static inline __m256i broadcast(const uint8_t *p) { return _mm256_set1_epi32(word_at(p)); }

// The record of block b of a tile of R rows.
template <int R>
struct Record {
  const uint8_t *p;
  __m256i q(int r, int v) const { return broadcast(p + 32 * r + 4 * v); }
  __m256 d(int r) const { return _mm256_set1_ps(float_at(p + 32 * R + 4 * r)); }
  __m256 s(int r) const { return _mm256_set1_ps(float_at(p + 36 * R + 4 * r)); }
  __m256i sums(int r) const { return broadcast(p + 40 * R + 4 * r); }
};

// 4-bit codes: 15 * 127 * 2 products a multiply, 8 multiplies fit i16.
template <int R>
static void dot_q4_K(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ4_K *w = reinterpret_cast<const PackedQ4_K *>(group);
  const __m256i low4 = _mm256_set1_epi8(15);
  __m256 acc[R];
  for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
  for (uint64_t sb = 0; sb < n_block; sb++, w++, act += 8 * ACT_BYTES * R) {
    __m256 a[R], m[R];
    for (int r = 0; r < R; r++) a[r] = m[r] = _mm256_setzero_ps();
    for (int p = 0; p < 4; p++) {
      const Record<R> even{act + (2 * p) * ACT_BYTES * R}, odd{act + (2 * p + 1) * ACT_BYTES * R};
      __m256i lo[R], hi[R];
      for (int r = 0; r < R; r++) lo[r] = hi[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int v = 0; v < 8; v++) {
        const __m256i c = load_i(w->qs[8 * p + v]);
        const __m256i cl = _mm256_and_si256(c, low4), ch = _mm256_and_si256(_mm256_srli_epi16(c, 4), low4);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
          lo[r] = dot_add(lo[r], cl, even.q(r, v));
          hi[r] = dot_add(hi[r], ch, odd.q(r, v));
        }
      }
      const Scale s0 = spread(bytes_u8(w->scales[2 * p])), s1 = spread(bytes_u8(w->scales[2 * p + 1]));
      const __m256 m0 = _mm256_cvtepi32_ps(bytes_u8(w->mins[2 * p])), m1 = _mm256_cvtepi32_ps(bytes_u8(w->mins[2 * p + 1]));
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(scaled(lo[r], s0)), even.d(r), a[r]);
        a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(scaled(hi[r], s1)), odd.d(r), a[r]);
        m[r] = _mm256_fmadd_ps(m0, even.s(r), m[r]);
        m[r] = _mm256_fmadd_ps(m1, odd.s(r), m[r]);
      }
    }
    const __m256 d = scales_f16(w->d), dmin = scales_f16(w->dmin);
    for (int r = 0; r < R; r++) acc[r] = _mm256_fnmadd_ps(dmin, m[r], _mm256_fmadd_ps(d, a[r], acc[r]));
  }
  for (int r = 0; r < R; r++) _mm256_storeu_ps(out + 8 * r, acc[r]);
}

// 5-bit codes: 31 * 127 * 2 a multiply, 4 multiplies fit i16.
template <int R>
static void dot_q5_K(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ5_K *w = reinterpret_cast<const PackedQ5_K *>(group);
  const __m256i low4 = _mm256_set1_epi8(15), bit4 = _mm256_set1_epi8(16);
  __m256 acc[R];
  for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
  for (uint64_t sb = 0; sb < n_block; sb++, w++, act += 8 * ACT_BYTES * R) {
    __m256 a[R], m[R];
    for (int r = 0; r < R; r++) a[r] = m[r] = _mm256_setzero_ps();
    for (int p = 0; p < 4; p++) {
      const Record<R> even{act + (2 * p) * ACT_BYTES * R}, odd{act + (2 * p + 1) * ACT_BYTES * R};
      const Scale s0 = spread(bytes_u8(w->scales[2 * p])), s1 = spread(bytes_u8(w->scales[2 * p + 1]));
      const __m128i shift = _mm_cvtsi32_si128(2 * p);
      __m256i lo_sum[R], hi_sum[R];
      for (int r = 0; r < R; r++) lo_sum[r] = hi_sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        __m256i lo[R], hi[R];
        for (int r = 0; r < R; r++) lo[r] = hi[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int v = 4 * half; v < 4 * half + 4; v++) {
          const __m256i c = load_i(w->qs[8 * p + v]), h = _mm256_srl_epi16(load_i(w->qh[v]), shift);
          const __m256i cl = _mm256_or_si256(_mm256_and_si256(c, low4), _mm256_and_si256(_mm256_slli_epi16(h, 4), bit4));
          const __m256i ch = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(c, 4), low4), _mm256_and_si256(_mm256_slli_epi16(h, 3), bit4));
#pragma GCC unroll 4
          for (int r = 0; r < R; r++) {
            lo[r] = dot_add(lo[r], cl, even.q(r, v));
            hi[r] = dot_add(hi[r], ch, odd.q(r, v));
          }
        }
        for (int r = 0; r < R; r++) {
          lo_sum[r] = _mm256_add_epi32(lo_sum[r], scaled(lo[r], s0));
          hi_sum[r] = _mm256_add_epi32(hi_sum[r], scaled(hi[r], s1));
        }
      }
      const __m256 m0 = _mm256_cvtepi32_ps(bytes_u8(w->mins[2 * p])), m1 = _mm256_cvtepi32_ps(bytes_u8(w->mins[2 * p + 1]));
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(lo_sum[r]), even.d(r), a[r]);
        a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(hi_sum[r]), odd.d(r), a[r]);
        m[r] = _mm256_fmadd_ps(m0, even.s(r), m[r]);
        m[r] = _mm256_fmadd_ps(m1, odd.s(r), m[r]);
      }
    }
    const __m256 d = scales_f16(w->d), dmin = scales_f16(w->dmin);
    for (int r = 0; r < R; r++) acc[r] = _mm256_fnmadd_ps(dmin, m[r], _mm256_fmadd_ps(d, a[r], acc[r]));
  }
  for (int r = 0; r < R; r++) _mm256_storeu_ps(out + 8 * r, acc[r]);
}

// 6-bit codes 0..63 that stand for code - 32: 63 * 127 * 2 a multiply, 2 multiplies fit i16; 32 times the sum of the activation codes
// is taken off afterwards. Blocks of 32 in the order 0 2 1 3 of each half, as low and high nibbles of the same bytes lie.
template <int R>
static void dot_q6_K(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ6_K *w = reinterpret_cast<const PackedQ6_K *>(group);
  const __m256i low4 = _mm256_set1_epi8(15), bits45 = _mm256_set1_epi8(0x30);
  __m256 acc[R];
  for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
  for (uint64_t sb = 0; sb < n_block; sb++, w++, act += 8 * ACT_BYTES * R) {
    __m256 a[R];
    for (int r = 0; r < R; r++) a[r] = _mm256_setzero_ps();
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
      for (int j = 0; j < 2; j++) {
        const int b0 = 4 * half + j, b1 = b0 + 2;
        const Record<R> rec0{act + b0 * ACT_BYTES * R}, rec1{act + b1 * ACT_BYTES * R};
        __m256i lo_sum[R], hi_sum[R];
        for (int r = 0; r < R; r++) lo_sum[r] = hi_sum[r] = _mm256_setzero_si256();
        __m256i pair0 = _mm256_setzero_si256(), pair1 = pair0;  // the two group scales of a block, i16 a half lane
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
          const __m256i t0 = bytes_i8(w->scales[2 * b0 + g]), t1 = bytes_i8(w->scales[2 * b1 + g]);
          const Scale s0 = spread(t0), s1 = spread(t1);
          pair0 = g == 0 ? t0 : _mm256_blend_epi16(pair0, _mm256_slli_epi32(t0, 16), 0xAA);
          pair1 = g == 0 ? t1 : _mm256_blend_epi16(pair1, _mm256_slli_epi32(t1, 16), 0xAA);
#pragma GCC unroll 2
          for (int part = 0; part < 2; part++) {
            __m256i lo[R], hi[R];
            for (int r = 0; r < R; r++) lo[r] = hi[r] = _mm256_setzero_si256();
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
              const int v = 4 * g + 2 * part + i;
              const __m256i c = load_i(w->ql[16 * half + 8 * j + v]), h = load_i(w->qh[8 * half + v]);
              const __m256i hl = j == 0 ? _mm256_slli_epi16(h, 4) : _mm256_slli_epi16(h, 2);
              const __m256i hh = j == 0 ? h : _mm256_srli_epi16(h, 2);
              const __m256i cl = _mm256_or_si256(_mm256_and_si256(c, low4), _mm256_and_si256(hl, bits45));
              const __m256i ch = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(c, 4), low4), _mm256_and_si256(hh, bits45));
#pragma GCC unroll 4
              for (int r = 0; r < R; r++) {
                lo[r] = dot_add(lo[r], cl, rec0.q(r, v));
                hi[r] = dot_add(hi[r], ch, rec1.q(r, v));
              }
            }
            for (int r = 0; r < R; r++) {
              lo_sum[r] = _mm256_add_epi32(lo_sum[r], scaled(lo[r], s0));
              hi_sum[r] = _mm256_add_epi32(hi_sum[r], scaled(hi[r], s1));
            }
          }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
          const __m256i i0 = _mm256_sub_epi32(lo_sum[r], _mm256_slli_epi32(_mm256_madd_epi16(pair0, rec0.sums(r)), 5));
          const __m256i i1 = _mm256_sub_epi32(hi_sum[r], _mm256_slli_epi32(_mm256_madd_epi16(pair1, rec1.sums(r)), 5));
          a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i0), rec0.d(r), a[r]);
          a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i1), rec1.d(r), a[r]);
        }
      }
    }
    const __m256 d = scales_f16(w->d);
    for (int r = 0; r < R; r++) acc[r] = _mm256_fmadd_ps(d, a[r], acc[r]);
  }
  for (int r = 0; r < R; r++) _mm256_storeu_ps(out + 8 * r, acc[r]);
}

// --- many rows: codes of more than 4 bits are put together once per group and pass, not once per tile ---------------------------------
//
// wide: per superblock u8[8][8][32], the codes of its 8 blocks, in the order dot_q5_K and dot_q6_K take them.

static void expand_q4_K(const uint8_t *group, uint64_t n_block, uint8_t *wide) {
  const PackedQ4_K *w = reinterpret_cast<const PackedQ4_K *>(group);
  const __m256i low4 = _mm256_set1_epi8(15);
  for (uint64_t sb = 0; sb < n_block; sb++, w++)
    for (int p = 0; p < 4; p++, wide += 512)
      for (int v = 0; v < 8; v++) {
        const __m256i c = load_i(w->qs[8 * p + v]);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide + 32 * v), _mm256_and_si256(c, low4));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide + 256 + 32 * v), _mm256_and_si256(_mm256_srli_epi16(c, 4), low4));
      }
}

static void expand_q5_K(const uint8_t *group, uint64_t n_block, uint8_t *wide) {
  const PackedQ5_K *w = reinterpret_cast<const PackedQ5_K *>(group);
  const __m256i low4 = _mm256_set1_epi8(15), bit4 = _mm256_set1_epi8(16);
  for (uint64_t sb = 0; sb < n_block; sb++, w++)
    for (int b = 0; b < 8; b++) {
      const __m128i nibble = _mm_cvtsi32_si128(4 * (b & 1)), high = _mm_cvtsi32_si128(b);
      for (int v = 0; v < 8; v++, wide += 32) {
        const __m256i low = _mm256_and_si256(_mm256_srl_epi16(load_i(w->qs[8 * (b / 2) + v]), nibble), low4);
        const __m256i top = _mm256_slli_epi16(_mm256_srl_epi16(load_i(w->qh[v]), high), 4);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide), _mm256_or_si256(low, _mm256_and_si256(top, bit4)));
      }
    }
}

constexpr int Q6_K_ORDER[8] = {0, 2, 1, 3, 4, 6, 5, 7};

static void expand_q6_K(const uint8_t *group, uint64_t n_block, uint8_t *wide) {
  const PackedQ6_K *w = reinterpret_cast<const PackedQ6_K *>(group);
  const __m256i low4 = _mm256_set1_epi8(15), bits45 = _mm256_set1_epi8(0x30);
  for (uint64_t sb = 0; sb < n_block; sb++, w++)
    for (const int b : Q6_K_ORDER) {
      const int half = b >> 2, high = (b >> 1) & 1, j = b & 1;
      const __m128i nibble = _mm_cvtsi32_si128(4 * high), bits = _mm_cvtsi32_si128(2 * j + 4 * high);
      for (int v = 0; v < 8; v++, wide += 32) {
        const __m256i low = _mm256_and_si256(_mm256_srl_epi16(load_i(w->ql[16 * half + 8 * j + v]), nibble), low4);
        const __m256i top = _mm256_slli_epi16(_mm256_srl_epi16(load_i(w->qh[8 * half + v]), bits), 4);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide), _mm256_or_si256(low, _mm256_and_si256(top, bits45)));
      }
    }
}

// sum[r] = the scaled sum over the 32 codes of a block.   scale[0], scale[1]: of codes 0-15 and 16-31 · FIT: multiplies that fit i16
template <int FIT>
static inline void wide_block(__m256i *sum, Record<TILE> rec, const uint8_t *codes, const Scale *scale) {
#pragma GCC unroll 4
  for (uint32_t r = 0; r < TILE; r++) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int first = 0; first < 8; first += FIT) {
    __m256i part[TILE];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < TILE; r++) part[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int v = first; v < first + FIT; v++) {
      const __m256i c = load_i(codes + 32 * v);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < TILE; r++) part[r] = dot_add(part[r], c, rec.q(int(r), v));
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < TILE; r++) sum[r] = _mm256_add_epi32(sum[r], scaled(part[r], scale[first / 4]));
  }
}

// Q4_K and Q5_K.
template <class Packed, int FIT>
static void wide_k45(const uint8_t *group, const uint8_t *wide, uint64_t n_block, const uint8_t *act, float *out) {
  const Packed *w = reinterpret_cast<const Packed *>(group);
  __m256 acc[TILE];
  for (uint32_t r = 0; r < TILE; r++) acc[r] = _mm256_setzero_ps();
  for (uint64_t sb = 0; sb < n_block; sb++, w++) {
    __m256 a[TILE], m[TILE];
    for (uint32_t r = 0; r < TILE; r++) a[r] = m[r] = _mm256_setzero_ps();
    for (int b = 0; b < 8; b++, wide += 256, act += ACT_BYTES * TILE) {
      const Record<TILE> rec{act};
      const Scale s = spread(bytes_u8(w->scales[b]));
      const Scale both[2] = {s, s};
      const __m256 min = _mm256_cvtepi32_ps(bytes_u8(w->mins[b]));
      __m256i sum[TILE];
      wide_block<FIT>(sum, rec, wide, both);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < TILE; r++) {
        a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), rec.d(int(r)), a[r]);
        m[r] = _mm256_fmadd_ps(min, rec.s(int(r)), m[r]);
      }
    }
    const __m256 d = scales_f16(w->d), dmin = scales_f16(w->dmin);
    for (uint32_t r = 0; r < TILE; r++) acc[r] = _mm256_fnmadd_ps(dmin, m[r], _mm256_fmadd_ps(d, a[r], acc[r]));
  }
  for (uint32_t r = 0; r < TILE; r++) _mm256_storeu_ps(out + 8 * r, acc[r]);
}

static void wide_q6_K(const uint8_t *group, const uint8_t *wide, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ6_K *w = reinterpret_cast<const PackedQ6_K *>(group);
  __m256 acc[TILE];
  for (uint32_t r = 0; r < TILE; r++) acc[r] = _mm256_setzero_ps();
  for (uint64_t sb = 0; sb < n_block; sb++, w++, act += 8 * ACT_BYTES * TILE) {
    __m256 a[TILE];
    for (uint32_t r = 0; r < TILE; r++) a[r] = _mm256_setzero_ps();
    for (int i = 0; i < 8; i++, wide += 256) {
      const int b = Q6_K_ORDER[i];
      const Record<TILE> rec{act + b * int(ACT_BYTES * TILE)};
      const __m256i t0 = bytes_i8(w->scales[2 * b]), t1 = bytes_i8(w->scales[2 * b + 1]);
      const __m256i pair = _mm256_blend_epi16(t0, _mm256_slli_epi32(t1, 16), 0xAA);
      const Scale both[2] = {spread(t0), spread(t1)};
      __m256i sum[TILE];
      wide_block<2>(sum, rec, wide, both);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < TILE; r++) {
        const __m256i total = _mm256_sub_epi32(sum[r], _mm256_slli_epi32(_mm256_madd_epi16(pair, rec.sums(int(r))), 5));
        a[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), rec.d(int(r)), a[r]);
      }
    }
    const __m256 d = scales_f16(w->d);
    for (uint32_t r = 0; r < TILE; r++) acc[r] = _mm256_fmadd_ps(d, a[r], acc[r]);
  }
  for (uint32_t r = 0; r < TILE; r++) _mm256_storeu_ps(out + 8 * r, acc[r]);
}

// Codes 0..15 that stand for code - 8.
template <int R>
static void dot_q4_0(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ4_0 *w = reinterpret_cast<const PackedQ4_0 *>(group);
  const __m256i low4 = _mm256_set1_epi8(15), eights = _mm256_set1_epi16(8);
  __m256 acc[R];
  for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
  for (uint64_t b = 0; b < n_block; b++, w++, act += ACT_BYTES * R) {
    const Record<R> rec{act};
    __m256i sum[R];
    for (int r = 0; r < R; r++) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
      const __m256i c = load_i(w->qs[v]);
      const __m256i cl = _mm256_and_si256(c, low4), ch = _mm256_and_si256(_mm256_srli_epi16(c, 4), low4);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) sum[r] = dot_add(dot_add(sum[r], cl, rec.q(r, v)), ch, rec.q(r, v + 4));
    }
    const __m256 d = scales_f16(w->d);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const __m256i i = _mm256_sub_epi32(summed(sum[r]), _mm256_madd_epi16(rec.sums(r), eights));
      acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_mul_ps(d, rec.d(r)), acc[r]);
    }
  }
  for (int r = 0; r < R; r++) _mm256_storeu_ps(out + 8 * r, acc[r]);
}

// Signed codes: |w| times the activation with w's sign; one multiply fits i16.
template <int R>
static void dot_q8_0(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ8_0 *w = reinterpret_cast<const PackedQ8_0 *>(group);
  __m256 acc[R];
  for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
  for (uint64_t b = 0; b < n_block; b++, w++, act += ACT_BYTES * R) {
    const Record<R> rec{act};
    __m256i sum[R];
    for (int r = 0; r < R; r++) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int v = 0; v < 8; v++) {
      const __m256i c = load_i(w->qs[v]), size = _mm256_abs_epi8(c);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        const __m256i signed_act = _mm256_sign_epi8(rec.q(r, v), c);
        sum[r] = _mm256_add_epi32(sum[r], summed(dot_add(_mm256_setzero_si256(), size, signed_act)));
      }
    }
    const __m256 d = scales_f16(w->d);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), _mm256_mul_ps(d, rec.d(r)), acc[r]);
  }
  for (int r = 0; r < R; r++) _mm256_storeu_ps(out + 8 * r, acc[r]);
}

}  // namespace BL_ISA
}  // namespace bl
