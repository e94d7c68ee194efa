// lines.h: sums over the first axis of any slice: NORM of every kind, SOFTMAX, DOT.
#pragma once

#include "operand.h"

namespace bl::cuda {

enum class LineOp : uint32_t { norm, softmax, dot };

struct LineArgs {
  LineOp op;
  uint32_t kind;             // of norm
  float eps;
  Operand x, y;              // y: the other factor of dot
  const float *w, *b;        // of norm, or nullptr
  uint32_t w_line, b_line;   // elements from the vector of i1 to the next; 0: one for all
  uint32_t ne[3];            // of x before its rows
  float *z;                  // [rows, n2, n1, n0], dot: [rows, n2, n1]
  RowCount rows;
};

void line_op(const LineArgs &args, Stream &s);

}  // namespace bl::cuda
