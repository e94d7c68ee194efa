// quantize_k.cu: the K types on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_k.h"

namespace bl::cuda {

using namespace lanes_cuda;

bool encode_k(uint32_t type, const EncodeJob &job, cudaStream_t stream) {
  switch (type) {
    case TYPE_Q2_K: return encode_with<BlockQ2_K, 256, plain<encode_q2_K>>(job, stream);
    case TYPE_Q3_K: return encode_with<BlockQ3_K, 256, plain<encode_q3_K>>(job, stream);
    case TYPE_Q4_K: return encode_with<BlockQ4_K, 256, plain<encode_q4_K>>(job, stream);
    case TYPE_Q5_K: return encode_with<BlockQ5_K, 256, plain<encode_q5_K>>(job, stream);
    case TYPE_Q6_K: return encode_with<BlockQ6_K, 256, plain<encode_q6_K>>(job, stream);
    default: return false;
  }
}

}  // namespace bl::cuda
