// matmul_many.cu: prompts' products with quantized weights; matmul_many.cuh has the kernel.
#include "matmul_many.cuh"

namespace bl::cuda {

uint32_t expert_tile_columns(uint32_t pairs, uint32_t n_expert, bool floats) {
  return !floats && pairs / n_expert >= 96 ? WIDE : NARROW;
}

void matmul_many(const MatmulArgs &args, Stream &s) {
  switch (args.part[0].type) {
    case TYPE_Q4_K: return launch_format<FormatQ4K>(args, s);
    case TYPE_Q5_K: return launch_format<FormatQ5K>(args, s);
    case TYPE_Q6_K: return launch_format<FormatQ6K>(args, s);
    case TYPE_Q8_0: return launch_format<FormatQ80>(args, s);
    case TYPE_Q4_0: return launch_format<FormatQ40>(args, s);
    case TYPE_MXFP4:
    case PACKED_HALF: return matmul_many_others(args, s);
    default: return matmul_many_float(args, s);
  }
}

}  // namespace bl::cuda
