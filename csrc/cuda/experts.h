// experts.h: which experts a row meets, and the grouping of rows by expert.
#pragma once

#include "matmul.h"

namespace bl::cuda {

struct RouterArgs {
  const float *logits;   // [rows, n_expert]
  const float *bias;     // [n_expert] added for the choice alone, or nullptr
  const int32_t *given;  // [rows, k] experts: nothing is chosen; or nullptr
  int32_t *ids;          // [rows, k]
  float *weights;        // [rows, k]
  uint32_t n_expert, k, score;
  uint32_t n_group, n_group_used, group_top;  // n_group 1: no groups
  bool renorm;
  float sum_add, sum_min, scale;
  RowCount rows;
};

// The k best experts of each row, best first, ties to the lower index, and their weights (ROUTER of ../ops.def).
void router(const RouterArgs &args, Stream &s);

struct GroupArgs {
  const int32_t *ids;  // [pairs] expert of each pair
  RowCount pairs;
  uint32_t n_expert, tile_columns;
  int32_t *order;      // [pairs.max] pairs by expert
  ExpertTile *tiles;   // [group_max_tiles()]
  int32_t *n_tiles;
};

inline uint32_t group_max_tiles(uint32_t pairs, uint32_t n_expert, uint32_t columns) {
  return pairs / columns + (n_expert < pairs ? n_expert : pairs);
}

// Orders the pairs by expert and cuts each expert's run into tiles, on the card.
void group_by_expert(const GroupArgs &args, Stream &s);

}  // namespace bl::cuda
