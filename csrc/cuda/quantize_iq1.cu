// quantize_iq1.cu: iq1 on a card.
#include "quantize_kernel.cuh"

#include "../common/encode_iq1.h"

namespace bl::cuda {

using namespace lanes_cuda;

bool encode_iq1(uint32_t type, const EncodeJob &job, cudaStream_t stream) {
  switch (type) {
    case TYPE_IQ1_S: return encode_with<BlockIQ1_S, 256, with_lattice<encode_iq1_s>>(job, stream);
    case TYPE_IQ1_M: return encode_with<BlockIQ1_M, 256, with_lattice<encode_iq1_m>>(job, stream);
    default: return false;
  }
}

}  // namespace bl::cuda
