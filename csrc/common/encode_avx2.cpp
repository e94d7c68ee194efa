// encode_avx2.cpp: the row encoders compiled for AVX2 and F16C (flags -mavx2 -mf16c; with -mfma only under
// -ffp-contract=off, which keeps products and sums apart). Empty on other machines.
#if defined(__x86_64__)
#if !defined(__AVX2__) || !defined(__F16C__)
#error "compile encode_avx2.cpp with -mavx2 -mf16c"
#endif
#define BL_LANES lanes_avx2
#include "encode_table.h"

namespace bl {

EncodeRow encoder_avx2(uint32_t type) { return lanes_avx2::encoder(type); }

}  // namespace bl
#endif
