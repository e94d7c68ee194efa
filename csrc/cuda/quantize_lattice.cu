// quantize_lattice.cu: iq2 and iq3 on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_lattice.h"

namespace bl::cuda {

using namespace lanes_cuda;

bool encode_lattice(uint32_t type, const EncodeJob &job, cudaStream_t stream) {
  switch (type) {
    case TYPE_IQ2_XXS: return encode_with<BlockIQ2_XXS, 256, with_lattice<encode_iq2_xxs>>(job, stream);
    case TYPE_IQ2_XS: return encode_with<BlockIQ2_XS, 256, with_lattice<encode_iq2_xs>>(job, stream);
    case TYPE_IQ2_S: return encode_with<BlockIQ2_S, 256, with_lattice<encode_iq2_s>>(job, stream);
    case TYPE_IQ3_XXS: return encode_with<BlockIQ3_XXS, 256, with_lattice<encode_iq3_xxs>>(job, stream);
    case TYPE_IQ3_S: return encode_with<BlockIQ3_S, 256, with_lattice<encode_iq3_s>>(job, stream);
    default: return false;
  }
}

}  // namespace bl::cuda
