// lookahead.h: the part of a program that chooses a layer's experts, cut out so that it can run on another residual than its own: on that
// of the layer before, while that layer is computed. What it gives is a guess of what to read, and no part of any answer.
#pragma once

#include <vector>

#include "../runtime/program.h"
#include "tensor.h"

namespace bl {

// The ops from the norm that a router reads from to the router, as a program of its own.
struct RouterSlice {
  Program program;
  uint32_t source, ids;  // tensors of the program: the rows to norm, the experts of each row
};

// One guess in a program.
struct Lookahead {
  size_t after;             // op of the program behind which the guess is made; the first product of a layer's experts: once its reads are asked for
  uint32_t from;            // tensor of the program whose rows stand for the source's
  const CpuTensor *weight;  // the first routed weight of the layer that is guessed: a PooledTensor
  bool more;                // a second guess, of a residual that is nearer
  RouterSlice slice;
};

// Guesses for the layers of a program whose experts are in pools: one for each that has such a layer before it and a router of ops that
// work on rows (a norm, products, sums and products with weights), two where the layer before ends in a sum.
std::vector<Lookahead> find_lookaheads(const Program &program, const std::vector<const CpuTensor *> &weights);

}  // namespace bl
