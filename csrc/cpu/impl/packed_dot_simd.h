// packed_dot_simd.h: R encoded activation rows against 8 packed output rows, AVX2 or AVX-512 VNNI. Lanes are output rows.
//
// One vector of packed codes holds 4 codes of each of the 8 rows; the matching 4 bytes of an activation row (high and low bytes apart) are
// broadcast to all lanes. AVX2 multiplies u8 x i8 to pairs in i16 and adds as many of them as fit; VNNI adds all four products in i32.
// Both are exact, and the f32 operations that follow are the same, so results are equal bit for bit to packed_dot_portable.h.
//
// cost    per 32 values, 8 rows and activation row: 16 multiplies, 16 broadcasts, 3 to 8 operations for scales and sums
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

static inline __m256i load_i(const void *p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }

static inline __m256i broadcast4(const void *p) {
  int32_t w;
  memcpy(&w, p, 4);
  return _mm256_set1_epi32(w);
}

static inline __m256 scales_f16(const uint16_t *d) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(d))); }
static inline __m256i bytes_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))); }
static inline __m256i bytes_i8(const int8_t *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))); }
// Two rows of 8 numbers as pairs of i16 a lane.
static inline __m256i pairs16(__m256i even, __m256i odd) { return _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xAA); }

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
static inline __m256i spread(__m256i s) { return s; }
static inline __m256i dot_add(__m256i acc, __m256i codes, __m256i act) { return _mm256_dpbusd_epi32(acc, codes, act); }
// sum of products times the lane's scale
static inline __m256i scaled(__m256i acc, __m256i s) { return _mm256_mullo_epi32(acc, s); }
static inline __m256i summed(__m256i acc) { return acc; }
#else
static inline __m256i spread(__m256i s) { return pairs16(s, s); }
static inline __m256i dot_add(__m256i acc, __m256i codes, __m256i act) { return _mm256_add_epi16(acc, _mm256_maddubs_epi16(codes, act)); }
static inline __m256i scaled(__m256i acc, __m256i s) { return _mm256_madd_epi16(acc, s); }
static inline __m256i summed(__m256i acc) { return _mm256_madd_epi16(acc, _mm256_set1_epi16(1)); }
#endif

static inline __m256 joined(__m256i hi, __m256i lo) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(hi), _mm256_set1_ps(128.0f), _mm256_cvtepi32_ps(lo));
}

// Each type has codes(w, b, v): values 4 v .. of block b of all 8 rows as unsigned bytes, and FIT: multiplies of 4 codes with row bytes of
// at most 64 whose sums fit i16 (divides 8).

struct SimdQ4_K {
  using Packed = PackedQ4_K;
  static constexpr int FIT = 8;  // 15 * 64 * 2 * 8
  static inline __m256i codes(const Packed &w, int b, int v) {
    const __m256i c = load_i(w.qs[8 * (b / 2) + v]);
    return _mm256_and_si256(b % 2 == 0 ? c : _mm256_srli_epi16(c, 4), _mm256_set1_epi8(15));
  }
};

struct SimdQ5_K {
  using Packed = PackedQ5_K;
  static constexpr int FIT = 8;  // 31 * 64 * 2 * 8 = 31,744
  static inline __m256i codes(const Packed &w, int b, int v) {
    const __m256i c = load_i(w.qs[8 * (b / 2) + v]), h = load_i(w.qh[v]), bit4 = _mm256_set1_epi8(16);
    const __m256i low = _mm256_and_si256(b % 2 == 0 ? c : _mm256_srli_epi16(c, 4), _mm256_set1_epi8(15));
    return _mm256_or_si256(low, _mm256_and_si256(b < 4 ? _mm256_slli_epi16(h, 4 - b) : _mm256_srli_epi16(h, b - 4), bit4));
  }
};

struct SimdQ6_K {
  using Packed = PackedQ6_K;
  static constexpr int FIT = 4;  // 63 * 64 * 2 * 4 = 32,256
  // 0 .. 63, standing for code - 32
  static inline __m256i codes(const Packed &w, int b, int v) {
    const int half = b / 4, j = b % 2, high = (b % 4) / 2, at = 2 * j + 4 * high;
    const __m256i c = load_i(w.ql[16 * half + 8 * j + v]), h = load_i(w.qh[8 * half + v]), top = _mm256_set1_epi8(0x30);
    const __m256i low = _mm256_and_si256(high == 0 ? c : _mm256_srli_epi16(c, 4), _mm256_set1_epi8(15));
    return _mm256_or_si256(low, _mm256_and_si256(at < 4 ? _mm256_slli_epi16(h, 4 - at) : _mm256_srli_epi16(h, at - 4), top));
  }
};

