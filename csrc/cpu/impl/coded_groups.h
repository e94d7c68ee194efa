// coded_groups.h: eight coded rows put side by side (coded.h), with AVX2.
#pragma once

#include "../kernels.h"
#include "packed_dot_simd.h"

namespace bl {
namespace BL_ISA {

// dst[v]: bytes 4 v .. of each of 8 rows, for 32 bytes of each.
static inline void interleave32(const int8_t *const *row, int8_t (*dst)[32]) {
  __m256i v[8], t[8];
  for (int i = 0; i < 8; i++) v[i] = load_i(row[i]);
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {  // words 2 j and 2 j + 1 of each half, of rows 4 i ..
      v[4 * i + 2 * j] = _mm256_unpacklo_epi64(t[4 * i + j], t[4 * i + 2 + j]);
      v[4 * i + 2 * j + 1] = _mm256_unpackhi_epi64(t[4 * i + j], t[4 * i + 2 + j]);
    }
  for (int j = 0; j < 4; j++) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst[j]), _mm256_permute2x128_si256(v[j], v[4 + j], 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst[4 + j]), _mm256_permute2x128_si256(v[j], v[4 + j], 0x31));
  }
}

// n_rows <= 8 coded rows, `stride` superblocks apart; the others become zeros.   group: n_super times GROUP_BYTES
template <CodedForm F>
static void coded_group(const Coded *rows, uint64_t stride, uint32_t n_rows, uint64_t n_super, uint8_t *group) {
  static constexpr Coded none = {};
  for (uint64_t sb = 0; sb < n_super; sb++) {
    const Coded *c[8];
    const int8_t *codes[8];
    for (uint32_t r = 0; r < 8; r++) c[r] = r < n_rows ? rows + r * stride + sb : &none;
    for (int b = 0; b < 8; b++) {
      for (int r = 0; r < 8; r++) codes[r] = c[r]->code + 32 * b;
      if constexpr (F == CodedForm::scaled || F == CodedForm::scaled_min) {
        interleave32(codes, reinterpret_cast<GroupScaled *>(group)[sb].codes + 8 * b);
      } else {
        GroupBlock &g = reinterpret_cast<GroupBlock *>(group)[8 * sb + uint64_t(b)];
        interleave32(codes, g.codes);
        for (int r = 0; r < 8; r++) {
          g.d[0][r] = c[r]->block_d[F == CodedForm::blocks16 ? 2 * b : b];
          if constexpr (F == CodedForm::blocks16) g.d[1][r] = c[r]->block_d[2 * b + 1];
          if constexpr (F == CodedForm::blocks_min) g.m[r] = c[r]->block_m[b];
        }
      }
    }
    if constexpr (F == CodedForm::scaled || F == CodedForm::scaled_min) {
      GroupScaled &g = reinterpret_cast<GroupScaled *>(group)[sb];
      for (int r = 0; r < 8; r++) {
        g.d[r] = c[r]->d;
        for (int j = 0; j < 16; j++) g.scales[j][r] = int8_t(c[r]->scale[j]);
        if constexpr (F == CodedForm::scaled_min) {
          g.dmin[r] = c[r]->dmin;
          for (int j = 0; j < 16; j++) g.mins[j][r] = uint8_t(c[r]->min[j]);
        }
      }
    }
  }
}

}  // namespace BL_ISA
}  // namespace bl
