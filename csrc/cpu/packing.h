// packing.h: how matmul weights and quantized activations lie in memory. One layout for every instruction set.
//
// Weights of the block types are packed in groups of 8 output rows, so that vector lanes are output rows: the codes of the 8 rows are
// interleaved in words of 4 bytes (one vector of 32 bytes = 4 code bytes of each row), scales as 8 neighbours. Bytes of codes stay
// as the file has them; 6-bit scales become bytes. A last group is filled up with rows of zeros.
//
//   Q4_0    per 32 values   d f16[8] · qs u32[4][8]                                                        144 B (file: 144)
//   Q8_0    per 32 values   d f16[8] · qs u32[8][8]                                                        272 B (file: 272)
//   Q4_K    per 256 values  d f16[8], dmin f16[8] · scales u8[8][8] · mins u8[8][8] · qs u32[32][8]       1184 B (file: 1152)
//   Q5_K    per 256 values  as Q4_K · qh u32[8][8] · qs                                                   1440 B (file: 1408)
//   Q6_K    per 256 values  d f16[8] · scales i8[16][8] · qh u32[16][8] · ql u32[32][8]                   1680 B (file: 1680)
#pragma once

#include <cstddef>
#include <cstdint>

#include "../common/blocks.h"

namespace bl {

constexpr uint32_t GROUP = 8;    // output rows of a packed group
constexpr uint32_t TILE = 4;     // activation rows that one kernel call takes at most

// The number of the packed forms, as files keep them: another one whenever a form below changes.
constexpr uint32_t PACK_LAYOUT = 1;

enum class Layout : uint32_t { rows, q4_0, q8_0, q4_K, q5_K, q6_K };  // rows: as in the file, row by row
constexpr uint32_t N_PACKED = 5;

#pragma pack(push, 1)
struct PackedQ4_0 {
  uint16_t d[8];
  uint8_t qs[4][32];
};
struct PackedQ8_0 {
  uint16_t d[8];
  int8_t qs[8][32];
};
struct PackedQ4_K {
  uint16_t d[8], dmin[8];
  uint8_t scales[8][8], mins[8][8];  // [group of 32 values][row]
  uint8_t qs[32][32];                // [8 p + v]: bytes 32 p + 4 v .. of each row
};
struct PackedQ5_K {
  uint16_t d[8], dmin[8];
  uint8_t scales[8][8], mins[8][8];
  uint8_t qh[8][32];
  uint8_t qs[32][32];
};
struct PackedQ6_K {
  uint16_t d[8];
  int8_t scales[16][8];  // [group of 16 values][row]
  uint8_t qh[16][32];
  uint8_t ql[32][32];
};
#pragma pack(pop)

static_assert(sizeof(PackedQ4_K) == 1184 && sizeof(PackedQ5_K) == 1440 && sizeof(PackedQ6_K) == 1680, "packed superblocks");

struct LayoutInfo {
  uint32_t block;  // values of a row in one packed block
  uint32_t bytes;  // of a packed block (8 rows)
};

inline LayoutInfo layout_info(Layout l) {
  switch (l) {
    case Layout::q4_0: return {32, sizeof(PackedQ4_0)};
    case Layout::q8_0: return {32, sizeof(PackedQ8_0)};
    case Layout::q4_K: return {256, sizeof(PackedQ4_K)};
    case Layout::q5_K: return {256, sizeof(PackedQ5_K)};
    case Layout::q6_K: return {256, sizeof(PackedQ6_K)};
    default: return {1, 0};
  }
}

// The layout a type's matmul weights get.
Layout layout_of(uint32_t type);

// Packs one group of n_rows <= 8 rows of n_in values.   rows: the first row in the file's layout, row_bytes apart
void pack_group(Layout layout, const uint8_t *rows, uint64_t row_bytes, uint32_t n_rows, uint64_t n_in, uint8_t *group);

// Activation rows as 14-bit integers: for each superblock of 256 values (the last filled up with zeros) one record. x = d q,
// q = 128 hi + lo with hi in [-64, 64], lo in [-64, 63], so that a product with codes is two products of bytes.
constexpr uint32_t SUPER = 256;

struct alignas(64) ActRow {
  int8_t hi[SUPER], lo[SUPER];
  int16_t sum16[2][16];  // sums of hi, of lo, over each 16 values
  int16_t sum32[2][8];   // over each 32
  float d;
  uint8_t pad[28];
};
static_assert(sizeof(ActRow) == 640, "records are whole cache lines");

inline uint64_t act_records(uint64_t n_in) { return (n_in + SUPER - 1) / SUPER; }

// Superblock values of a row are added in four spans of equal length, in order, and then the spans in order: so that a product may be
// split along k without another sum. The span's length is a function of the row's length alone.
inline uint64_t span_length(uint64_t n_super) { return (n_super + 3) / 4; }

}  // namespace bl
