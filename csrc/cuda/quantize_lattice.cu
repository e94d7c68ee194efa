// quantize_lattice.cu: iq2 and iq3 on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_lattice.h"

namespace bl::cuda {
namespace {

using namespace lanes_cuda;

template <uint32_t TYPE>
__device__ bool encode_piece(const Piece &p) {
  switch (TYPE) {
    case TYPE_IQ2_XXS: return encode_iq2_xxs(p.lattice, p.x, p.n, p.weights, p.dst);
    case TYPE_IQ2_XS: return encode_iq2_xs(p.lattice, p.x, p.n, p.weights, p.dst);
    case TYPE_IQ2_S: return encode_iq2_s(p.lattice, p.x, p.n, p.weights, p.dst);
    case TYPE_IQ3_XXS: return encode_iq3_xxs(p.lattice, p.x, p.n, p.weights, p.dst);
    case TYPE_IQ3_S: return encode_iq3_s(p.lattice, p.x, p.n, p.weights, p.dst);
  }
  return false;
}

}  // namespace

bool encode_lattice(uint32_t type, const EncodeJob &job, cudaStream_t stream) {
  switch (type) {
    BL_ENCODE_CASE(TYPE_IQ2_XXS, BlockIQ2_XXS, 256)
    BL_ENCODE_CASE(TYPE_IQ2_XS, BlockIQ2_XS, 256)
    BL_ENCODE_CASE(TYPE_IQ2_S, BlockIQ2_S, 256)
    BL_ENCODE_CASE(TYPE_IQ3_XXS, BlockIQ3_XXS, 256)
    BL_ENCODE_CASE(TYPE_IQ3_S, BlockIQ3_S, 256)
    default: return false;
  }
}

}  // namespace bl::cuda
