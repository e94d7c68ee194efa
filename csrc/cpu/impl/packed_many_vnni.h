// packed_many_vnni.h: up to 16 encoded activation rows against 16 packed output rows with AVX-512 VNNI, to the bits of
// packed_dot_portable.h. Codes of two groups are put together once, so that a broadcast of 4 activation bytes serves 16 output rows.
//
// cost    per 32 values, 16 output rows and activation row: 16 multiplies, 16 broadcasts, 4 operations for the scale
#pragma once

#include "../kernels.h"
#include "packed_dot_simd.h"

namespace bl {
namespace BL_ISA {

static inline __m512i halves(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }

static inline __m512 scales_f16x16(const uint16_t *a, const uint16_t *b) {
  return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(a))),
                                                 _mm_loadu_si128(reinterpret_cast<const __m128i *>(b)), 1));
}

static inline __m512 joined16(__m512i hi, __m512i lo) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(hi), _mm512_set1_ps(128.0f), _mm512_cvtepi32_ps(lo));
}

static inline __m512i broadcast16(const void *p) {
  int32_t w;
  memcpy(&w, p, 4);
  return _mm512_set1_epi32(w);
}

// The minimums of two groups as pairs of blocks, and their sums with a row's block sums.
template <class Packed>
static inline void min_pairs(const Packed &a, const Packed &b, __m512i *mins) {
  for (int j = 0; j < 4; j++)
    mins[j] = halves(pairs16(bytes_u8(a.mins[2 * j]), bytes_u8(a.mins[2 * j + 1])), pairs16(bytes_u8(b.mins[2 * j]), bytes_u8(b.mins[2 * j + 1])));
}
static inline __m512 min_sums(const __m512i *mins, const ActRow &row) {
  __m512i m[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++)
#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) m[part] = _mm512_dpwssd_epi32(m[part], mins[j], broadcast16(row.sum32[part] + 2 * j));
  return joined16(m[0], m[1]);
}

// The running sums of rows over superblocks, in spans (packing.h).
struct Spans16 {
  Spans16(uint64_t n_super, uint32_t n_rows) : n(n_super), rows(n_rows), span(span_length(n_super)) {
    for (uint32_t r = 0; r < rows; r++) acc[r] = total[r] = _mm512_setzero_ps();
  }
  inline void add(uint32_t r, uint64_t sb, __m512 value) {
    acc[r] = _mm512_add_ps(acc[r], value);
    if ((sb + 1) % span == 0 || sb + 1 == n) total[r] = _mm512_add_ps(total[r], acc[r]), acc[r] = _mm512_setzero_ps();
  }
  inline void store(float *out) const {
    for (uint32_t r = 0; r < rows; r++) _mm512_storeu_ps(out + 16 * r, total[r]);
  }
  uint64_t n;
  uint32_t rows;
  uint64_t span;
  __m512 acc[MANY_ROWS], total[MANY_ROWS];
};

#if !defined(__AMX_INT8__)

// Each type: integer SCALES (a half a superblock's block has its own: HALVES) or an f16 scale for each 32 values; MINS; OFFSET of the codes.
struct ManyQ4_K : SimdQ4_K {
  static constexpr bool SCALES = true, MINS = true, HALVES = false;
};
struct ManyQ5_K : SimdQ5_K {
  static constexpr bool SCALES = true, MINS = true, HALVES = false;
};
struct ManyQ6_K : SimdQ6_K {
  static constexpr bool SCALES = true, MINS = false, HALVES = true;
};
struct ManyQ4_0 : SimdQ4_0 {
  static constexpr bool SCALES = false;
};
struct ManyQ8_0 : SimdQ8_0 {
  static constexpr bool SCALES = false;
};

// wide: per superblock [k / 4 of 64][which][8 rows x 4 codes]
template <class F>
static void expand_many(const uint8_t *group, uint64_t n_block, uint32_t which, uint8_t *wide) {
  const typename F::Packed *w = reinterpret_cast<const typename F::Packed *>(group);
  wide += 32 * which;
  if constexpr (F::SCALES) {
    for (uint64_t sb = 0; sb < n_block; sb++, w++, wide += MANY_BYTES)
#pragma GCC unroll 8
      for (int b = 0; b < 8; b++)
        for (int v = 0; v < 8; v++)
          _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide + 64 * (8 * b + v)), F::codes(*w, b, v));
  } else {
    for (uint64_t block = 0; block < n_block; block++, w++)
      for (int v = 0; v < 8; v++)
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide + block / 8 * MANY_BYTES + 64 * (8 * (block % 8) + uint32_t(v))), F::codes(*w, v));
  }
}

// h[r], l[r] = products of N vectors of codes from v on with R rows' high and low bytes.
template <int R, int N>
static inline void products(__m512i *h, __m512i *l, const uint8_t *codes, const ActRow *const *x, int v) {
#pragma GCC unroll 4
  for (int r = 0; r < R; r++) h[r] = l[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int i = 0; i < N; i++) {
    const __m512i c = _mm512_loadu_si512(codes + 64 * (v + i));
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      h[r] = _mm512_dpbusd_epi32(h[r], c, broadcast16(x[r]->hi + 4 * (v + i)));
      l[r] = _mm512_dpbusd_epi32(l[r], c, broadcast16(x[r]->lo + 4 * (v + i)));
    }
  }
}

