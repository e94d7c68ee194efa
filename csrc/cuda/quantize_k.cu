// quantize_k.cu: the K types on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_k.h"

namespace bl::cuda {
namespace {

using namespace lanes_cuda;

template <uint32_t TYPE>
__device__ bool encode_piece(const Piece &p) {
  switch (TYPE) {
    case TYPE_Q2_K: return encode_q2_K(p.x, p.n, p.weights, p.dst);
    case TYPE_Q3_K: return encode_q3_K(p.x, p.n, p.weights, p.dst);
    case TYPE_Q4_K: return encode_q4_K(p.x, p.n, p.weights, p.dst);
    case TYPE_Q5_K: return encode_q5_K(p.x, p.n, p.weights, p.dst);
    case TYPE_Q6_K: return encode_q6_K(p.x, p.n, p.weights, p.dst);
  }
  return false;
}

}  // namespace

bool encode_k(uint32_t type, const EncodeJob &job, cudaStream_t stream) {
  switch (type) {
    BL_ENCODE_CASE(TYPE_Q2_K, BlockQ2_K, 256)
    BL_ENCODE_CASE(TYPE_Q3_K, BlockQ3_K, 256)
    BL_ENCODE_CASE(TYPE_Q4_K, BlockQ4_K, 256)
    BL_ENCODE_CASE(TYPE_Q5_K, BlockQ5_K, 256)
    BL_ENCODE_CASE(TYPE_Q6_K, BlockQ6_K, 256)
    default: return false;
  }
}

}  // namespace bl::cuda
