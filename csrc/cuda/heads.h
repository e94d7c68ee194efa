// heads.h: per-head norm, rotary position embedding and rows written to a cache, in any combination.
#pragma once

#include "cache.h"

namespace bl::cuda {

constexpr uint32_t MAX_HEAD_JOBS = 4;

// What is done to one tensor [head_dim, n_head, n_tok].
struct HeadJob {
  const float *x;
  uint64_t x_head, x_row;  // elements from head to head, from token to token
  uint32_t n_head, head_dim;
  const float *norm;       // [head_dim] weight of an RMS norm, or nullptr
  float eps;
  const float *inv_freq;   // [n_rot / 2], or nullptr: no rotation
  uint32_t rope_kind, n_rot, offset;
  bool inverse;
  int32_t shift;
  float mscale;
  float *y;                // f32 result, dense, or nullptr
  CacheStream cache;       // base != nullptr: the result goes to its position's row
  CachePages table;
};

struct HeadsArgs {
  HeadJob job[MAX_HEAD_JOBS];
  uint32_t n_job;
  const int32_t *positions, *seqs;
  RowCount rows;  // tokens
};

void heads_op(const HeadsArgs &args, Stream &s);

}  // namespace bl::cuda
