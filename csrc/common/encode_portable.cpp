// encode_portable.cpp: the row encoders for any machine.
#if defined(__GNUC__) && !defined(__clang__)
// Unrolling every loop over emulated vectors takes the compiler minutes and gains nothing.
#pragma GCC optimize("O2", "fp-contract=off")
#endif
#define BL_LANES lanes_portable
#include "encode_table.h"

namespace bl {

EncodeRow encoder_portable(uint32_t type) { return lanes_portable::encoder(type); }

}  // namespace bl
