// quantize_iq1.cu: iq1 on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_iq1.h"

namespace bl::cuda {
namespace {

using namespace lanes_cuda;

template <uint32_t TYPE>
__device__ bool encode_piece(const Piece &p) {
  switch (TYPE) {
    case TYPE_IQ1_S: return encode_iq1_s(p.lattice, p.x, p.n, p.weights, p.dst);
    case TYPE_IQ1_M: return encode_iq1_m(p.lattice, p.x, p.n, p.weights, p.dst);
  }
  return false;
}

}  // namespace

bool encode_iq1(uint32_t type, const EncodeJob &job, cudaStream_t stream) {
  switch (type) {
    BL_ENCODE_CASE(TYPE_IQ1_S, BlockIQ1_S, 256)
    BL_ENCODE_CASE(TYPE_IQ1_M, BlockIQ1_M, 256)
    default: return false;
  }
}

}  // namespace bl::cuda
