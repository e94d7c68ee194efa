// kernels_amx.cpp: the kernels for x86-64 with AVX-512 (as kernels_avx512.cpp) and AMX with int8: packed matmuls of many rows run on
// its tiles. This file is compiled with them enabled.
#define BL_ISA amx
#include "impl/table.h"

namespace bl {

using namespace BL_ISA;

constexpr Kernels kernels_amx = BL_KERNEL_TABLE("amx");

}  // namespace bl
