// matmul_many.cu: prompts' products with quantized weights; matmul_many.cuh has the kernel.
#include "matmul_many.cuh"

namespace bl::cuda {

uint32_t expert_tile_columns(uint32_t pairs, uint32_t n_expert, bool floats) {
  return !floats && pairs / n_expert >= 96 ? WIDE : NARROW;
}

void matmul_many(const MatmulArgs &args, Stream &s) {
  const MatmulPart &part = args.part[0];
  if (!reads_whole_rows(part.type)) return matmul_many_float(args, s);
  switch (part.form) {
    case Form::K32_MIN:
      if (part.kind == Kind::U4) return launch_format<Whole<Kind::U4, Form::K32_MIN>>(args, s);
      return launch_format<Whole<Kind::U5, Form::K32_MIN>>(args, s);
    case Form::K16:
    case Form::K16_MIN: return matmul_many_k16(args, s);
    default: return matmul_many_blocks(args, s);
  }
}

}  // namespace bl::cuda
