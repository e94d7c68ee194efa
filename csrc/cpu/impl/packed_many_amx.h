// packed_many_amx.h: up to 16 encoded activation rows against 16 output rows on AMX tiles, to the bits of packed_dot_portable.h and
// coded_portable.h.
//
// Whole scales: a weight's code times its block's scale, a whole number of at most 13 bits, is cut into two signed bytes, 64 w1 + w0, when a
// group is expanded. The rows' two bytes times the weight's two are four products, each summed over the superblock in one tile: exact, and no
// scale stands between the blocks. A float for each 32 values: two products a block, joined and scaled there.
//
// cost    16 tile products of 16 x 16 x 64 a superblock, and 30 vector operations a row; expanding: some 1,500 operations a superblock and
//         16 output rows, shared by all rows of a pass
// floor   one tile product in 16 cycles
#pragma once

#include "../kernels.h"
#include "packed_many_vnni.h"

namespace bl {
namespace BL_ISA {

// As ldtilecfg reads it.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0-3: sums of n_rows x 16; 4, 5: the rows' bytes, k of them; 6, 7: weights.
static inline void configure_tiles(uint32_t n_rows, uint32_t k) {
  TileConfig c;
  for (int t = 0; t < 4; t++) c.rows[t] = uint8_t(n_rows), c.row_bytes[t] = 64;
  for (int t = 4; t < 6; t++) c.rows[t] = uint8_t(n_rows), c.row_bytes[t] = uint16_t(k);
  for (int t = 6; t < 8; t++) c.rows[t] = uint8_t(k / 4), c.row_bytes[t] = 64;
  _tile_loadconfig(&c);
}

// Codes of 4 values of 8 rows times the rows' scales, as digits base 64: w1 in [-64, 64], w0 in [-32, 31].
//   codes i8 (32 bytes: 4 of each row) · scale i16 (32: the row's, 4 times)
static inline void digits(__m256i codes, __m512i scale, __m256i *w1, __m256i *w0) {
  const __m512i w = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(codes), scale);
  const __m512i top = _mm512_srai_epi16(_mm512_add_epi16(w, _mm512_set1_epi16(32)), 6);
  *w1 = _mm512_maskz_cvtepi16_epi8(~0u, top);
  *w0 = _mm512_maskz_cvtepi16_epi8(~0u, _mm512_sub_epi16(w, _mm512_slli_epi16(top, 6)));
}

// Scales of 8 rows, each 4 times.
static inline __m512i four_times(__m128i rows8) {
  const __m128i order = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m128i low = _mm_shuffle_epi8(rows8, order), high = _mm_shuffle_epi8(rows8, _mm_add_epi8(order, _mm_set1_epi8(4)));
  return _mm512_cvtepi8_epi16(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}
static inline __m128i eight_bytes(const void *p) { return _mm_loadl_epi64(static_cast<const __m128i *>(p)); }

// Each type: DIGITS, or a float for each K values; MINS; values and scales of 8 rows.
struct ManyQ4_K : SimdQ4_K {
  static constexpr bool DIGITS = true, MINS = true;
  static inline __m256i values(const Packed &w, int b, int v) { return codes(w, b, v); }
  static inline __m512i scale(const Packed &w, int b, int) { return four_times(eight_bytes(w.scales[b])); }
};
struct ManyQ5_K : SimdQ5_K {
  static constexpr bool DIGITS = true, MINS = true;
  static inline __m256i values(const Packed &w, int b, int v) { return codes(w, b, v); }
  static inline __m512i scale(const Packed &w, int b, int) { return four_times(eight_bytes(w.scales[b])); }
};
struct ManyQ6_K : SimdQ6_K {
  static constexpr bool DIGITS = true, MINS = false;
  static inline __m256i values(const Packed &w, int b, int v) { return _mm256_sub_epi8(codes(w, b, v), _mm256_set1_epi8(32)); }
  static inline __m512i scale(const Packed &w, int b, int v) { return four_times(eight_bytes(w.scales[2 * b + v / 4])); }
};
template <bool MIN>
struct ManyScaled {  // |code scale| <= 127 * 32
  using Packed = GroupScaled;
  static constexpr bool DIGITS = true, MINS = MIN;
  static inline __m256i values(const Packed &w, int b, int v) { return load_i(w.codes[8 * b + v]); }
  static inline __m512i scale(const Packed &w, int b, int v) { return four_times(eight_bytes(w.scales[2 * b + v / 4])); }
};
template <int N, bool MIN>
struct ManyBlocks {
  using Packed = GroupBlock;
  static constexpr bool DIGITS = false, MINS = MIN, CODED = true;
  static constexpr int K = N;
  static inline __m256i values(const Packed &w, int v) { return load_i(w.codes[v]); }
};
struct ManyQ4_0 : SimdQ4_0 {
  static constexpr bool DIGITS = false, MINS = false, CODED = false;
  static constexpr int K = 32;
  static inline __m256i values(const Packed &w, int v) { return _mm256_sub_epi8(codes(w, v), _mm256_set1_epi8(8)); }
};
struct ManyQ8_0 : SimdQ8_0 {
  static constexpr bool DIGITS = false, MINS = false, CODED = false;
  static constexpr int K = 32;
  static inline __m256i values(const Packed &w, int v) { return load_i(w.qs[v]); }
};

// wide: per superblock [digit][k / 4 of 64][which][8 rows x 4 values]; without digits one plane.
template <class F>
static void expand_many(const uint8_t *group, uint64_t n_block, uint32_t which, uint8_t *wide) {
  const typename F::Packed *w = reinterpret_cast<const typename F::Packed *>(group);
  wide += 32 * which;
  if constexpr (F::DIGITS) {
    for (uint64_t sb = 0; sb < n_block; sb++, w++, wide += MANY_BYTES)
      for (int b = 0; b < 8; b++)
        for (int v = 0; v < 8; v++) {
          __m256i w1, w0;
          digits(F::values(*w, b, v), F::scale(*w, b, v), &w1, &w0);
          _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide + 64 * (8 * b + v)), w1);
          _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide + 4096 + 64 * (8 * b + v)), w0);
        }
  } else {
    for (uint64_t block = 0; block < n_block; block++, w++)
      for (int v = 0; v < 8; v++)
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(wide + block / 8 * MANY_BYTES + 64 * (8 * (block % 8) + uint32_t(v))), F::values(*w, v));
  }
}

