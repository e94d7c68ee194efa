// packed_dot_portable.h: R encoded activation rows against 8 packed output rows, in plain C++: the definition that packed_dot_simd.h and
// packed_many_amx.h are equal to bit for bit, and the path of CPUs without AVX2.
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

// Two exact sums, of products with the high and with the low bytes of a row, as one number: one rounding.
static inline float joined(int32_t hi, int32_t lo) { return fma1(float(hi), 128.0f, float(lo)); }

// Each type: code(w, sb, b, i, row), the code of value i of block b of superblock sb.

template <class Packed>
struct NibbleK {
  static int code(const Packed &w, int b, int i, int row) {
    const uint8_t byte = w.qs[8 * (b / 2) + i / 4][4 * row + i % 4];
    return b % 2 == 0 ? byte & 15 : byte >> 4;
  }
};
struct CodeQ4_K : NibbleK<PackedQ4_K> {};
struct CodeQ5_K {
  static int code(const PackedQ5_K &w, int b, int i, int row) {
    return NibbleK<PackedQ5_K>::code(w, b, i, row) | (((w.qh[i / 4][4 * row + i % 4] >> b) & 1) << 4);
  }
};
struct CodeQ6_K {
  static int code(const PackedQ6_K &w, int b, int i, int row) {
    const int half = b / 4, j = b % 2, high = (b % 4) / 2, at = 4 * row + i % 4;
    const uint8_t byte = w.ql[16 * half + 8 * j + i / 4][at];
    return ((high == 0 ? byte & 15 : byte >> 4) | (((w.qh[8 * half + i / 4][at] >> (2 * j + 4 * high)) & 3) << 4)) - 32;
  }
};
struct CodeQ4_0 {
  static int code(const PackedQ4_0 &w, int i, int row) {
    const uint8_t byte = w.qs[i / 4 % 4][4 * row + i % 4];
    return (i < 16 ? byte & 15 : byte >> 4) - 8;
  }
};
struct CodeQ8_0 {
  static int code(const PackedQ8_0 &w, int i, int row) { return w.qs[i / 4][4 * row + i % 4]; }
};

// value(sb, row, act record) over the superblocks, in spans.
template <int R, class Value>
static inline void add_supers(uint64_t n_super, const ActRow *act, uint64_t stride, float *out, const Value &value) {
  const uint64_t span = span_length(n_super);
  for (int r = 0; r < R; r++)
    for (int row = 0; row < 8; row++) {
      float total = 0.0f, acc = 0.0f;
      for (uint64_t sb = 0; sb < n_super; sb++) {
        acc += value(sb, row, act[uint64_t(r) * stride + sb]);
        if ((sb + 1) % span == 0 || sb + 1 == n_super) total += acc, acc = 0.0f;
      }
      out[8 * r + row] = total;
    }
}

template <int R, class Packed, class Code>
static inline void dot_k45(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  const Packed *w = reinterpret_cast<const Packed *>(group);
  add_supers<R>(n_block, act, stride, out, [&](uint64_t sb, int row, const ActRow &x) {
    int32_t hi = 0, lo = 0, min_hi = 0, min_lo = 0;
    for (int b = 0; b < 8; b++) {
      int32_t h = 0, l = 0;
      for (int i = 0; i < 32; i++) {
        const int c = Code::code(w[sb], b, i, row);
        h += c * x.hi[32 * b + i], l += c * x.lo[32 * b + i];
      }
      hi += h * w[sb].scales[b][row], lo += l * w[sb].scales[b][row];
      min_hi += w[sb].mins[b][row] * x.sum32[0][b], min_lo += w[sb].mins[b][row] * x.sum32[1][b];
    }
    const float least = f16_to_f32(w[sb].dmin[row]) * joined(min_hi, min_lo);
    return fma1(f16_to_f32(w[sb].d[row]), joined(hi, lo), -least) * x.d;
  });
}

template <int R>
static void dot_q4_K(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_k45<R, PackedQ4_K, CodeQ4_K>(group, n_block, act, stride, out);
}

template <int R>
static void dot_q5_K(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_k45<R, PackedQ5_K, CodeQ5_K>(group, n_block, act, stride, out);
}

template <int R>
static void dot_q6_K(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  const PackedQ6_K *w = reinterpret_cast<const PackedQ6_K *>(group);
  add_supers<R>(n_block, act, stride, out, [&](uint64_t sb, int row, const ActRow &x) {
    int32_t hi = 0, lo = 0;
    for (int g = 0; g < 16; g++) {
      int32_t h = 0, l = 0;
      for (int i = 0; i < 16; i++) {
        const int c = CodeQ6_K::code(w[sb], g / 2, 16 * (g % 2) + i, row);
        h += c * x.hi[16 * g + i], l += c * x.lo[16 * g + i];
      }
      hi += h * w[sb].scales[g][row], lo += l * w[sb].scales[g][row];
    }
    return f16_to_f32(w[sb].d[row]) * joined(hi, lo) * x.d;
  });
}

// A scale for each 32 values; the last superblock may have fewer than 8 blocks.
template <int R, class Packed, class Code>
static inline void dot_blocks(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  const Packed *w = reinterpret_cast<const Packed *>(group);
  add_supers<R>((n_block + 7) / 8, act, stride, out, [&](uint64_t sb, int row, const ActRow &x) {
    float a = 0.0f;
    for (uint64_t b = 0; b < 8 && 8 * sb + b < n_block; b++) {
      int32_t h = 0, l = 0;
      for (int i = 0; i < 32; i++) {
        const int c = Code::code(w[8 * sb + b], i, row);
        h += c * x.hi[32 * b + i], l += c * x.lo[32 * b + i];
      }
      a = fma1(f16_to_f32(w[8 * sb + b].d[row]), joined(h, l), a);
    }
    return a * x.d;
  });
}

template <int R>
static void dot_q4_0(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_blocks<R, PackedQ4_0, CodeQ4_0>(group, n_block, act, stride, out);
}

template <int R>
static void dot_q8_0(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out) {
  dot_blocks<R, PackedQ8_0, CodeQ8_0>(group, n_block, act, stride, out);
}

}  // namespace BL_ISA
}  // namespace bl
