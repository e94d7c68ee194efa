// lines.cu: norms, softmax and dot products over the first axis of any slice. Whole dense rows that products read next are normed by
// rows.cu, heads before rope by heads.cu: those encode or rotate on the way.
//   x [rows, n2, n1, n0] f32, y as x or repeated · z f32
// launch  grid lines / 4 of a warp each (n0 <= 1024), or a block of 256 a line; a line is read again for each pass over it
// bits    per thread in order of i0, an xor tree over the lanes, then the warps in order: n0 alone decides
// floor   bytes of the operands over bandwidth; for few rows a launch is all it costs
#include "../bloomery_ops.h"
#include "lines.h"

namespace bl::cuda {

namespace {

constexpr uint32_t WARP_LINE = 1024;  // the longest line of one warp
constexpr uint32_t LINES = 4;         // of a block, a warp each
constexpr uint32_t LONG_WARPS = 8;    // of a longer line

// Values of all threads of the line, the same in each of them.
template <uint32_t W, class F>
__device__ float reduce(float v, float *partial, F f) {
  for (int o = 16; o > 0; o >>= 1) v = f(v, __shfl_xor_sync(~0u, v, o));
  if constexpr (W > 1) {
    __syncthreads();  // whoever still reads the last one's
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = v;
    __syncthreads();
    v = partial[0];
    for (uint32_t i = 1; i < W; i++) v = f(v, partial[i]);
  }
  return v;
}

template <LineOp OP, uint32_t W>
__global__ __launch_bounds__((W == 1 ? LINES : W) * WARP) void line_kernel(const __grid_constant__ LineArgs p) {
  __shared__ float partial[LONG_WARPS];
  release();
  depend();
  const uint32_t t = W == 1 ? threadIdx.x % WARP : threadIdx.x, lines = p.ne[1] * p.ne[2];
  const uint64_t line = W == 1 ? uint64_t(blockIdx.x) * LINES + threadIdx.x / WARP : blockIdx.x;
  const uint64_t row = line / lines;
  if (row >= row_count(p.rows)) return;
  const uint32_t i1 = line % lines % p.ne[1], i2 = line % lines / p.ne[1], n = p.ne[0];
  const float *x = p.x.data + row * p.x.row + uint64_t(i1) * p.x.nb[1] + uint64_t(i2) * p.x.nb[2];
  const auto add = [](float a, float b) { return __fadd_rn(a, b); };
  const auto most = [](float a, float b) { return fmaxf(a, b); };

  if constexpr (OP == LineOp::dot) {
    const float *y = p.y.data + row * p.y.row + uint64_t(i1) * p.y.nb[1] + uint64_t(i2) * p.y.nb[2];
    float sum = 0.0f;
    for (uint32_t i = t; i < n; i += W * WARP) sum = __fmaf_rn(x[uint64_t(i) * p.x.nb[0]], y[uint64_t(i) * p.y.nb[0]], sum);
    sum = reduce<W>(sum, partial, add);
    if (t == 0) p.z[line] = sum;
  } else if constexpr (OP == LineOp::softmax) {
    float largest = -INFINITY, sum = 0.0f, *z = p.z + line * n;
    for (uint32_t i = t; i < n; i += W * WARP) largest = fmaxf(largest, x[uint64_t(i) * p.x.nb[0]]);
    largest = reduce<W>(largest, partial, most);
    for (uint32_t i = t; i < n; i += W * WARP) {
      const float e = expf(__fsub_rn(x[uint64_t(i) * p.x.nb[0]], largest));
      z[i] = e;
      sum = __fadd_rn(sum, e);
    }
    sum = reduce<W>(sum, partial, add);
    for (uint32_t i = t; i < n; i += W * WARP) z[i] = __fdiv_rn(z[i], sum);
  } else {
    float mean = 0.0f, squares = 0.0f, *z = p.z + line * n;
    if (p.kind == BL_NORM_LAYER) {
      for (uint32_t i = t; i < n; i += W * WARP) mean = __fadd_rn(mean, x[uint64_t(i) * p.x.nb[0]]);
      mean = __fdiv_rn(reduce<W>(mean, partial, add), float(n));
    }
    for (uint32_t i = t; i < n; i += W * WARP) {
      const float v = __fsub_rn(x[uint64_t(i) * p.x.nb[0]], mean);
      squares = __fmaf_rn(v, v, squares);
    }
    squares = reduce<W>(squares, partial, add);
    if (p.kind != BL_NORM_L2) squares = __fdiv_rn(squares, float(n));
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(squares, p.eps)));
    const float *w = p.w + uint64_t(i1) * p.w_line, *b = p.b + uint64_t(i1) * p.b_line;
    for (uint32_t i = t; i < n; i += W * WARP) {
      float v = __fmul_rn(__fsub_rn(x[uint64_t(i) * p.x.nb[0]], mean), factor);
      if (p.w != nullptr) v = __fmul_rn(v, w[i]);
      if (p.b != nullptr) v = __fadd_rn(v, b[i]);
      z[i] = v;
    }
  }
}

template <LineOp OP>
void launch_lines(const char *name, const LineArgs &args, Stream &s) {
  const uint64_t lines = uint64_t(args.rows.max) * args.ne[1] * args.ne[2];
  if (lines > INT32_MAX) fail(BL_ERR_UNSUPPORTED, "Cannot launch %s on cuda: %llu lines, at most 2^31 - 1", name, (unsigned long long)lines);
  if (args.ne[0] <= WARP_LINE) launch(name, line_kernel<OP, 1>, dim3(ceil_div(uint32_t(lines), LINES)), LINES * WARP, 0, s, args);
  else launch(name, line_kernel<OP, LONG_WARPS>, dim3(uint32_t(lines)), LONG_WARPS * WARP, 0, s, args);
}

}  // namespace

void line_op(const LineArgs &args, Stream &s) {
  switch (args.op) {
    case LineOp::norm: return launch_lines<LineOp::norm>("norm", args, s);
    case LineOp::softmax: return launch_lines<LineOp::softmax>("softmax", args, s);
    case LineOp::dot: return launch_lines<LineOp::dot>("dot", args, s);
  }
}

}  // namespace bl::cuda
