// matmul.h: y = W x for packed weights and encoded rows, dense and routed.
#pragma once

#include "whole.h"

namespace bl::cuda {

constexpr uint32_t MAX_PARTS = 4;

// One weight of a launch; all of them read the same rows.
struct MatmulPart {
  const uint8_t *w;         // packed
  float *y;                 // [rows, n_out] f32, overwritten
  uint32_t type;
  uint32_t n_out;
  uint64_t expert_bytes;    // routed: from one expert to the next
  Kind kind;                // of quantized types
  Form form;
  uint4 table;              // the values of a T4 code
};

MatmulPart matmul_part(const uint8_t *w, float *y, uint32_t type, uint32_t n_out, uint64_t expert_bytes);

// A run of rows that meet the same expert.
struct ExpertTile {
  int32_t expert, begin, count;  // rows order[begin .. begin + count)
};

struct MatmulArgs {
  MatmulPart part[MAX_PARTS];
  uint32_t n_part;
  uint32_t n_in;
  Encoded x;
  RowCount rows;  // of y; routed: pairs (token, slot)

  // Routed only.
  const int32_t *ids;        // [rows] expert of each pair; nullptr for dense
  uint32_t pairs_per_x;      // pairs that read the same row of x: 1, or the experts per token
  const ExpertTile *tiles;   // matmul_many: the grouped pairs
  const int32_t *n_tiles;
  const int32_t *order;
  uint32_t max_tiles;
  uint32_t tile_columns;     // the most pairs of a tile: expert_tile_columns()
};

// The most rows matmul_few takes (dense), and the most pairs it takes one by one (routed).
constexpr uint32_t FEW_ROWS = 8;
constexpr uint32_t FEW_PAIRS = 64;

// Columns of a routed tile of matmul_many for a bucket of `pairs` over `n_expert` experts.
uint32_t expert_tile_columns(uint32_t pairs, uint32_t n_expert, bool floats);

// Few rows (decode): superblocks of k are spread over warps. Parts may have different types that go together.
void matmul_few(const MatmulArgs &args, uint32_t n_sm, Stream &s);
bool few_together(uint32_t type, uint32_t other);

// Many rows (prompts): blocks of 64 or 128 features by 32 or 128 rows. All parts have one type.
void matmul_many(const MatmulArgs &args, Stream &s);
void matmul_many_float(const MatmulArgs &args, Stream &s);  // the float types' half of it, compiled apart
void matmul_many_k16(const MatmulArgs &args, Stream &s);    // and that of types with a whole scale for 16 values
void matmul_many_blocks(const MatmulArgs &args, Stream &s); // of types with floats for each block

}  // namespace bl::cuda
