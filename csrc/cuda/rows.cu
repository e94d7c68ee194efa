// rows.cu: elementwise work and norms over rows, ending in f32 and in the encodings of packed.h.
//   a, b [rows, n] f32, rows at any distance · sum, y [rows, n] f32 · w [n]
// launch  norms: grid rows / R, block (32 W, R): W = min(16, superblocks of n) warps per row; R rows share a block when W is small;
//         others: grid (rows, superblocks / 4), a superblock per warp. Lane l of a warp holds values 8 l .. of its superblock, so that
//         loads are 16 bytes and encoding needs no exchange.
// bits    norm: per lane in order of k, then an xor tree over the lanes, then the warps in order; n alone decides
// floor   bytes of the operands over bandwidth; for one row a launch is all it costs
#include "encode.cuh"
#include "functions.cuh"
#include "rows.h"

namespace bl::cuda {

namespace {

constexpr uint32_t MAX_WARPS = 16;

// Values k .. k + 7 of a row; zero past n.
__device__ inline void load8f(const float *row, uint32_t k, uint32_t n, bool unaligned, float (&v)[8]) {
  if (k + 8 <= n && !unaligned) {
    const float4 lo = *reinterpret_cast<const float4 *>(row + k), hi = *reinterpret_cast<const float4 *>(row + k + 4);
    v[0] = lo.x, v[1] = lo.y, v[2] = lo.z, v[3] = lo.w, v[4] = hi.x, v[5] = hi.y, v[6] = hi.z, v[7] = hi.w;
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = k + i < n ? row[k + i] : 0.0f;
  }
}
__device__ inline void store8f(float *row, uint32_t k, uint32_t n, const float (&v)[8]) {
  if (k + 8 <= n && n % 4 == 0) {
    *reinterpret_cast<float4 *>(row + k) = make_float4(v[0], v[1], v[2], v[3]);
    *reinterpret_cast<float4 *>(row + k + 4) = make_float4(v[4], v[5], v[6], v[7]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (k + i < n) row[k + i] = v[i];
  }
}

template <RowOp OP>
__global__ void rows_kernel(const __grid_constant__ RowsArgs p) {
  __shared__ float partial[MAX_WARPS * MAX_WARPS];
  release();
  const int lane = threadIdx.x % WARP;
  const uint32_t n_warp = blockDim.x / WARP * gridDim.y;  // of the row, over all blocks (norms have one)
  const uint32_t warp = blockIdx.y * (blockDim.x / WARP) + threadIdx.x / WARP;
  const uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
  const uint32_t n_sb = ceil_div(p.n, SB);
  constexpr bool NORM = OP == RowOp::norm || OP == RowOp::add_norm;
  float weight[8];  // of the norm, for the warp's first superblock: weights do not change, so this need not wait for the grid before
  if constexpr (NORM)
    if (p.w != nullptr && warp < n_sb) load8f(p.w, warp * SB + lane * 8, p.n, p.n % 4 != 0, weight);
  const bool live = row < row_count(p.rows);
  const uint64_t src = live ? (p.gather != nullptr ? uint32_t(p.gather[row]) : row) : 0;
  depend();
  if constexpr (!NORM)
    if (!live) return;  // nobody waits in a barrier

  auto load = [&](uint32_t k, float (&v)[8]) {
    if (p.n_expert_used != 0) {
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = 0.0f;
      float r[8];
      if (p.residual != nullptr) load8f(p.residual + src * p.n, k, p.n, p.unaligned, r);
      constexpr uint32_t AT_ONCE = 4;  // asked for before the first is used
      for (uint32_t first = 0; first < p.n_expert_used; first += AT_ONCE) {
        float x[AT_ONCE][8], weight[AT_ONCE];
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) {
          const uint64_t e = src * p.n_expert_used + min(first + j, p.n_expert_used - 1);
          load8f(p.a + e * p.n, k, p.n, p.unaligned, x[j]);
          weight[j] = p.b[e];
        }
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++)
          if (first + j < p.n_expert_used)
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = __fmaf_rn(weight[j], x[j][i], v[i]);
      }
      if (p.residual != nullptr)
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = __fadd_rn(r[i], v[i]);
      return;
    }
    load8f(p.a + src * p.a_row, k, p.n, p.unaligned, v);
    if constexpr (OP == RowOp::add || OP == RowOp::add_norm) {
      float b[8];
      load8f(p.b + src * p.b_row, k, p.n, p.unaligned, b);
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = __fadd_rn(v[i], b[i]);
    }
    if constexpr (OP == RowOp::silu_mul || OP == RowOp::gate) {
      float b[8];
      load8f(p.b + src * p.b_row, k, p.n, p.unaligned, b);
#pragma unroll
      for (int i = 0; i < 8; i++)
        v[i] = OP == RowOp::gate ? gate(p.gate_kind, v[i], b[i], p.gate_a, p.gate_b) : __fmul_rn(silu(v[i]), b[i]);
    }
  };

