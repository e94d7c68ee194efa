// kernels_avx2.cpp: the kernels for x86-64 with AVX2, FMA and F16C (this file is compiled with them enabled).
#define BL_ISA avx2
#include "impl/table.h"

namespace bl {

using namespace BL_ISA;

constexpr Kernels kernels_avx2 = BL_KERNEL_TABLE("avx2");

}  // namespace bl