template <class F>
static void many_digits(const uint8_t *const *groups, const uint8_t *wide, uint64_t n_block, const ActRow *act, uint64_t stride,
                        uint32_t n_rows, float *out) {
  const typename F::Packed *w[2] = {reinterpret_cast<const typename F::Packed *>(groups[0]),
                                    reinterpret_cast<const typename F::Packed *>(groups[1])};
  Spans16 sums(n_block, n_rows);
  alignas(64) int32_t c[4][MANY_ROWS][16];
  configure_tiles(n_rows, 64);
  for (uint64_t sb = 0; sb < n_block; sb++, wide += MANY_BYTES) {
    const ActRow *x = act + sb;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      _tile_loadd(4, x->hi + 64 * k, long(stride * sizeof(ActRow)));
      _tile_loadd(6, wide + 1024 * k, 64);
      _tile_dpbssd(0, 4, 6);
      _tile_loadd(7, wide + 4096 + 1024 * k, 64);
      _tile_dpbssd(1, 4, 7);
      _tile_loadd(5, x->lo + 64 * k, long(stride * sizeof(ActRow)));
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, c[0], 64);
    _tile_stored(1, c[1], 64);
    _tile_stored(2, c[2], 64);
    _tile_stored(3, c[3], 64);
    const auto with = [&](const auto &least) {
      const __m512 d = scales16(w[0][sb].d, w[1][sb].d);
      for (uint32_t r = 0; r < n_rows; r++) {
        const ActRow &row = x[r * stride];
        const __m512i hi = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(c[0][r]), 6), _mm512_load_si512(c[1][r]));
        const __m512i lo = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(c[2][r]), 6), _mm512_load_si512(c[3][r]));
        sums.add(r, sb, _mm512_mul_ps(least(d, joined16(hi, lo), row), _mm512_set1_ps(row.d)));
      }
    };
    if constexpr (F::MINS) {
      const __m512 dmin = scales16(w[0][sb].dmin, w[1][sb].dmin);
      const Minimums<typename F::Packed> mins(w[0][sb], w[1][sb]);
      with([&](__m512 d, __m512 value, const ActRow &row) { return _mm512_fmsub_ps(d, value, _mm512_mul_ps(dmin, mins.sums(row))); });
    } else {
      with([](__m512 d, __m512 value, const ActRow &) { return _mm512_mul_ps(d, value); });
    }
  }
  _tile_release();
  sums.store(out);
}