  float first[8];  // the warp's first superblock stays in registers
  float factor = 1.0f;
  if constexpr (NORM) {
    float sum = 0.0f;
    if (live)
      for (uint32_t sb = warp; sb < n_sb; sb += n_warp) {
        float v[8];
        load(sb * SB + lane * 8, v);
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __fmaf_rn(v[i], v[i], sum);
        if (OP == RowOp::add_norm && p.sum != nullptr) store8f(p.sum + uint64_t(row) * p.n, sb * SB + lane * 8, p.n, v);
        if (sb == warp)
#pragma unroll
          for (int i = 0; i < 8; i++) first[i] = v[i];
      }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
    if (lane == 0) partial[threadIdx.y * n_warp + warp] = sum;
    __syncthreads();
    sum = 0.0f;
    for (uint32_t i = 0; i < n_warp; i++) sum = __fadd_rn(sum, partial[threadIdx.y * n_warp + i]);
    factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, float(p.n)), p.eps)));
    if (!live) return;
  }
  for (uint32_t sb = warp; sb < n_sb; sb += n_warp) {
    const uint32_t k = sb * SB + lane * 8;
    float v[8];
    if (NORM && sb == warp) {
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = first[i];
    } else {
      load(k, v);
    }
    if constexpr (NORM) {
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = __fmul_rn(v[i], factor);
      if (p.w != nullptr) {
        if (sb != warp) load8f(p.w, k, p.n, p.n % 4 != 0, weight);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = __fmul_rn(v[i], weight[i]);
      }
    }
    if (p.y != nullptr) store8f(p.y + uint64_t(row) * p.n, k, p.n, v);
    if (p.f16.values != nullptr) encode_whole(p.f16, row, sb, v, lane);
    if (p.bf16.values != nullptr) encode_bf16(p.bf16, row, sb, v, lane);
  }
}

}  // namespace

void row_op(const RowsArgs &args, Stream &s) {
  const uint32_t n_sb = ceil_div(args.n, SB);
  const uint32_t warps = n_sb < MAX_WARPS ? n_sb : MAX_WARPS;
  uint32_t rows = warps < 8 ? 8 / warps : 1;
  if (rows > args.rows.max) rows = args.rows.max;
  dim3 grid(ceil_div(args.rows.max, rows)), block(warps * WARP, rows);
  if (args.op != RowOp::norm && args.op != RowOp::add_norm && warps > 4) {  // nothing is summed over the row: spread it
    block.x = 4 * WARP;
    grid.y = ceil_div(n_sb, 4u);
  }
  switch (args.op) {
    case RowOp::copy: return launch("row copy", rows_kernel<RowOp::copy>, grid, block, 0, s, args);
    case RowOp::add: return launch("row add", rows_kernel<RowOp::add>, grid, block, 0, s, args);
    case RowOp::norm: return launch("row norm", rows_kernel<RowOp::norm>, grid, block, 0, s, args);
    case RowOp::add_norm: return launch("row add norm", rows_kernel<RowOp::add_norm>, grid, block, 0, s, args);
    case RowOp::silu_mul: return launch("row silu mul", rows_kernel<RowOp::silu_mul>, grid, block, 0, s, args);
    case RowOp::gate: return launch("row gate", rows_kernel<RowOp::gate>, grid, block, 0, s, args);
  }
}

}  // namespace bl::cuda
