// kernels_portable.cpp: the kernels for any CPU.
#define BL_ISA portable
#include "impl/table.h"

namespace bl {

using namespace BL_ISA;

constexpr Kernels kernels_portable = BL_KERNEL_TABLE("portable");

}  // namespace bl
