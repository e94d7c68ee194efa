// coded.h: weight rows as whole numbers, for the types that have no packed layout (packing.h): they stay as the file has them and are put
// together a row at a time. Every type is codes of a byte and, for each superblock of 256 values, scales of one of four forms:
//
//   scaled       w = d scale code             scale: a whole number for each 16 values
//   scaled_min   w = d scale code - dmin min  min: likewise
//   blocks       w = block_d code             block_d: a float for each 32 values
//   blocks_min   w = block_d code + block_m
//   blocks16     w = block_d code             block_d: a float for each 16 values
//
// Factors that a type's formula has besides are powers of two and are in d.
#pragma once

#include <cstdint>

#include "packing.h"

namespace bl {

enum class CodedForm { scaled, scaled_min, blocks, blocks_min, blocks16 };

// One superblock of one weight row. Codes and scales past the end of a row are 0.
struct alignas(64) Coded {
  int8_t code[SUPER];
  union {
    struct {
      int16_t scale[16], min[16];
      float d, dmin;
    };
    struct {
      float block_d[16], block_m[8];
    };
  };
};
static_assert(sizeof(Coded) == 384, "whole cache lines");

// Eight coded rows side by side, as packed groups are (packing.h): for many activation rows at a time.
struct GroupScaled {  // a superblock of scaled and scaled_min
  float d[8], dmin[8];
  int8_t scales[16][8];  // [group of 16 values][row]
  uint8_t mins[16][8];
  int8_t codes[64][32];  // [v]: values 4 v .. of each row
};
struct GroupBlock {  // 32 values of the others
  float d[2][8], m[8];  // d[1]: of the second 16 values, for blocks16
  int8_t codes[8][32];
};
constexpr uint64_t GROUP_BYTES = 8 * sizeof(GroupBlock);  // a superblock of either
static_assert(sizeof(GroupScaled) <= GROUP_BYTES, "room for a superblock");

// X(type, name, block struct, values of a block, form). Adding a type: a line here and its decoders in impl/coded_*.h.
#define BL_CODED_TYPES(X)                                \
  X(TYPE_Q1_0, q1_0, BlockQ1_0, 128, blocks)             \
  X(TYPE_Q2_0, q2_0, BlockQ2_0, 64, blocks)              \
  X(TYPE_Q4_1, q4_1, BlockQ4_1, 32, blocks_min)          \
  X(TYPE_Q5_0, q5_0, BlockQ5_0, 32, blocks)              \
  X(TYPE_Q5_1, q5_1, BlockQ5_1, 32, blocks_min)          \
  X(TYPE_Q2_K, q2_K, BlockQ2_K, 256, scaled_min)         \
  X(TYPE_Q3_K, q3_K, BlockQ3_K, 256, scaled)             \
  X(TYPE_TQ1_0, tq1_0, BlockTQ1_0, 256, scaled)          \
  X(TYPE_TQ2_0, tq2_0, BlockTQ2_0, 256, scaled)          \
  X(TYPE_IQ2_XXS, iq2_xxs, BlockIQ2_XXS, 256, scaled)    \
  X(TYPE_IQ2_XS, iq2_xs, BlockIQ2_XS, 256, scaled)       \
  X(TYPE_IQ2_S, iq2_s, BlockIQ2_S, 256, scaled)          \
  X(TYPE_IQ3_XXS, iq3_xxs, BlockIQ3_XXS, 256, scaled)    \
  X(TYPE_IQ3_S, iq3_s, BlockIQ3_S, 256, scaled)          \
  X(TYPE_IQ1_S, iq1_s, BlockIQ1_S, 256, scaled)          \
  X(TYPE_IQ1_M, iq1_m, BlockIQ1_M, 256, scaled)          \
  X(TYPE_IQ4_NL, iq4_nl, BlockIQ4_NL, 32, blocks)        \
  X(TYPE_IQ4_XS, iq4_xs, BlockIQ4_XS, 256, scaled)       \
  X(TYPE_MXFP4, mxfp4, BlockMXFP4, 32, blocks)           \
  X(TYPE_NVFP4, nvfp4, BlockNVFP4, 64, blocks16)

#define BL_CODED_NAME(type, name, Block, n, form) coded_##name,
enum CodedType : uint32_t { BL_CODED_TYPES(BL_CODED_NAME) N_CODED };
#undef BL_CODED_NAME

// The type's place in the tables of kernels; N_CODED for a type that is not among these.
inline uint32_t coded_type(uint32_t type) {
  switch (type) {
#define BL_CODED_CASE(type, name, Block, n, form) \
  case type: return coded_##name;
    BL_CODED_TYPES(BL_CODED_CASE)
#undef BL_CODED_CASE
    default: return N_CODED;
  }
}

}  // namespace bl
