// logits.h: what is read off logits without sending them to the host.
#pragma once

#include "cuda.h"

namespace bl::cuda {

struct TopKArgs {
  const float *logits;  // [rows, n]
  uint32_t n, k;
  int32_t *ids;         // [rows, k]
  float *values;        // [rows, k]
  float *lse;           // [rows]
  uint64_t *scratch;    // top_k_scratch_bytes()
  RowCount rows;
};

constexpr uint32_t MAX_TOP_K = 1024;

uint64_t top_k_scratch_bytes(uint32_t n, uint32_t k, uint32_t rows);

// The k largest of each row, best first, ties to the lower index; log-sum-exp of the row.
void top_k(const TopKArgs &args, Stream &s);

struct TargetArgs {
  const float *logits, *lse;  // [rows, n], [rows]
  const int32_t *targets;     // [rows] or -1
  float *y;                   // [rows]: logits[target] - lse, 0 where there is no target
  uint32_t n;
  RowCount rows;
};

void target_logprob(const TargetArgs &args, Stream &s);

}  // namespace bl::cuda
