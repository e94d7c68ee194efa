// kernels_avx512.cpp: the kernels for x86-64 with AVX-512 F, BW, VL, DQ and VNNI (this file is compiled with them enabled). Vectors stay 256 bits
// wide, but for packed matmuls of many rows: VNNI replaces three instructions by one, and 32 registers hold a whole tile.
#define BL_ISA avx512
#include "impl/table.h"

namespace bl {

using namespace BL_ISA;

constexpr Kernels kernels_avx512 = BL_KERNEL_TABLE("avx512");

}  // namespace bl
