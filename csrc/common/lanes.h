// lanes.h: eight f32 or i32 at a time, for encoders that do the same scalar sequence in every lane.
//
// One source, three instruction sets, the same bits: a lane never mixes with another except where a function says so, and every
// operation is one rounding. lanes_host.h holds the vectors of the host (portable, or AVX2), ../cuda/lanes.cuh those of a card, where
// eight threads are the lanes. Each file that includes this names its own BL_LANES namespace, and nothing here may be used from
// elsewhere (an inline function compiled for AVX2 must not be merged into portable code).
//
// What keeps the encoders fit for a card: vectors are read by v[i] and never written so; whatever is no vector is computed alike in
// every thread, so arrays of the encoder's own are whole in each, but for Scratch; memory the caller passed is only read, but for the
// row's bytes.
#pragma once

#include <stdint.h>
#include <string.h>

#include "blocks.h"

#if defined(__CUDACC__)
#include "../cuda/lanes.cuh"
#else
#include "lanes_host.h"
#endif

namespace bl {
namespace BL_LANES {

constexpr int LANES = 8;
constexpr float F32_LARGEST = 3.40282346638528859812e+38f;
constexpr float EPS15 = 1e-15f;

BL_INLINE I8 clamp(I8 v, int lo, int hi) { return imin(imax(v, splat_i(lo)), splat_i(hi)); }
BL_INLINE bool any(I8 mask) { return lane_bits(mask) != 0; }

// Round to nearest even by adding 1.5 * 2^23 and reading the low bits: exact up to 4194303, and beyond it, for infinities and NaN,
// the defined value of the formula (bit-exactness needs that one and no other).
BL_INLINE I8 rnd(F8 v) { return (rounded_bits(v) & splat_i(0x007FFFFF)) - splat_i(0x00400000); }
BL_INLINE int32_t rnd1(float v) { return int32_t(rounded_bits1(v) & 0x007FFFFF) - 0x00400000; }

// Toward zero; NaN and what does not fit give INT32_MIN.
BL_INLINE int32_t trunc1(float v) { return v >= -2147483648.0f && v < 2147483648.0f ? int32_t(v) : INT32_MIN; }

// trunc8 of the value rounded half away from zero.
BL_INLINE I8 round_away(F8 v) {
  const F8 whole = to_f(trunc8(v));
  const F8 one = from_bits((bits(v) & splat_i(INT32_MIN)) | bits(splat(1.0f)));
  return trunc8(whole + select(abs8(v - whole) >= splat(0.5f), one, splat(0.0f)));
}

}  // namespace BL_LANES
}  // namespace bl