struct SimdQ4_0 {
  using Packed = PackedQ4_0;
  static constexpr int FIT = 8, OFFSET = 8;
  static inline __m256i codes(const Packed &w, int v) {
    const __m256i c = load_i(w.qs[v % 4]);
    return _mm256_and_si256(v < 4 ? c : _mm256_srli_epi16(c, 4), _mm256_set1_epi8(15));
  }
};

struct SimdQ8_0 {
  using Packed = PackedQ8_0;
  static constexpr int FIT = 1, OFFSET = 128;  // 255 * 64 * 2 = 32,640
  static inline __m256i codes(const Packed &w, int v) { return _mm256_xor_si256(load_i(w.qs[v]), _mm256_set1_epi8(char(0x80))); }
};

// The running sums of R rows over superblocks, in spans (packing.h).
template <int R>
struct Spans {
  explicit Spans(uint64_t n_super) : span(span_length(n_super)), left(span) {
    for (int r = 0; r < R; r++) total[r] = acc[r] = _mm256_setzero_ps();
  }
  inline void add(int r, __m256 value) { acc[r] = _mm256_add_ps(acc[r], value); }
  inline void next() {
    if (--left == 0) close();
  }
  inline void close() {
    left = span;
    for (int r = 0; r < R; r++) total[r] = _mm256_add_ps(total[r], acc[r]), acc[r] = _mm256_setzero_ps();
  }
  inline void store(float *out) {
    if (left != span) close();
    for (int r = 0; r < R; r++) _mm256_storeu_ps(out + 8 * r, total[r]);
  }
  uint64_t span, left;
  __m256 acc[R], total[R];
};

// hi[r] += the scaled products of values 4 FROM .. of block b with the rows' high bytes, lo[r] those with the low ones.
template <class F, int R, int FROM, int N>
static inline void add_scaled(__m256i *hi, __m256i *lo, const typename F::Packed &w, int b, const ActRow *const *x, __m256i scale) {
#pragma GCC unroll 2
  for (int first = FROM; first < FROM + N; first += F::FIT < N ? F::FIT : N) {
    __m256i h[R], l[R];
    for (int r = 0; r < R; r++) h[r] = l[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int v = first; v < first + (F::FIT < N ? F::FIT : N); v++) {
      const __m256i c = F::codes(w, b, v);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        h[r] = dot_add(h[r], c, broadcast4(x[r]->hi + 32 * b + 4 * v));
        l[r] = dot_add(l[r], c, broadcast4(x[r]->lo + 32 * b + 4 * v));
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      hi[r] = _mm256_add_epi32(hi[r], scaled(h[r], scale));
      lo[r] = _mm256_add_epi32(lo[r], scaled(l[r], scale));
    }
  }
}

template <class F, int R>
static inline void dot_k45(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  const typename F::Packed *w = reinterpret_cast<const typename F::Packed *>(group);
  Spans<R> sums(n_block);
  for (uint64_t sb = 0; sb < n_block; sb++, w++) {
    const ActRow *x[R];
    __m256i hi[R], lo[R], min_hi[R], min_lo[R];
    for (int r = 0; r < R; r++) x[r] = act + uint64_t(r) * stride + sb, hi[r] = lo[r] = min_hi[r] = min_lo[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) add_scaled<F, R, 0, 8>(hi, lo, *w, b, x, spread(bytes_u8(w->scales[b])));
    for (int b = 0; b < 8; b += 2) {
      const __m256i mins = pairs16(bytes_u8(w->mins[b]), bytes_u8(w->mins[b + 1]));
      for (int r = 0; r < R; r++) {
        min_hi[r] = _mm256_add_epi32(min_hi[r], _mm256_madd_epi16(mins, broadcast4(x[r]->sum32[0] + b)));
        min_lo[r] = _mm256_add_epi32(min_lo[r], _mm256_madd_epi16(mins, broadcast4(x[r]->sum32[1] + b)));
      }
    }
    const __m256 d = scales_f16(w->d), dmin = scales_f16(w->dmin);
    for (int r = 0; r < R; r++) {
      const __m256 least = _mm256_mul_ps(dmin, joined(min_hi[r], min_lo[r]));
      sums.add(r, _mm256_mul_ps(_mm256_fmsub_ps(d, joined(hi[r], lo[r]), least), _mm256_set1_ps(x[r]->d)));
    }
    sums.next();
  }
  sums.store(out);
}

