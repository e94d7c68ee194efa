// rows.h: what is done to whole rows between matrix products, with the encodings their readers want made on the way.
#pragma once

#include "packed.h"

namespace bl::cuda {

enum class RowOp : uint32_t {
  copy,      // y = a
  add,       // y = a + b
  norm,      // y = rms_norm(a) w
  add_norm,  // sum = a + b, y = rms_norm(sum) w
  silu_mul,  // y = silu(a) b
};

struct RowsArgs {
  RowOp op;
  const float *a, *b;     // [rows, n]; b [n] when b_is_row
  bool b_is_row;
  const float *w;         // [n] norm weight
  float eps;
  float *sum, *y;         // [rows, n] or nullptr: not wanted
  Encoded f16, bf16;      // of y; values == nullptr: not wanted
  uint32_t n;
  RowCount rows;
  const int32_t *gather;  // rows of a by index, or nullptr
  // Routed sum, when not 0: a is [rows, k, n] and b the weights [rows, k]; what the op sees is their sum over k in order, added to
  // residual [rows, n] if there is one (op copy or add_norm).
  uint32_t n_expert_used;
  const float *residual;
};

void row_op(const RowsArgs &args, Stream &s);

}  // namespace bl::cuda
