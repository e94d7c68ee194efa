// elements.h: what is done element by element, over any slices and with repeated axes: ADD, MUL, UNARY, GATE, COPY, CONCAT, MIX.
#pragma once

#include "operand.h"

namespace bl::cuda {

enum class ElementOp : uint32_t { copy, add, mul, unary, gate };

struct ElementArgs {
  ElementOp op;
  uint32_t kind;  // of unary and gate, with their parameters
  float a, b;
  Operand x, y;   // y: of add, mul and gate
  Result z;
  RowCount rows;
};

void element_op(const ElementArgs &args, Stream &s);

struct MixArgs {
  Operand x;  // [n, J]
  Operand w;  // [J, M]
  uint32_t n, J, M;
  float *y;   // [rows, M, n]
  RowCount rows;
};

// y[:, m] = sum over j ascending of w[j, m] x[:, j].
void mix(const MixArgs &args, Stream &s);

}  // namespace bl::cuda