template <class F>
static void many_blocks(const uint8_t *const *groups, const uint8_t *wide, uint64_t n_block, const ActRow *act, uint64_t stride,
                        uint32_t n_rows, float *out) {
  const typename F::Packed *w[2] = {reinterpret_cast<const typename F::Packed *>(groups[0]),
                                    reinterpret_cast<const typename F::Packed *>(groups[1])};
  constexpr uint64_t K = F::K, IN_SUPER = SUPER / K;
  const uint64_t n_super = (n_block + 7) / 8;
  Spans16 sums(n_super, n_rows);
  __m512 a[MANY_ROWS];
  alignas(64) int32_t c[4][MANY_ROWS][16];
  configure_tiles(n_rows, uint32_t(K));
  for (uint64_t sb = 0; sb < n_super; sb++, wide += MANY_BYTES) {
    const ActRow *x = act + sb;
    const typename F::Packed *w0 = w[0] + 8 * sb, *w1 = w[1] + 8 * sb;
    for (uint32_t r = 0; r < n_rows; r++) a[r] = _mm512_setzero_ps();
    const uint64_t left = (n_block - 8 * sb) * 32 / K, n = left < IN_SUPER ? left : IN_SUPER;
    for (uint64_t b = 0; b < n; b += 2) {  // two blocks at a time; the second may be past the end
      const bool two = b + 1 < n;
      _tile_zero(0);
      _tile_zero(1);
      _tile_loadd(6, wide + 16 * K * b, 64);
      _tile_loadd(4, x->hi + K * b, long(stride * sizeof(ActRow)));
      _tile_dpbssd(0, 4, 6);
      _tile_loadd(5, x->lo + K * b, long(stride * sizeof(ActRow)));
      _tile_dpbssd(1, 5, 6);
      _tile_stored(0, c[0], 64);
      _tile_stored(1, c[1], 64);
      if (two) {
        _tile_zero(2);
        _tile_zero(3);
        _tile_loadd(7, wide + 16 * K * (b + 1), 64);
        _tile_loadd(4, x->hi + K * (b + 1), long(stride * sizeof(ActRow)));
        _tile_dpbssd(2, 4, 7);
        _tile_loadd(5, x->lo + K * (b + 1), long(stride * sizeof(ActRow)));
        _tile_dpbssd(3, 5, 7);
        _tile_stored(2, c[2], 64);
        _tile_stored(3, c[3], 64);
      }
      const __m512 d0 = block_scales<F>(w0, w1, b), d1 = two ? block_scales<F>(w0, w1, b + 1) : d0;
      for (uint32_t r = 0; r < n_rows; r++) {
        const ActRow &row = x[r * stride];
        a[r] = add_block<F>(a[r], d0, joined16(_mm512_load_si512(c[0][r]), _mm512_load_si512(c[1][r])), w0 + b, w1 + b, row, b);
        if (two) a[r] = add_block<F>(a[r], d1, joined16(_mm512_load_si512(c[2][r]), _mm512_load_si512(c[3][r])), w0 + b + 1, w1 + b + 1, row, b + 1);
      }
    }
    for (uint32_t r = 0; r < n_rows; r++) sums.add(r, sb, _mm512_mul_ps(a[r], _mm512_set1_ps(x[r * stride].d)));
  }
  _tile_release();
  sums.store(out);
}

template <class F>
static void many(const uint8_t *const *groups, const uint8_t *wide, uint64_t n_block, const ActRow *act, uint64_t stride, uint32_t n_rows,
                 float *out) {
  if constexpr (F::DIGITS) many_digits<F>(groups, wide, n_block, act, stride, n_rows, out);
  else many_blocks<F>(groups, wide, n_block, act, stride, n_rows, out);
}

}  // namespace BL_ISA
}  // namespace bl
