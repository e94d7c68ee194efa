// dequantize.cpp: decodes rows of any tensor type on the host, and checks encoded data for values no reader could use.
#include "decode.h"
#include "quantize.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bl {
namespace {

template <class Block, class Fn>
void each_block(const void *src, float *dst, uint64_t n, uint32_t block, Fn decode) {
  const Block *b = static_cast<const Block *>(src);
  for (uint64_t i = 0; i < n / block; i++) decode(b[i], dst + i * block);
}

#if defined(__x86_64__)
// Halves eight at a time. The instruction makes a NaN quiet, decode_f16 does not: those are left to it. Returns how many are done.
__attribute__((target("avx2,f16c"))) uint64_t decode_halves(const uint8_t *src, float *dst, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 v = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(src + 2 * i)));
    if (_mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q))) break;
    _mm256_storeu_ps(dst + i, v);
  }
  return i;
}
#endif

inline bool bad_half(uint16_t h) { return (h & 0x7C00) == 0x7C00; }

// Counts the items for which bad(item) holds; *first = index of the first one, times `block`.
template <class Item, class Fn>
uint64_t count_bad(const void *data, uint64_t n_items, uint32_t block, uint64_t *first, Fn bad) {
  const Item *items = static_cast<const Item *>(data);
  constexpr uint64_t CHUNK = 4096;  // counted without branches; only a chunk with a hit is searched
  uint64_t total = 0;
  for (uint64_t at = 0; at < n_items; at += CHUNK) {
    const uint64_t end = at + CHUNK < n_items ? at + CHUNK : n_items;
    uint32_t count = 0;
    for (uint64_t i = at; i < end; i++) count += bad(items[i]) ? 1 : 0;
    if (count && total == 0) {
      uint64_t i = at;
      while (!bad(items[i])) i++;
      *first = i * block;
    }
    total += count;
  }
  return total;
}

// Single values, which may lie anywhere: a float of any format is infinite or NaN where all bits of its exponent are set.
template <class T>
uint64_t count_bad_bits(const void *data, uint64_t n, uint64_t *first, T exponent) {
  return count_bad<Unaligned<T>>(data, n, 1, first, [exponent](const Unaligned<T> &b) { return (b.value & exponent) == exponent; });
}

template <class Block>
uint64_t check_d(const void *data, uint64_t n, uint32_t block, uint64_t *first) {
  return count_bad<Block>(data, n / block, block, first, [](const Block &b) { return bad_half(b.d); });
}

}  // namespace

bool dequantize_row(uint32_t type, const void *src, float *dst, uint64_t n) {
  if (type == TYPE_F32) {
    memcpy(dst, src, n * 4);
    return true;
  }
#if defined(__x86_64__)
  static const bool has_halves = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (type == TYPE_F16 && has_halves) {
    const uint64_t done = decode_halves(static_cast<const uint8_t *>(src), dst, n);
    src = static_cast<const uint8_t *>(src) + 2 * done, dst += done, n -= done;
  }
#endif
  switch (type) {
#define BL_CASE(TYPE, BLOCK, SIZE, DECODE) \
  case TYPE: each_block<BLOCK>(src, dst, n, SIZE, [](const BLOCK &b, float *y) { DECODE(b, y); }); return true;
    BL_DECODERS(BL_CASE)
#undef BL_CASE
    default: return false;
  }
}

uint64_t check_rows(uint32_t type, const void *data, uint64_t n, uint64_t *first) {
  const auto bad_m = [](const auto &b) { return bad_half(b.d) || bad_half(b.m); };
  const auto bad_dmin = [](const auto &b) { return bad_half(b.d) || bad_half(b.dmin); };
  switch (type) {
    case TYPE_F32: return count_bad_bits<uint32_t>(data, n, first, 0x7F800000u);
    case TYPE_F16: return count_bad_bits<uint16_t>(data, n, first, 0x7C00);
    case TYPE_BF16: return count_bad_bits<uint16_t>(data, n, first, 0x7F80);
    case TYPE_F64: return count_bad_bits<uint64_t>(data, n, first, 0x7FF0000000000000u);
    case TYPE_Q1_0: return check_d<BlockQ1_0>(data, n, 128, first);
    case TYPE_Q2_0: return check_d<BlockQ2_0>(data, n, 64, first);
    case TYPE_Q4_0: return check_d<BlockQ4_0>(data, n, 32, first);
    case TYPE_Q4_1: return count_bad<BlockQ4_1>(data, n / 32, 32, first, bad_m);
    case TYPE_Q5_0: return check_d<BlockQ5_0>(data, n, 32, first);
    case TYPE_Q5_1: return count_bad<BlockQ5_1>(data, n / 32, 32, first, bad_m);
    case TYPE_Q8_0: return check_d<BlockQ8_0>(data, n, 32, first);
    case TYPE_Q2_K: return count_bad<BlockQ2_K>(data, n / 256, 256, first, bad_dmin);
    case TYPE_Q3_K: return check_d<BlockQ3_K>(data, n, 256, first);
    case TYPE_Q4_K: return count_bad<BlockQ4_K>(data, n / 256, 256, first, bad_dmin);
    case TYPE_Q5_K: return count_bad<BlockQ5_K>(data, n / 256, 256, first, bad_dmin);
    case TYPE_Q6_K: return check_d<BlockQ6_K>(data, n, 256, first);
    case TYPE_TQ1_0: return check_d<BlockTQ1_0>(data, n, 256, first);
    case TYPE_TQ2_0: return check_d<BlockTQ2_0>(data, n, 256, first);
    case TYPE_IQ2_XXS: return check_d<BlockIQ2_XXS>(data, n, 256, first);
    case TYPE_IQ2_XS: return check_d<BlockIQ2_XS>(data, n, 256, first);
    case TYPE_IQ2_S: return check_d<BlockIQ2_S>(data, n, 256, first);
    case TYPE_IQ3_XXS: return check_d<BlockIQ3_XXS>(data, n, 256, first);
    case TYPE_IQ3_S: return check_d<BlockIQ3_S>(data, n, 256, first);
    case TYPE_IQ1_S: return check_d<BlockIQ1_S>(data, n, 256, first);
    case TYPE_IQ1_M:
      return count_bad<BlockIQ1_M>(data, n / 256, 256, first, [](const BlockIQ1_M &b) {
        uint16_t sc[4];
        return bad_half(iq1_m_scale(b, sc));
      });
    case TYPE_IQ4_NL: return check_d<BlockIQ4_NL>(data, n, 32, first);
    case TYPE_IQ4_XS: return check_d<BlockIQ4_XS>(data, n, 256, first);
    case TYPE_MXFP4: return count_bad<BlockMXFP4>(data, n / 32, 32, first, [](const BlockMXFP4 &b) { return b.e == 255; });
    case TYPE_Q8_1:
    case TYPE_Q8_K:
    default: return 0;
  }
}

}  // namespace bl
