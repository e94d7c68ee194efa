// coded_grids.h: codes of the types whose values are points of a grid: which points and which signs. put_signed() and put_eighths() are the
// instruction set's (coded_portable.h, coded_simd.h).
#pragma once

#include "coded_scales.h"

namespace bl {
namespace BL_ISA {

static inline uint32_t u32_at(const void *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

// Sign bits of 32 values from four indices of 7 bits.
static inline uint32_t signs_of(uint32_t word) {
  return uint32_t(ksigns[word & 127]) | uint32_t(ksigns[(word >> 7) & 127]) << 8 | uint32_t(ksigns[(word >> 14) & 127]) << 16 |
         uint32_t(ksigns[(word >> 21) & 127]) << 24;
}

static inline void codes_of(const BlockIQ2_XXS &b, Coded &c) {
  for (int g = 0; g < 8; g++) {
    const uint32_t index = u32_at(b.qs + 4 * g);
    const uint64_t points[4] = {points_iq2xxs[index & 255], points_iq2xxs[(index >> 8) & 255], points_iq2xxs[(index >> 16) & 255],
                                points_iq2xxs[index >> 24]};
    put_signed(points, signs_of(u32_at(b.qs + 4 * g + 2)), c.code + 32 * g);
  }
}

static inline void codes_of(const BlockIQ2_XS &b, Coded &c) {
  for (int g = 0; g < 8; g++) {
    uint64_t points[4];
    uint32_t signs = 0;
    for (int k = 0; k < 4; k++) {
      const uint32_t q = b.qs[4 * g + k];
      points[k] = points_iq2xs[q & 511];
      signs |= uint32_t(ksigns[q >> 9]) << (8 * k);
    }
    put_signed(points, signs, c.code + 32 * g);
  }
}

static inline void codes_of(const BlockIQ2_S &b, Coded &c) {
  for (int g = 0; g < 8; g++) {
    const uint32_t high = b.qh[g];
    uint64_t points[4];
    for (int k = 0; k < 4; k++) points[k] = points_iq2s[b.qs[4 * g + k] | ((high >> (2 * k)) & 3) << 8];
    put_signed(points, u32_at(b.signs + 4 * g), c.code + 32 * g);
  }
}

static inline void codes_of(const BlockIQ3_XXS &b, Coded &c) {
  for (int g = 0; g < 8; g++) {
    const uint8_t *q = b.qs + 8 * g;
    uint64_t points[4];
    for (int k = 0; k < 4; k++) points[k] = uint64_t(points_iq3xxs[q[2 * k]]) | uint64_t(points_iq3xxs[q[2 * k + 1]]) << 32;
    put_signed(points, signs_of(u32_at(b.sas + 4 * g)), c.code + 32 * g);
  }
}

static inline void codes_of(const BlockIQ3_S &b, Coded &c) {
  for (int g = 0; g < 8; g++) {
    const uint8_t *q = b.qs + 8 * g;
    const uint32_t high = b.qh[g];
    uint64_t points[4];
    for (int k = 0; k < 4; k++)
      points[k] = uint64_t(points_iq3s[q[2 * k] | ((high >> (2 * k)) & 1) << 8]) |
                  uint64_t(points_iq3s[q[2 * k + 1] | ((high >> (2 * k + 1)) & 1) << 8]) << 32;
    put_signed(points, u32_at(b.signs + 4 * g), c.code + 32 * g);
  }
}

static inline void codes_of(const BlockIQ1_S &b, Coded &c) {
  for (int g = 0; g < 8; g++) {
    const uint32_t high = b.qh[g];
    uint64_t points[4];
    for (int k = 0; k < 4; k++) points[k] = points_iq1s[b.qs[4 * g + k] | ((high >> (3 * k)) & 7) << 8];
    put_eighths(points, (high & 0x8000) != 0 ? 15 : 0, c.code + 32 * g);
  }
}

static inline void codes_of(const BlockIQ1_M &b, Coded &c) {
  for (int g = 0; g < 8; g++) {
    uint64_t points[4];
    uint32_t down = 0;
    for (int k = 0; k < 4; k++) {
      const uint32_t high = uint32_t(b.qh[2 * g + k / 2] >> (4 * (k % 2))) & 15;
      points[k] = points_iq1s[b.qs[4 * g + k] | (high & 7) << 8];
      down |= (high >> 3) << k;
    }
    put_eighths(points, down, c.code + 32 * g);
  }
}

// A row of n_in values to its superblocks.
template <class Block, uint32_t N>
static void coded_row(const uint8_t *row, uint64_t n_in, Coded *out) {
  const Block *b = reinterpret_cast<const Block *>(row);
  if constexpr (N == SUPER) {
    for (uint64_t i = 0; i < n_in / SUPER; i++) {
      codes_of(b[i], out[i]);
      scales_of(b[i], out[i]);
    }
  } else {
    for (uint64_t at = 0; at < n_in; at += N, b++) {
      Coded &c = out[at / SUPER];
      if (at % SUPER == 0 && n_in - at < SUPER) memset(&c, 0, sizeof c);
      codes_of(*b, int(at % SUPER), c);
      scales_of(*b, int(at % SUPER), c);
    }
  }
}

}  // namespace BL_ISA
}  // namespace bl