template <int R>
static void dot_q4_K(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_k45<SimdQ4_K, R>(group, n_block, act, stride, out);
}

template <int R>
static void dot_q5_K(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_k45<SimdQ5_K, R>(group, n_block, act, stride, out);
}

template <int R>
static void dot_q6_K(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  const PackedQ6_K *w = reinterpret_cast<const PackedQ6_K *>(group);
  Spans<R> sums(n_block);
  for (uint64_t sb = 0; sb < n_block; sb++, w++) {
    const ActRow *x[R];
    __m256i hi[R], lo[R];
    for (int r = 0; r < R; r++) x[r] = act + uint64_t(r) * stride + sb, hi[r] = lo[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int b = 0; b < 8; b++) {
      const __m256i s0 = bytes_i8(w->scales[2 * b]), s1 = bytes_i8(w->scales[2 * b + 1]);
      add_scaled<SimdQ6_K, R, 0, 4>(hi, lo, *w, b, x, spread(s0));
      add_scaled<SimdQ6_K, R, 4, 4>(hi, lo, *w, b, x, spread(s1));
      const __m256i both = pairs16(s0, s1);  // takes off the 32 that each code has too much
      for (int r = 0; r < R; r++) {
        hi[r] = _mm256_sub_epi32(hi[r], _mm256_slli_epi32(_mm256_madd_epi16(both, broadcast4(x[r]->sum16[0] + 2 * b)), 5));
        lo[r] = _mm256_sub_epi32(lo[r], _mm256_slli_epi32(_mm256_madd_epi16(both, broadcast4(x[r]->sum16[1] + 2 * b)), 5));
      }
    }
    const __m256 d = scales_f16(w->d);
    for (int r = 0; r < R; r++) sums.add(r, _mm256_mul_ps(_mm256_mul_ps(d, joined(hi[r], lo[r])), _mm256_set1_ps(x[r]->d)));
    sums.next();
  }
  sums.store(out);
}

template <class F, int R>
static inline void dot_blocks(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  const typename F::Packed *w = reinterpret_cast<const typename F::Packed *>(group);
  const uint64_t n_super = (n_block + 7) / 8;
  Spans<R> sums(n_super);
  for (uint64_t sb = 0; sb < n_super; sb++) {
    const ActRow *x[R];
    __m256 a[R];
    for (int r = 0; r < R; r++) x[r] = act + uint64_t(r) * stride + sb, a[r] = _mm256_setzero_ps();
    const int n = n_block - 8 * sb < 8 ? int(n_block - 8 * sb) : 8;
    for (int b = 0; b < n; b++, w++) {
      __m256i hi[R], lo[R];
      for (int r = 0; r < R; r++) {  // takes off OFFSET, which each code has too much
        hi[r] = _mm256_set1_epi32(-F::OFFSET * x[r]->sum32[0][b]);
        lo[r] = _mm256_set1_epi32(-F::OFFSET * x[r]->sum32[1][b]);
      }
#pragma GCC unroll 8
      for (int first = 0; first < 8; first += F::FIT) {
        __m256i h[R], l[R];
        for (int r = 0; r < R; r++) h[r] = l[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int v = first; v < first + F::FIT; v++) {
          const __m256i c = F::codes(*w, v);
#pragma GCC unroll 4
          for (int r = 0; r < R; r++) {
            h[r] = dot_add(h[r], c, broadcast4(x[r]->hi + 32 * b + 4 * v));
            l[r] = dot_add(l[r], c, broadcast4(x[r]->lo + 32 * b + 4 * v));
          }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) hi[r] = _mm256_add_epi32(hi[r], summed(h[r])), lo[r] = _mm256_add_epi32(lo[r], summed(l[r]));
      }
      const __m256 d = scales_f16(w->d);
      for (int r = 0; r < R; r++) a[r] = _mm256_fmadd_ps(d, joined(hi[r], lo[r]), a[r]);
    }
    for (int r = 0; r < R; r++) sums.add(r, _mm256_mul_ps(a[r], _mm256_set1_ps(x[r]->d)));
    sums.next();
  }
  sums.store(out);
}

template <int R>
static void dot_q4_0(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_blocks<SimdQ4_0, R>(group, n_block, act, stride, out);
}

template <int R>
static void dot_q8_0(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_blocks<SimdQ8_0, R>(group, n_block, act, stride, out);
}

}  // namespace BL_ISA
}  // namespace bl
