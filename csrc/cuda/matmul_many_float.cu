// matmul_many_float.cu: prompts' products with float weights: bfloat16 terms, three planes of activations (packed.h).
#include "matmul_many.cuh"

namespace bl::cuda {

void matmul_many_float(const MatmulArgs &args, Stream &s) {
  switch (args.part[0].type) {
    case TYPE_F32: return launch_many<FormatF32, 8, 1, 1, 4>(args, s);
    case TYPE_F16: return launch_many<FormatF16, 8, 1, 1, 4>(args, s);
    case TYPE_BF16: return launch_many<FormatBF16, 8, 1, 1, 4>(args, s);
    default: fail(BL_ERR_UNSUPPORTED, "No cuda product for weights of type %u", args.part[0].type);
  }
}

}  // namespace bl::cuda
