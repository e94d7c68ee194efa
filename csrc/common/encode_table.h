// encode_table.h: every row encoder by type id, for the namespace that includes this.
#pragma once

#include "encode_iq1.h"
#include "encode_iq4.h"
#include "encode_k.h"
#include "encode_lattice.h"
#include "encode_simple.h"
#include "encoders.h"

namespace bl {
namespace BL_LANES {

template <const Lattice &(*LATTICE)(), bool (*ENCODE)(const Lattice &, const float *, uint64_t, const float *, void *)>
static bool with_lattice(const float *x, uint64_t n, const float *qw, void *dst) {
  return ENCODE(LATTICE(), x, n, qw, dst);
}

BL_INLINE EncodeRow encoder(uint32_t type) {
  switch (type) {
    case TYPE_F32: return encode_f32;
    case TYPE_F16: return encode_f16;
    case TYPE_BF16: return encode_bf16;
    case TYPE_Q1_0: return encode_q1_0;
    case TYPE_Q2_0: return encode_q2_0;
    case TYPE_Q4_0: return encode_q4_0;
    case TYPE_Q4_1: return encode_q4_1;
    case TYPE_Q5_0: return encode_q5_0;
    case TYPE_Q5_1: return encode_q5_1;
    case TYPE_Q8_0: return encode_q8_0;
    case TYPE_Q2_K: return encode_q2_K;
    case TYPE_Q3_K: return encode_q3_K;
    case TYPE_Q4_K: return encode_q4_K;
    case TYPE_Q5_K: return encode_q5_K;
    case TYPE_Q6_K: return encode_q6_K;
    case TYPE_TQ1_0: return encode_tq1_0;
    case TYPE_TQ2_0: return encode_tq2_0;
    case TYPE_IQ2_XXS: return with_lattice<lattice_iq2xxs, encode_iq2_xxs>;
    case TYPE_IQ2_XS: return with_lattice<lattice_iq2xs, encode_iq2_xs>;
    case TYPE_IQ2_S: return with_lattice<lattice_iq2s, encode_iq2_s>;
    case TYPE_IQ3_XXS: return with_lattice<lattice_iq3xxs, encode_iq3_xxs>;
    case TYPE_IQ3_S: return with_lattice<lattice_iq3s, encode_iq3_s>;
    case TYPE_IQ1_S: return with_lattice<lattice_iq1s, encode_iq1_s>;
    case TYPE_IQ1_M: return with_lattice<lattice_iq1s, encode_iq1_m>;
    case TYPE_IQ4_NL: return encode_iq4_nl;
    case TYPE_IQ4_XS: return encode_iq4_xs;
    case TYPE_MXFP4: return encode_mxfp4;
    case TYPE_NVFP4: return encode_nvfp4;
    default: return nullptr;
  }
}

}  // namespace BL_LANES
}  // namespace bl
