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
  gate,      // y = gate(a) b, of any other kind
};

struct RowsArgs {
  RowOp op;
  const float *a, *b;     // [rows, n]
  uint64_t a_row, b_row;  // elements from row to row: n where dense; b_row 0: one row for all
  bool unaligned;         // a or b: not every row begins at 16 bytes
  const float *w;         // [n] norm weight, or nullptr
  float eps;
  uint32_t gate_kind;
  float gate_a, gate_b;
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
