// matmul_many_others.cu: prompts' products with mxfp4 weights, and with those of types that are decoded to halves (packed.h).
#include "matmul_many.cuh"

namespace bl::cuda {

void matmul_many_others(const MatmulArgs &args, Stream &s) {
  if (args.part[0].type == TYPE_MXFP4) return launch_format<FormatMXFP4>(args, s);
  launch_format<FormatHalf>(args, s);
}

}  // namespace bl::cuda