template <class F, int R>
static inline void scaled_super(const typename F::Packed &a, const typename F::Packed &b, const uint8_t *codes, const ActRow *const *x, uint32_t row,
                                uint64_t sb, Spans16 &sums) {
  __m512i hi[R], lo[R], h[R], l[R];
  for (int r = 0; r < R; r++) hi[r] = lo[r] = _mm512_setzero_si512();
  for (int i = 0; i < 8; i++) {
    if constexpr (F::HALVES) {
      __m512i both = _mm512_setzero_si512();
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        const __m512i s = halves(bytes_i8(a.scales[2 * i + half]), bytes_i8(b.scales[2 * i + half]));
        products<R, 4>(h, l, codes, x, 8 * i + 4 * half);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
          hi[r] = _mm512_add_epi32(hi[r], _mm512_mullo_epi32(h[r], s));
          lo[r] = _mm512_add_epi32(lo[r], _mm512_mullo_epi32(l[r], s));
        }
        both = half == 0 ? _mm512_and_si512(s, _mm512_set1_epi32(0xFFFF)) : _mm512_or_si512(both, _mm512_slli_epi32(s, 16));
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {  // takes off the 32 that each code has too much
        hi[r] = _mm512_sub_epi32(hi[r], _mm512_slli_epi32(_mm512_madd_epi16(both, broadcast16(x[r]->sum16[0] + 2 * i)), 5));
        lo[r] = _mm512_sub_epi32(lo[r], _mm512_slli_epi32(_mm512_madd_epi16(both, broadcast16(x[r]->sum16[1] + 2 * i)), 5));
      }
    } else {
      const __m512i s = halves(bytes_u8(a.scales[i]), bytes_u8(b.scales[i]));
      products<R, 8>(h, l, codes, x, 8 * i);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        hi[r] = _mm512_add_epi32(hi[r], _mm512_mullo_epi32(h[r], s));
        lo[r] = _mm512_add_epi32(lo[r], _mm512_mullo_epi32(l[r], s));
      }
    }
  }
  const __m512 d = scales_f16x16(a.d, b.d);
  if constexpr (F::MINS) {
    const __m512 dmin = scales_f16x16(a.dmin, b.dmin);
    __m512i mins[4];
    min_pairs(a, b, mins);
    for (int r = 0; r < R; r++) {
      const __m512 value = _mm512_fmsub_ps(d, joined16(hi[r], lo[r]), _mm512_mul_ps(dmin, min_sums(mins, *x[r])));
      sums.add(row + uint32_t(r), sb, _mm512_mul_ps(value, _mm512_set1_ps(x[r]->d)));
    }
  } else {
    for (int r = 0; r < R; r++)
      sums.add(row + uint32_t(r), sb, _mm512_mul_ps(_mm512_mul_ps(d, joined16(hi[r], lo[r])), _mm512_set1_ps(x[r]->d)));
  }
}

template <class F, int R>
static inline void block_super(const typename F::Packed *a, const typename F::Packed *b, int n, const uint8_t *codes, const ActRow *const *x,
                               uint32_t row, uint64_t sb, Spans16 &sums) {
  __m512 value[R];
  for (int r = 0; r < R; r++) value[r] = _mm512_setzero_ps();
  for (int i = 0; i < n; i++) {
    __m512i h[R], l[R];
    products<R, 8>(h, l, codes, x, 8 * i);
    const __m512 d = scales_f16x16(a[i].d, b[i].d);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {  // takes off OFFSET, which each code has too much
      const __m512i hi = _mm512_sub_epi32(h[r], _mm512_set1_epi32(F::OFFSET * x[r]->sum32[0][i]));
      const __m512i lo = _mm512_sub_epi32(l[r], _mm512_set1_epi32(F::OFFSET * x[r]->sum32[1][i]));
      value[r] = _mm512_fmadd_ps(d, joined16(hi, lo), value[r]);
    }
  }
  for (int r = 0; r < R; r++) sums.add(row + uint32_t(r), sb, _mm512_mul_ps(value[r], _mm512_set1_ps(x[r]->d)));
}

template <class F, int R>
static inline void many_rows(const typename F::Packed *const *w, const uint8_t *wide, uint64_t n_block, const ActRow *act, uint64_t stride, uint32_t row,
                             uint64_t sb, Spans16 &sums) {
  const ActRow *x[R];
  for (int r = 0; r < R; r++) x[r] = act + (row + uint32_t(r)) * stride + sb;
  if constexpr (F::SCALES) scaled_super<F, R>(w[0][sb], w[1][sb], wide, x, row, sb, sums);
  else block_super<F, R>(w[0] + 8 * sb, w[1] + 8 * sb, n_block - 8 * sb < 8 ? int(n_block - 8 * sb) : 8, wide, x, row, sb, sums);
}

template <class F>
static void many(const uint8_t *const *groups, const uint8_t *wide, uint64_t n_block, const ActRow *act, uint64_t stride, uint32_t n_rows,
                 float *out) {
  const typename F::Packed *w[2] = {reinterpret_cast<const typename F::Packed *>(groups[0]),
                                    reinterpret_cast<const typename F::Packed *>(groups[1])};
  const uint64_t n_super = F::SCALES ? n_block : (n_block + 7) / 8;
  Spans16 sums(n_super, n_rows);
  for (uint64_t sb = 0; sb < n_super; sb++, wide += MANY_BYTES) {
    uint32_t row = 0;
    for (; row + 4 <= n_rows; row += 4) many_rows<F, 4>(w, wide, n_block, act, stride, row, sb, sums);
    switch (n_rows - row) {
      case 3: many_rows<F, 3>(w, wide, n_block, act, stride, row, sb, sums); break;
      case 2: many_rows<F, 2>(w, wide, n_block, act, stride, row, sb, sums); break;
      case 1: many_rows<F, 1>(w, wide, n_block, act, stride, row, sb, sums); break;
    }
  }
  sums.store(out);
}

#endif

}  // namespace BL_ISA
}  // namespace bl
