// quantize_simple.cu: floats, the small blocks, the ternary types, 4-bit floats and iq4 on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_iq4.h"

namespace bl::cuda {
namespace {

using namespace lanes_cuda;

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
    case TYPE_F32: return encode_with<float, 1, plain<encode_f32>>(job, stream);
    case TYPE_F16: return encode_with<uint16_t, 1, plain<encode_f16>>(job, stream);
    case TYPE_BF16: return encode_with<uint16_t, 1, plain<encode_bf16>>(job, stream);
    case TYPE_Q1_0: return encode_with<BlockQ1_0, 128, plain<encode_q1_0>>(job, stream);
    case TYPE_Q2_0: return encode_with<BlockQ2_0, 64, plain<encode_q2_0>>(job, stream);
    case TYPE_Q4_0: return encode_with<BlockQ4_0, 32, with_mean_square<encode_symmetric_type<BlockQ4_0, 8>>>(job, stream);
    case TYPE_Q4_1: return encode_with<BlockQ4_1, 32, with_mean_square<encode_affine_type<BlockQ4_1, 15>>>(job, stream);
    case TYPE_Q5_0: return encode_with<BlockQ5_0, 32, with_mean_square<encode_symmetric_type<BlockQ5_0, 16>>>(job, stream);
    case TYPE_Q5_1: return encode_with<BlockQ5_1, 32, with_mean_square<encode_affine_type<BlockQ5_1, 31>>>(job, stream);
    case TYPE_Q8_0: return encode_with<BlockQ8_0, 32, plain<encode_q8_0>>(job, stream);
    case TYPE_TQ1_0: return encode_with<BlockTQ1_0, 256, plain<encode_tq1_0>>(job, stream);
    case TYPE_TQ2_0: return encode_with<BlockTQ2_0, 256, plain<encode_tq2_0>>(job, stream);
    case TYPE_MXFP4: return encode_with<BlockMXFP4, 32, plain<encode_mxfp4>>(job, stream);
    case TYPE_NVFP4: return encode_with<BlockNVFP4, 64, plain<encode_nvfp4>>(job, stream);
    case TYPE_IQ4_NL: return encode_with<BlockIQ4_NL, 32, plain<encode_iq4_nl>>(job, stream);
    case TYPE_IQ4_XS: return encode_with<BlockIQ4_XS, 256, plain<encode_iq4_xs>>(job, stream);
    default: return false;
  }
}

}  // namespace bl::cuda
