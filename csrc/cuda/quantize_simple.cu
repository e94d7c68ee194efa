// quantize_simple.cu: floats, the small blocks, the ternary types, 4-bit floats and iq4 on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_iq4.h"

namespace bl::cuda {
namespace {

using namespace lanes_cuda;

template <uint32_t TYPE>
__device__ bool encode_piece(const Piece &p) {
  switch (TYPE) {
    case TYPE_F32: return encode_f32(p.x, p.n, p.weights, p.dst);
    case TYPE_F16: return encode_f16(p.x, p.n, p.weights, p.dst);
    case TYPE_BF16: return encode_bf16(p.x, p.n, p.weights, p.dst);
    case TYPE_Q1_0: return encode_q1_0(p.x, p.n, p.weights, p.dst);
    case TYPE_Q2_0: return encode_q2_0(p.x, p.n, p.weights, p.dst);
    case TYPE_Q4_0: return encode_symmetric_type<BlockQ4_0, 8>(p.x, p.n, p.weights, p.mean_square, p.dst);
    case TYPE_Q4_1: return encode_affine_type<BlockQ4_1, 15>(p.x, p.n, p.weights, p.mean_square, p.dst);
    case TYPE_Q5_0: return encode_symmetric_type<BlockQ5_0, 16>(p.x, p.n, p.weights, p.mean_square, p.dst);
    case TYPE_Q5_1: return encode_affine_type<BlockQ5_1, 31>(p.x, p.n, p.weights, p.mean_square, p.dst);
    case TYPE_Q8_0: return encode_q8_0(p.x, p.n, p.weights, p.dst);
    case TYPE_TQ1_0: return encode_tq1_0(p.x, p.n, p.weights, p.dst);
    case TYPE_TQ2_0: return encode_tq2_0(p.x, p.n, p.weights, p.dst);
    case TYPE_MXFP4: return encode_mxfp4(p.x, p.n, p.weights, p.dst);
    case TYPE_NVFP4: return encode_nvfp4(p.x, p.n, p.weights, p.dst);
    case TYPE_IQ4_NL: return encode_iq4_nl(p.x, p.n, p.weights, p.dst);
    case TYPE_IQ4_XS: return encode_iq4_xs(p.x, p.n, p.weights, p.dst);
  }
  return false;
}

__global__ void mean_square_kernel(const float *x, uint64_t n_rows, uint64_t n_per_row, float *out) {
  const uint64_t row = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row < n_rows) out[row] = mean_square(x + row * n_per_row, n_per_row);
}

}  // namespace

void row_mean_squares(const float *x, uint64_t n_rows, uint64_t n_per_row, float *out, cudaStream_t stream) {
  mean_square_kernel<<<uint32_t(ceil_div<uint64_t>(n_rows, 32)), 32, 0, stream>>>(x, n_rows, n_per_row, out);
  check(cudaGetLastError(), "mean_square_kernel");
}

bool encode_simple(uint32_t type, const EncodeJob &job, cudaStream_t stream) {
  switch (type) {
    BL_ENCODE_CASE(TYPE_F32, float, 1)
    BL_ENCODE_CASE(TYPE_F16, uint16_t, 1)
    BL_ENCODE_CASE(TYPE_BF16, uint16_t, 1)
    BL_ENCODE_CASE(TYPE_Q1_0, BlockQ1_0, 128)
    BL_ENCODE_CASE(TYPE_Q2_0, BlockQ2_0, 64)
    BL_ENCODE_CASE(TYPE_Q4_0, BlockQ4_0, 32)
    BL_ENCODE_CASE(TYPE_Q4_1, BlockQ4_1, 32)
    BL_ENCODE_CASE(TYPE_Q5_0, BlockQ5_0, 32)
    BL_ENCODE_CASE(TYPE_Q5_1, BlockQ5_1, 32)
    BL_ENCODE_CASE(TYPE_Q8_0, BlockQ8_0, 32)
    BL_ENCODE_CASE(TYPE_TQ1_0, BlockTQ1_0, 256)
    BL_ENCODE_CASE(TYPE_TQ2_0, BlockTQ2_0, 256)
    BL_ENCODE_CASE(TYPE_MXFP4, BlockMXFP4, 32)
    BL_ENCODE_CASE(TYPE_NVFP4, BlockNVFP4, 64)
    BL_ENCODE_CASE(TYPE_IQ4_NL, BlockIQ4_NL, 32)
    BL_ENCODE_CASE(TYPE_IQ4_XS, BlockIQ4_XS, 256)
    default: return false;
  }
}

}  // namespace bl::cuda
