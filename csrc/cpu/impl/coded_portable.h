// coded_portable.h: rows of blocks to codes, and codes times activation rows, in plain C++: the definition that coded_simd.h is equal to bit
// for bit. Layouts and formulas: ../../common/blocks.h and decode.h.
#pragma once

#include "coded_scales.h"

namespace bl {
namespace BL_ISA {

// Types of 256 values a block: decode(block, c). Small blocks: decode(block, at, c), for values from `at` of the superblock on.

static inline void nibbles(const uint8_t *qs, int at, Coded &c) {
  for (int j = 0; j < 16; j++) c.code[at + j] = int8_t(qs[j] & 15), c.code[at + j + 16] = int8_t(qs[j] >> 4);
}

static inline void look_up(const int8_t *table, int at, int n, Coded &c) {
  for (int i = at; i < at + n; i++) c.code[i] = table[c.code[i]];
}

static inline void codes_of(const BlockQ1_0 &b, int at, Coded &c) {
  for (int j = 0; j < 128; j++) c.code[at + j] = (b.qs[j >> 3] >> (j & 7)) & 1 ? 1 : -1;
}
static inline void codes_of(const BlockQ2_0 &b, int at, Coded &c) {
  for (int j = 0; j < 64; j++) c.code[at + j] = int8_t(((b.qs[j >> 2] >> (2 * (j & 3))) & 3) - 1);
}
static inline void codes_of(const BlockQ4_1 &b, int at, Coded &c) { nibbles(b.qs, at, c); }

static inline void fifth_bits(const uint8_t *qh, int at, Coded &c) {
  for (int j = 0; j < 32; j++) c.code[at + j] = int8_t(c.code[at + j] | ((qh[j / 8] >> (j % 8)) & 1) << 4);
}
static inline void codes_of(const BlockQ5_0 &b, int at, Coded &c) {
  nibbles(b.qs, at, c);
  fifth_bits(b.qh, at, c);
  for (int j = 0; j < 32; j++) c.code[at + j] = int8_t(c.code[at + j] - 16);
}
static inline void codes_of(const BlockQ5_1 &b, int at, Coded &c) {
  nibbles(b.qs, at, c);
  fifth_bits(b.qh, at, c);
}
static inline void codes_of(const BlockIQ4_NL &b, int at, Coded &c) {
  nibbles(b.qs, at, c);
  look_up(kvalues_iq4nl, at, 32, c);
}
static inline void codes_of(const BlockMXFP4 &b, int at, Coded &c) {
  nibbles(b.qs, at, c);
  look_up(kvalues_mxfp4, at, 32, c);
}
static inline void codes_of(const BlockNVFP4 &b, int at, Coded &c) {
  for (int s = 0; s < 4; s++)
    for (int j = 0; j < 8; j++) {
      c.code[at + 16 * s + j] = kvalues_mxfp4[b.qs[8 * s + j] & 15];
      c.code[at + 16 * s + j + 8] = kvalues_mxfp4[b.qs[8 * s + j] >> 4];
    }
}

// Two-bit codes of a superblock in planes, less `zero`.
static inline void planes(const uint8_t *qs, int zero, Coded &c) {
  for (int i = 0; i < 256; i++) c.code[i] = int8_t(((qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3) - zero);
}
static inline void codes_of(const BlockQ2_K &b, Coded &c) { planes(b.qs, 0, c); }
static inline void codes_of(const BlockQ3_K &b, Coded &c) {
  planes(b.qs, 4, c);
  for (int i = 0; i < 256; i++) c.code[i] = int8_t(c.code[i] + 4 * ((b.hmask[i % 32] >> (i / 32)) & 1));
}
static inline void codes_of(const BlockTQ2_0 &b, Coded &c) { planes(b.qs, 1, c); }
static inline void codes_of(const BlockTQ1_0 &b, Coded &c) {
  for (int k = 0; k < 5; k++) {
    for (int m = 0; m < 32; m++) c.code[32 * k + m] = int8_t(trit(b.qs[m], k) - 1);
    for (int m = 0; m < 16; m++) c.code[160 + 16 * k + m] = int8_t(trit(b.qs[32 + m], k) - 1);
  }
  last_trits(b, c);
}
static inline void codes_of(const BlockIQ4_XS &b, Coded &c) {
  for (int g = 0; g < 8; g++) nibbles(b.qs + 16 * g, 32 * g, c);
  look_up(kvalues_iq4nl, 0, 256, c);
}

// Four points of 8 codes each, and a sign for each code (bit set: negative).
static inline void put_signed(const uint64_t *points, uint32_t signs, int8_t *code) {
  for (int i = 0; i < 32; i++) {
    const int8_t v = int8_t(points[i / 8] >> (8 * (i % 8)));
    code[i] = (signs >> i) & 1 ? int8_t(-v) : v;
  }
}

// Four points of -1, 0 and 1 in eighths, shifted by one eighth: down where the bit of its 8 codes is set.
static inline void put_eighths(const uint64_t *points, uint32_t down, int8_t *code) {
  for (int i = 0; i < 32; i++) code[i] = int8_t(8 * int8_t(points[i / 8] >> (8 * (i % 8))) + ((down >> (i / 8)) & 1 ? -1 : 1));
}

template <CodedForm F, int R>
static void coded_dot(const Coded *w, uint64_t n_super, const ActRow *act, uint64_t stride, float *out) {
  const uint64_t span = span_length(n_super);
  for (int r = 0; r < R; r++) {
    float total = 0.0f, acc = 0.0f;
    for (uint64_t sb = 0; sb < n_super; sb++) {
      const Coded &c = w[sb];
      const ActRow &x = act[uint64_t(r) * stride + sb];
      int32_t h[16] = {}, l[16] = {};
      for (int i = 0; i < 256; i++) h[i / 16] += c.code[i] * x.hi[i], l[i / 16] += c.code[i] * x.lo[i];
      float value;
      if constexpr (F == CodedForm::scaled || F == CodedForm::scaled_min) {
        int32_t hi = 0, lo = 0, min_hi = 0, min_lo = 0;
        for (int j = 0; j < 16; j++) {
          hi += h[j] * c.scale[j], lo += l[j] * c.scale[j];
          if constexpr (F == CodedForm::scaled_min) min_hi += c.min[j] * x.sum16[0][j], min_lo += c.min[j] * x.sum16[1][j];
        }
        value = scaled_value<F>(c, hi, lo, min_hi, min_lo);
      } else {
        constexpr int N = F == CodedForm::blocks16 ? 16 : 8;
        float parts[N];
        for (int b = 0; b < N; b++) {
          if constexpr (N == 16) parts[b] = joined(h[b], l[b]);
          else parts[b] = joined(h[2 * b] + h[2 * b + 1], l[2 * b] + l[2 * b + 1]);
        }
        value = blocks_value<F>(c, parts, x);
      }
      acc += value * x.d;
      if ((sb + 1) % span == 0 || sb + 1 == n_super) total += acc, acc = 0.0f;
    }
    out[r] = total;
  }
}

}  // namespace BL_ISA
}  // namespace bl
