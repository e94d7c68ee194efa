// packed_many_vnni.h: up to 16 encoded activation rows against 16 output rows with AVX-512 VNNI, to the bits of packed_dot_portable.h and
// coded_portable.h. Codes of two groups are put together once, so that a broadcast of 4 activation bytes serves 16 output rows.
//
// cost    per 32 values, 16 output rows and activation row: 16 multiplies, 16 broadcasts, 4 operations for the scale
#pragma once

#include "../kernels.h"
#include "coded_groups.h"
#include "packed_dot_simd.h"

namespace bl {
namespace BL_ISA {

static inline __m512i halves(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }

static inline __m512 scales16(const uint16_t *a, const uint16_t *b) {
  return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(a))),
                                                 _mm_loadu_si128(reinterpret_cast<const __m128i *>(b)), 1));
}
static inline __m512 scales16(const float *a, const float *b) { return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(a)), _mm256_loadu_ps(b), 1); }

static inline __m512 joined16(__m512i hi, __m512i lo) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(hi), _mm512_set1_ps(128.0f), _mm512_cvtepi32_ps(lo));
}

static inline __m512i broadcast16(const void *p) {
  int32_t w;
  memcpy(&w, p, 4);
  return _mm512_set1_epi32(w);
}

// The minimums of two groups (8 or 16 of a superblock) as pairs, and their sums with the sums of a row's bytes.
template <class Packed>
struct Minimums {
  static constexpr int N = int(sizeof(Packed::mins) / 8);
  Minimums(const Packed &a, const Packed &b) {
    for (int j = 0; j < N / 2; j++)
      pairs[j] = halves(pairs16(bytes_u8(a.mins[2 * j]), bytes_u8(a.mins[2 * j + 1])), pairs16(bytes_u8(b.mins[2 * j]), bytes_u8(b.mins[2 * j + 1])));
  }
  inline __m512 sums(const ActRow &row) const {
    const int16_t *of[2] = {N == 8 ? row.sum32[0] : row.sum16[0], N == 8 ? row.sum32[1] : row.sum16[1]};
    __m512i m[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 8
    for (int j = 0; j < N / 2; j++)
#pragma GCC unroll 2
      for (int part = 0; part < 2; part++) m[part] = _mm512_dpwssd_epi32(m[part], pairs[j], broadcast16(of[part] + 2 * j));
    return joined16(m[0], m[1]);
  }
  __m512i pairs[N / 2];
};

// Floats that follow a block's products: a = d joined + a, then a = m (sum of the row's bytes) + a where the type has minimums.
template <class F>
static inline __m512 add_block(__m512 a, __m512 d, __m512 value, const typename F::Packed *w0, const typename F::Packed *w1, const ActRow &row, uint64_t b) {
  a = _mm512_fmadd_ps(d, value, a);
  if constexpr (F::MINS) {
    const float sum = fma1(float(row.sum32[0][b]), 128.0f, float(row.sum32[1][b]));
    a = _mm512_fmadd_ps(scales16(w0->m, w1->m), _mm512_set1_ps(sum), a);
  }
  return a;
}

// Scales of the blocks of K values from block `at` on.
template <class F>
static inline __m512 block_scales(const typename F::Packed *a, const typename F::Packed *b, uint64_t at) {
  if constexpr (F::K == 16) return scales16(a[at / 2].d[at % 2], b[at / 2].d[at % 2]);
  else if constexpr (F::CODED) return scales16(a[at].d[0], b[at].d[0]);
  else return scales16(a[at].d, b[at].d);
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

// Each type: integer SCALES (a half a superblock's block has its own: HALVES) or a float for each K values; MINS; OFFSET of the codes.
struct ManyQ4_K : SimdQ4_K {
  static constexpr bool SCALES = true, MINS = true, HALVES = false;
};
struct ManyQ5_K : SimdQ5_K {
  static constexpr bool SCALES = true, MINS = true, HALVES = false;
};
struct ManyQ6_K : SimdQ6_K {
  static constexpr bool SCALES = true, MINS = false, HALVES = true;
  static constexpr int OFFSET_BITS = 5;
};
struct ManyQ4_0 : SimdQ4_0 {
  static constexpr bool SCALES = false, MINS = false, CODED = false;
  static constexpr int K = 32;
};
struct ManyQ8_0 : SimdQ8_0 {
  static constexpr bool SCALES = false, MINS = false, CODED = false;
  static constexpr int K = 32;
};
template <bool MIN>
struct ManyScaled {
  using Packed = GroupScaled;
  static constexpr bool SCALES = true, MINS = MIN, HALVES = true;
  static constexpr int OFFSET_BITS = 7;
  static inline __m256i codes(const Packed &w, int b, int v) { return _mm256_xor_si256(load_i(w.codes[8 * b + v]), _mm256_set1_epi8(char(0x80))); }
};
template <int N, bool MIN>
struct ManyBlocks {
  using Packed = GroupBlock;
  static constexpr bool SCALES = false, MINS = MIN, CODED = true;
  static constexpr int K = N, OFFSET = 128;
  static inline __m256i codes(const Packed &w, int v) { return _mm256_xor_si256(load_i(w.codes[v]), _mm256_set1_epi8(char(0x80))); }
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
      for (int r = 0; r < R; r++) {  // takes off what each code has too much
        hi[r] = _mm512_sub_epi32(hi[r], _mm512_slli_epi32(_mm512_madd_epi16(both, broadcast16(x[r]->sum16[0] + 2 * i)), F::OFFSET_BITS));
        lo[r] = _mm512_sub_epi32(lo[r], _mm512_slli_epi32(_mm512_madd_epi16(both, broadcast16(x[r]->sum16[1] + 2 * i)), F::OFFSET_BITS));
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
  const __m512 d = scales16(a.d, b.d);
  if constexpr (F::MINS) {
    const __m512 dmin = scales16(a.dmin, b.dmin);
    const Minimums<typename F::Packed> mins(a, b);
    for (int r = 0; r < R; r++) {
      const __m512 value = _mm512_fmsub_ps(d, joined16(hi[r], lo[r]), _mm512_mul_ps(dmin, mins.sums(*x[r])));
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
  constexpr int N = F::K / 4;
  __m512 value[R];
  for (int r = 0; r < R; r++) value[r] = _mm512_setzero_ps();
  for (int i = 0; i < n; i++) {
    __m512i h[R], l[R];
    products<R, N>(h, l, codes, x, N * i);
    const __m512 d = block_scales<F>(a, b, uint64_t(i));
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {  // takes off OFFSET, which each code has too much
      const int16_t *sum_hi = F::K == 16 ? x[r]->sum16[0] : x[r]->sum32[0], *sum_lo = F::K == 16 ? x[r]->sum16[1] : x[r]->sum32[1];
      const __m512i hi = _mm512_sub_epi32(h[r], _mm512_set1_epi32(F::OFFSET * sum_hi[i]));
      const __m512i lo = _mm512_sub_epi32(l[r], _mm512_set1_epi32(F::OFFSET * sum_lo[i]));
      value[r] = add_block<F>(value[r], d, joined16(hi, lo), a + i, b + i, *x[r], uint64_t(i));
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
  else block_super<F, R>(w[0] + 8 * sb, w[1] + 8 * sb, int(n_block - 8 * sb < 8 ? n_block - 8 * sb : 8) * 32 / F::K, wide, x, row, sb, sums);
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
