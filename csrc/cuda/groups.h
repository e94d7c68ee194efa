// groups.h: POOL, and the weights of hyper-connections (SINKHORN).
#pragma once

#include "cache.h"

namespace bl::cuda {

struct PoolArgs {
  CacheStream k, z;  // of ratio 1
  CachePages table;
  const float *ape;  // [width, ratio] or nullptr
  float *y;          // [n, n_tok]
  uint32_t n, ratio;
  bool mean, overlap;
  const int32_t *positions, *seqs;
  RowCount rows;
};

void pool(const PoolArgs &args, Stream &s);

struct SinkhornArgs {
  const float *m;            // [n n + 2 n, R], dense
  const float *scale, *base; // [3], [n n + 2 n]
  float *pre, *post, *comb;  // [n, R], [n, R], [n, n, R]
  uint32_t n, iterations;
  float eps;
  RowCount rows;
};

void sinkhorn(const SinkhornArgs &args, Stream &s);

}  // namespace bl::cuda
