// encode_iq4.h: iq4_nl and iq4_xs, 4-bit indices into sixteen unevenly spaced values.
#pragma once

#include "encode_search.h"
#include "encode_simple.h"

namespace bl {
namespace BL_LANES {

// Halfway between neighbouring values; a value on the threshold goes up. The subtractions of the definition are exact near these, so
// comparing with them decides the same way.
BL_TABLE float IQ4_HALFWAY[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                   7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

// Index of the nearest of the sixteen values; NaN gives 15.
BL_INLINE I8 nearest_iq4(F8 v) {
  const float *m = IQ4_HALFWAY;
  const F8 third = F8{m[1], m[5], m[9], m[13], m[1], m[5], m[9], m[13]};
  const F8 fourth = F8{m[0], m[2], m[4], m[6], m[8], m[10], m[12], m[14]};
  const I8 c3 = ~(v < splat(m[7]));
  const I8 c2 = ~(v < select(c3, splat(m[11]), splat(m[3])));
  const I8 top = (c3 & splat_i(2)) | (c2 & splat_i(1));
  const I8 c1 = ~(v < lookup(third, top));
  const I8 upper = top + top - c1;
  const I8 c0 = ~(v < lookup(fourth, upper));
  return upper + upper - c0;
}

BL_INLINE F8 iq4_value(I8 index) {
  const int8_t *k = kvalues_iq4nl;
  const F8 low = F8{float(k[0]), float(k[1]), float(k[2]), float(k[3]), float(k[4]), float(k[5]), float(k[6]), float(k[7])};
  const F8 high = F8{float(k[8]), float(k[9]), float(k[10]), float(k[11]), float(k[12]), float(k[13]), float(k[14]), float(k[15])};
  return select(index > splat_i(7), lookup(high, index), lookup(low, index));
}

BL_INLINE void iq4_sums(const F8 *x, const F8 *w, F8 r, F8 *a, F8 *b) {
  F8 sa = splat(0.0f), sb = splat(0.0f);
  for (int i = 0; i < 32; i++) {
    const F8 q = iq4_value(nearest_iq4(r * x[i]));
    const F8 wq = w[i] * q;
    sa += wq * x[i];
    sb += wq * q;
  }
  *a = sa;
  *b = sb;
}

// Scale of eight groups of 32.
BL_INLINE F8 iq4_scale(const F8 *x, const F8 *w) {
  const F8 zero = splat(0.0f);
  F8 amax, xm, a, b;
  extreme<32>(x, &amax, &xm);
  const F8 first = -xm / splat(float(kvalues_iq4nl[0]));
  iq4_sums(x, w, splat(1.0f) / first, &a, &b);
  F8 d = select(b > zero, a / b, zero);
  F8 best = d * a;
  for (int t = -7; t <= 7; t++) {
    iq4_sums(x, w, splat(float(t + kvalues_iq4nl[0])) / xm, &a, &b);
    const I8 better = (b > zero) & (a * a > best * b);
    d = select(better, a / b, d);
    best = select(better, d * a, best);
  }
  return select(amax < splat(EPS15), zero, d);
}

BL_INLINE void iq4_codes(const float *x, float r, uint8_t *qs) {
  uint8_t code[32];
  for (int i = 0; i < 32; i += 8) store_bytes(code + i, nearest_iq4(splat(r) * load8(x + i)));
  pack_nibbles(code, qs);
}

BL_ENCODER bool encode_iq4_nl(const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ4_NL *y = static_cast<BlockIQ4_NL *>(dst);
  for (uint64_t b = 0; b < n / 32; b += 8) {
    const int groups = groups_left(n / 32, b);
    F8 v[32], w[32];
    load_groups<32>(x + 32 * b, groups, v);
    if (qw) {
      F8 sum = splat(0.0f);
      for (int i = 0; i < 32; i++) sum += v[i] * v[i];
      row_importance(v, qw + 32 * b, groups, sum * splat(2.0f / 32.0f), w);
    } else {
      for (int i = 0; i < 32; i++) w[i] = v[i] * v[i];
    }
    const F8 scale = iq4_scale(v, w);
    for (int k = 0; k < groups; k++) {
      y[b + k].d = f32_to_f16(scale[k]);
      iq4_codes(x + 32 * (b + k), scale[k] != 0 ? 1.0f / scale[k] : 0.0f, y[b + k].qs);
    }
  }
  return true;
}

BL_ENCODER bool encode_iq4_xs(const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ4_XS *y = static_cast<BlockIQ4_XS *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, y++) {
    F8 v[32], w[32];
    load_groups<32>(x, 8, v);
    if (qw)
      row_importance(v, qw + 256 * s, 8, splat(sum_of_squares(x, 256) * (2.0f / 256.0f)), w);
    else
      for (int i = 0; i < 32; i++) w[i] = v[i] * v[i];
    float scale[8];
    store8(scale, iq4_scale(v, w));
    const int largest = largest_magnitude(scale, 8);
    const float d = -(largest < 0 ? 0.0f : scale[largest]) / 32.0f;
    const float r = d != 0 ? 1.0f / d : 0.0f;
    y->d = f32_to_f16(d);
    y->scales_h = 0;
    memset(y->scales_l, 0, 4);
    for (int j = 0; j < 8; j++) {
      const int ratio = rnd1(r * scale[j]);
      const int l = ratio < -32 ? -32 : ratio > 31 ? 31 : ratio;
      const float dl = d * float(l);
      iq4_codes(x + 32 * j, dl != 0 ? 1.0f / dl : 0.0f, y->qs + 16 * j);
      const uint32_t u = uint32_t(l + 32);
      y->scales_l[j / 2] |= uint8_t((u & 15) << (4 * (j % 2)));
      y->scales_h = uint16_t(y->scales_h | (u >> 4) << (2 * j));
    }
  }
  return true;
}

}  // namespace BL_LANES
}  // namespace bl
