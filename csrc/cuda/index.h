// index.h: INDEX: the best visible rows, or blocks of rows, of a stream of keys.
#pragma once

#include "cache.h"

namespace bl::cuda {

struct IndexArgs {
  const float *q;             // [d, H, n_tok]
  uint64_t q_head, q_row;     // elements from head to head, from token to token
  const float *w;             // [H, n_tok] or nullptr
  uint64_t w_row;
  const int32_t *candidates;  // [n_candidate, n_tok] or nullptr
  uint32_t n_candidate, candidate_unit;
  CacheStream k;
  CachePages table;
  uint32_t d, n_head;
  float scale;
  uint32_t unit;
  bool pin;
  const int32_t *positions, *seqs;
  int32_t *ids;               // [n, n_tok]
  uint32_t n;
  uint32_t max_rows;          // of the longest sequence
  RowCount rows;              // tokens
  uint32_t *keys;             // index_scratch_bytes()
};

uint64_t index_scratch_bytes(const IndexArgs &args);

void index_rows(const IndexArgs &args, Stream &s);

}  // namespace bl::cuda
