// matmul_many_k16.cu: prompts' products with weights that have a whole scale for each 16 values.
#include "matmul_many.cuh"

namespace bl::cuda {

void matmul_many_k16(const MatmulArgs &args, Stream &s) {
  const MatmulPart &part = args.part[0];
  if (part.form == Form::K16_MIN) return launch_format<Whole<Kind::U4, Form::K16_MIN>>(args, s);
  switch (part.kind) {
    case Kind::S6: return launch_format<Whole<Kind::S6, Form::K16>>(args, s);
    case Kind::S4: return launch_format<Whole<Kind::S4, Form::K16>>(args, s);
    default: return launch_format<Whole<Kind::T4, Form::K16>>(args, s);
  }
}

}  // namespace bl::cuda
