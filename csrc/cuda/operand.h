// operand.h: an operand of an op as the general kernels read it: any slice, and any axis repeated.
#pragma once

#include "cuda.h"

namespace bl::cuda {

// Element (i0, i1, i2) of row r lies at i0 nb0 + i1 nb1 + i2 nb2 + r row. A step of 0 repeats what lies there.
struct Operand {
  const float *data = nullptr;
  uint32_t nb[3] = {1, 0, 0};
  uint64_t row = 0;
};

// Where a result goes: dense, or (CONCAT) a part of something dense.
struct Result {
  float *data = nullptr;
  uint32_t ne[3] = {1, 1, 1};
  uint32_t nb[3] = {1, 0, 0};
  uint64_t row = 0;
};

#if defined(__CUDACC__)
// Element `e` of a row of `ne` elements, as its three indices.
struct Indices {
  uint32_t i0, i1, i2;
  __device__ Indices(uint32_t e, const uint32_t (&ne)[3]) {
    i0 = e % ne[0];
    const uint32_t line = e / ne[0];
    i1 = line % ne[1], i2 = line / ne[1];
  }
  __device__ uint64_t at(const uint32_t (&nb)[3]) const { return uint64_t(i0) * nb[0] + uint64_t(i1) * nb[1] + uint64_t(i2) * nb[2]; }
};
#endif

}  // namespace bl::cuda
