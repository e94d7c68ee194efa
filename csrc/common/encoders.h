// encoders.h: one table of row encoders per instruction set. Both give the same bytes.
#pragma once

#include <stdint.h>

namespace bl {

using EncodeRow = bool (*)(const float *x, uint64_t n, const float *weights, void *dst);

// The encoder of a type, or nullptr.
EncodeRow encoder_portable(uint32_t type);
#if defined(__x86_64__)
EncodeRow encoder_avx2(uint32_t type);  // to be called only where AVX2 and F16C are
#endif

}  // namespace bl
