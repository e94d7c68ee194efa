// matmul_many_blocks.cu: prompts' products with weights that have a float scale for each 16 or 32 values.
#include "matmul_many.cuh"

namespace bl::cuda {

void matmul_many_blocks(const MatmulArgs &args, Stream &s) {
  const MatmulPart &part = args.part[0];
  with_whole(part.kind, part.form, [&](auto format) {
    if constexpr (decltype(format)::BLOCKS) launch_format<decltype(format)>(args, s);
  });
}

}  // namespace bl::cuda
