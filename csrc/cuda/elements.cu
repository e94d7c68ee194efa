// elements.cu: element by element over slices, and sums of a few vectors (MIX).
//   x, y: any slices, f32 (copy: any 4-byte numbers) · z [rows, n2, n1, n0] f32, or a part of each of its rows (CONCAT)
// launch  grid (elements of a row / 256, rows), block 256
// bits    an element's result depends on its operands alone; MIX: one chain of multiply-adds from 0, j ascending
// floor   bytes of the operands over bandwidth; for few rows a launch is all it costs
#include "elements.h"
#include "functions.cuh"

namespace bl::cuda {

namespace {

constexpr uint32_t BLOCK = 256;

template <ElementOp OP>
__global__ __launch_bounds__(BLOCK) void element_kernel(const __grid_constant__ ElementArgs p) {
  release();
  depend();
  const uint32_t row = blockIdx.y, e = blockIdx.x * BLOCK + threadIdx.x;
  if (row >= row_count(p.rows) || e >= p.z.ne[0] * p.z.ne[1] * p.z.ne[2]) return;
  const Indices i(e, p.z.ne);
  float *z = p.z.data + row * p.z.row + i.at(p.z.nb);
  const float *x = p.x.data + row * p.x.row + i.at(p.x.nb);
  if constexpr (OP == ElementOp::copy) {
    *reinterpret_cast<uint32_t *>(z) = *reinterpret_cast<const uint32_t *>(x);  // numbers of any kind
  } else if constexpr (OP == ElementOp::unary) {
    *z = unary(p.kind, *x, p.a, p.b);
  } else {
    const float y = p.y.data[row * p.y.row + i.at(p.y.nb)];
    if constexpr (OP == ElementOp::add) *z = __fadd_rn(*x, y);
    if constexpr (OP == ElementOp::mul) *z = __fmul_rn(*x, y);
    if constexpr (OP == ElementOp::gate) *z = gate(p.kind, *x, y, p.a, p.b);
  }
}

__global__ __launch_bounds__(BLOCK) void mix_kernel(const __grid_constant__ MixArgs p) {
  release();
  depend();
  const uint32_t row = blockIdx.y, e = blockIdx.x * BLOCK + threadIdx.x;
  if (row >= row_count(p.rows) || e >= p.n * p.M) return;
  const uint32_t i = e % p.n, m = e / p.n;
  const float *x = p.x.data + row * p.x.row + uint64_t(i) * p.x.nb[0];
  const float *w = p.w.data + row * p.w.row + uint64_t(m) * p.w.nb[1];
  float sum = 0.0f;
  for (uint32_t j = 0; j < p.J; j++) sum = __fmaf_rn(w[uint64_t(j) * p.w.nb[0]], x[uint64_t(j) * p.x.nb[1]], sum);
  p.y[uint64_t(row) * p.n * p.M + e] = sum;
}

}  // namespace

void element_op(const ElementArgs &args, Stream &s) {
  const dim3 grid(ceil_div(args.z.ne[0] * args.z.ne[1] * args.z.ne[2], BLOCK), args.rows.max);
  switch (args.op) {
    case ElementOp::copy: return launch("copy", element_kernel<ElementOp::copy>, grid, BLOCK, 0, s, args);
    case ElementOp::add: return launch("add", element_kernel<ElementOp::add>, grid, BLOCK, 0, s, args);
    case ElementOp::mul: return launch("mul", element_kernel<ElementOp::mul>, grid, BLOCK, 0, s, args);
    case ElementOp::unary: return launch("unary", element_kernel<ElementOp::unary>, grid, BLOCK, 0, s, args);
    case ElementOp::gate: return launch("gate", element_kernel<ElementOp::gate>, grid, BLOCK, 0, s, args);
  }
}

void mix(const MixArgs &args, Stream &s) {
  launch("mix", mix_kernel, dim3(ceil_div(args.n * args.M, BLOCK), args.rows.max), BLOCK, 0, s, args);
}

}  // namespace bl::cuda
