// encode_iq1.h: iq1_s and iq1_m: three levels around a shift of +-1/8, eight values to a point of a 2048-entry codebook.
//
// The values of a sub-block are sorted; a candidate cuts the order in three runs (level 0, 1, 2), so weighted prefix sums give its fit
// at once. Candidates are accepted one after another in a fixed order; eight are tested at a time, and only when some lane passes are
// they walked one by one.
#pragma once

#include "encode_lattice.h"

namespace bl {
namespace BL_LANES {

BL_TABLE float IQ1_PLUS[3] = {-0.875f, 0.125f, 1.125f};
BL_TABLE float IQ1_MINUS[3] = {-1.125f, -0.125f, 0.875f};

// order[j] = index of the j-th smallest value; equal values keep their order. Counts, for each value, those that come before it.
template <int N>
BL_INLINE void stable_order(const float *x, uint8_t *order) {
  for (int i = 0; i < N; i += 8) {
    const F8 v = load8(x + i);
    const I8 place = splat_i(i) + I8{0, 1, 2, 3, 4, 5, 6, 7};
    I8 rank = splat_i(0);
    for (int j = 0; j < N; j++) {
      const F8 other = splat(x[j]);
      rank -= (other < v) | ((other == v) & (splat_i(j) < place));
    }
    for (int k = 0; k < 8; k++) order[rank[k]] = uint8_t(i + k);
  }
}

template <int N>
BL_INLINE float largest_magnitude_of(const float *x) {
  return largest_abs(x, N);
}

// Bits of the lanes whose candidate beats `best`.
BL_INLINE uint32_t beats(F8 a, F8 b, float best) {
  return lane_bits((b > splat(0.0f)) & (a * a > splat(best) * b));
}

// Snaps an off-grid key: x signed, value(level) = scale * shift[level].
BL_INLINE uint32_t snap_shifted(const Lattice &lattice, uint32_t key, const float *x, const float *w, float scale, const float *shift) {
  const float a = scale * shift[0], b = scale * shift[1], c = scale * shift[2];
  F8 term[8];
  level_terms<8>(F8{a, b, c, 0, a, b, c, 0}, x, w, term);
  return nearest<8>(lattice, lattice.slots[key], term);
}

BL_INLINE uint32_t key_of_levels(const uint8_t *level) {
  uint32_t key = 0;
  for (int i = 0; i < 8; i++) key |= uint32_t(level[i]) << (2 * i);
  return key;
}

// --- iq1_s --------------------------------------------------------------------------------------------------------------------------

struct Cuts {
  float scale;
  int i1, i2, shift;  // i1 < 0: nothing was accepted
};

BL_INLINE Cuts search_iq1_s(const float *sum_x, const float *sum_w) {
  Cuts found = {0.0f, -1, -1, 0};
  float best = -F32_LARGEST;
  const float all_x = sum_x[32], all_w = sum_w[32];
  for (int i1 = 0; i1 <= 32; i1++) {
    for (int i2 = i1; i2 <= 32; i2 += 8) {
      const F8 x2 = load8(sum_x + i2), w2 = load8(sum_w + i2);  // arrays are padded past entry 32
      const F8 run1 = x2 - splat(sum_x[i1]), run2 = splat(all_x) - x2;
      const F8 weight1 = w2 - splat(sum_w[i1]), weight2 = splat(all_w) - w2;
      const uint32_t valid = i2 + 8 <= 33 ? 255u : (1u << (33 - i2)) - 1;
      F8 a[2], b[2];
      for (int m = 0; m < 2; m++) {
        const float *c = m ? IQ1_MINUS : IQ1_PLUS;
        a[m] = splat((sum_x[i1] - sum_x[0]) * c[0]) + run1 * splat(c[1]) + run2 * splat(c[2]);
        b[m] = splat((sum_w[i1] - sum_w[0]) * c[0] * c[0]) + weight1 * splat(c[1]) * splat(c[1]) +
               weight2 * splat(c[2]) * splat(c[2]);
      }
      uint32_t plus = beats(a[0], b[0], best) & valid, minus = beats(a[1], b[1], best) & valid;
      while (plus | minus) {  // the first accepted candidate raises the bar for those after it
        const int lane = lowest_bit(plus | minus);
        const int m = (plus >> lane) & 1 ? 0 : 1;
        found.scale = a[m][lane] / b[m][lane];
        best = found.scale * a[m][lane];
        found.i1 = i1;
        found.i2 = i2 + lane;
        found.shift = m;
        const uint32_t later = ~((2u << lane) - 1);
        plus = beats(a[0], b[0], best) & valid & later;
        minus = beats(a[1], b[1], best) & valid & (m == 0 ? later | 1u << lane : later);
      }
    }
  }
  return found;
}

BL_ENCODER bool encode_iq1_s(const Lattice &lattice, const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ1_S *y = static_cast<BlockIQ1_S *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, qw += 256, y++) {
    memset(y, 0, sizeof(*y));
    const F8 g = splat(2.0f * sum_of_squares(x, 256) / 256.0f);
    float scales[8];
    uint8_t shifts[8] = {0};
    uint16_t high[8] = {0};
    for (int k = 0; k < 8; k++) {
      const float *v = x + 32 * k;
      scales[k] = 0.0f;
      if (largest_magnitude_of<32>(v) < 1e-12f) continue;
      float w[32], sum_x[48] = {0}, sum_w[48] = {0};
      for (int i = 0; i < 32; i += 8) store8(w + i, importance(load8(qw + 32 * k + i), g, load8(v + i)));
      uint8_t order[32], level[32];
      stable_order<32>(v, order);
      for (int j = 0; j < 32; j++) {
        const int i = order[j];
        sum_x[j + 1] = sum_x[j] + w[i] * v[i];
        sum_w[j + 1] = sum_w[j] + w[i];
      }
      const Cuts cut = search_iq1_s(sum_x, sum_w);
      if (cut.i1 < 0) continue;
      float scale = cut.scale;
      int shift = cut.shift;
      for (int j = 0; j < 32; j++) level[order[j]] = j < cut.i1 ? 0 : j < cut.i2 ? 1 : 2;
      if (scale < 0) {
        for (uint8_t &l : level) l = uint8_t(2 - l);
        scale = -scale;
        shift = 1 - shift;
      }
      const float *values = shift ? IQ1_MINUS : IQ1_PLUS;
      uint32_t key[4];
      bool off = false;
      for (int i = 0; i < 4; i++) {
        key[i] = key_of_levels(level + 8 * i);
        if (lattice.slots[key[i]] >= 0) continue;
        off = true;
        key[i] = snap_shifted(lattice, key[i], v + 8 * i, w + 8 * i, scale, values);
        if (key[i] == NO_POINT) return false;
      }
      if (off) {
        float a = 0.0f, b = 0.0f;
        for (int i = 0; i < 32; i++) {
          const float t = values[(key[i / 8] >> (2 * (i % 8))) & 3], wt = w[i] * t;
          a += wt * v[i];
          b += wt * t;
        }
        if (a > 0 && b > 0) scale = a / b;
      }
      for (int i = 0; i < 4; i++) {
        const int32_t index = lattice.slots[key[i]];
        y->qs[4 * k + i] = uint8_t(index);
        high[k] = uint16_t(high[k] | (index >> 8) << (3 * i));
      }
      scales[k] = scale;
      shifts[k] = uint8_t(shift);
    }
    const float ms = largest_of(scales, 8);
    // the index bytes stay even when no scale does, as does the high part
    if (ms != 0) {
      const float d = ms / 15.0f, r = 1.0f / d;
      y->d = f32_to_f16(d * 1.125f);
      for (int k = 0; k < 8; k++) high[k] = uint16_t(high[k] | scale_code(r, scales[k], 7) << 12 | uint32_t(shifts[k]) << 15);
    }
    memcpy(y->qh, high, 16);
  }
  return true;
}

// --- iq1_m --------------------------------------------------------------------------------------------------------------------------

// sum_x, sum_w [2 halves][24]: prefix sums of each half in the common order, padded past entry 16. shift: bit 1 first half negative,
// bit 0 second half negative.
BL_INLINE Cuts search_iq1_m(const float (*sum_x)[24], const float (*sum_w)[24]) {
  Cuts found = {0.0f, -1, -1, 0};
  float best = -F32_LARGEST;
  for (int i1 = 0; i1 <= 16; i1++) {
    for (int i2 = i1; i2 <= 16; i2 += 8) {
      const uint32_t valid = i2 + 8 <= 17 ? 255u : (1u << (17 - i2)) - 1;
      F8 ah[2][2], bh[2][2];  // [half][plus, minus]
      for (int h = 0; h < 2; h++) {
        const float x16 = sum_x[h][16], w16 = sum_w[h][16], w1 = sum_w[h][i1];
        const F8 both = splat(sum_x[h][i1]) + load8(sum_x[h] + i2), w2 = load8(sum_w[h] + i2);
        ah[h][0] = splat(x16 * 1.125f) - both;
        ah[h][1] = splat(x16 * 0.875f) - both;
        bh[h][0] = w2 * splat(-1.25f) + splat(w1 * 0.75f + w16 * 1.125f * 1.125f);
        bh[h][1] = w2 * splat(-0.75f) + splat(w1 * 1.25f + w16 * 0.875f * 0.875f);
      }
      F8 a[4], b[4];
      uint32_t pass[4], some = 0;
      for (int k = 0; k < 4; k++) {
        a[k] = ah[0][k >> 1] + ah[1][k & 1];
        b[k] = bh[0][k >> 1] + bh[1][k & 1];
        pass[k] = beats(a[k], b[k], best) & valid;
        some |= pass[k];
      }
      while (some) {
        const int lane = lowest_bit(some);
        int k = 0;
        while (!((pass[k] >> lane) & 1)) k++;
        found.scale = a[k][lane] / b[k][lane];
        best = found.scale * a[k][lane];
        found.i1 = i1;
        found.i2 = i2 + lane;
        found.shift = k;
        const uint32_t later = ~((2u << lane) - 1);
        some = 0;
        for (int j = 0; j < 4; j++) {
          pass[j] = beats(a[j], b[j], best) & valid & (j > k ? later | 1u << lane : later);
          some |= pass[j];
        }
      }
    }
  }
  return found;
}

BL_INLINE void iq1_m_weights(const float *x, const float *qw, F8 g, float *w) {
  for (int i = 0; i < 16; i += 8) {
    const F8 v = load8(x + i);
    store8(w + i, qw ? importance(load8(qw + i), g, v) : v * v);
  }
}

BL_ENCODER bool encode_iq1_m(const Lattice &lattice, const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ1_M *y = static_cast<BlockIQ1_M *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, y++) {
    memset(y, 0, sizeof(*y));
    const F8 g = splat(2.0f * sum_of_squares(x, 256) / 256.0f);
    float scales[16];
    uint8_t shifts[16] = {0};
    uint32_t keys[32];
    for (uint32_t &key : keys) key = lattice.keys[0];
    for (int k = 0; k < 16; k++) {
      const float *v = x + 16 * k;
      scales[k] = 0.0f;
      if (largest_magnitude_of<16>(v) < 1e-7f) continue;
      float w[16], sum_x[2][24] = {{0}}, sum_w[2][24] = {{0}};
      iq1_m_weights(v, qw ? qw + 256 * s + 16 * k : nullptr, g, w);
      uint8_t order[16], level[16];
      stable_order<16>(v, order);
      for (int j = 0; j < 16; j++) {
        const int i = order[j], h = i / 8;
        sum_x[h][j + 1] = sum_x[h][j] + w[i] * v[i];
        sum_w[h][j + 1] = sum_w[h][j] + w[i];
        sum_x[1 - h][j + 1] = sum_x[1 - h][j];
        sum_w[1 - h][j + 1] = sum_w[1 - h][j];
      }
      const Cuts cut = search_iq1_m(sum_x, sum_w);
      if (cut.i1 < 0) continue;
      float scale = cut.scale;
      int shift = cut.shift;
      for (int j = 0; j < 16; j++) level[order[j]] = j < cut.i1 ? 0 : j < cut.i2 ? 1 : 2;
      if (scale < 0) {
        for (uint8_t &l : level) l = uint8_t(2 - l);
        scale = -scale;
        shift = 3 - shift;
      }
      const float *values[2] = {shift & 2 ? IQ1_MINUS : IQ1_PLUS, shift & 1 ? IQ1_MINUS : IQ1_PLUS};
      bool off = false;
      for (int i = 0; i < 2; i++) {
        uint32_t key = key_of_levels(level + 8 * i);
        if (lattice.slots[key] < 0) {
          off = true;
          key = snap_shifted(lattice, key, v + 8 * i, w + 8 * i, scale, values[i]);
          if (key == NO_POINT) return false;
        }
        keys[2 * k + i] = key;
      }
      if (off) {
        float a = 0.0f, b = 0.0f;
        for (int i = 0; i < 16; i++) {
          const float t = values[i / 8][(keys[2 * k + i / 8] >> (2 * (i % 8))) & 3], wt = w[i] * t;
          a += wt * v[i];
          b += wt * t;
        }
        if (a > 0 && b > 0) scale = a / b;
      }
      for (int i = 0; i < 2; i++) {
        const int32_t index = lattice.slots[keys[2 * k + i]];
        y->qs[2 * k + i] = uint8_t(index);
        y->qh[k] |= uint8_t((index >> 8) << (4 * i));
      }
      scales[k] = scale;
      shifts[k] = uint8_t(shift);
    }
    const float ms = largest_of(scales, 16);
    if (ms == 0) continue;
    float d = ms / 15.0f, a = 0.0f, b = 0.0f;
    const float r = 1.0f / d;
    uint16_t words[4] = {0};
    for (int k = 0; k < 16; k++) {
      const float *v = x + 16 * k;
      const uint32_t u = scale_code(r, scales[k], 7);
      words[k / 4] = uint16_t(words[k / 4] | u << (3 * (k % 4)));
      y->qh[k] |= uint8_t((shifts[k] & 2 ? 0x08 : 0) | (shifts[k] & 1 ? 0x80 : 0));
      float w[16];
      iq1_m_weights(v, qw ? qw + 256 * s + 16 * k : nullptr, g, w);
      for (int i = 0; i < 16; i++) {
        const float *values = (shifts[k] >> (1 - i / 8)) & 1 ? IQ1_MINUS : IQ1_PLUS;
        const float q = values[(keys[2 * k + i / 8] >> (2 * (i % 8))) & 3] * float(2 * u + 1), wq = w[i] * q;
        a += wq * v[i];
        b += wq * q;
      }
    }
    if (b > 0) d = a / b;
    const uint32_t half = f32_to_f16(d * 1.1125f);
    for (int i = 0; i < 4; i++) words[i] = uint16_t(words[i] | ((half >> (4 * i)) & 15) << 12);
    memcpy(y->scales, words, 8);
  }
  return true;
}

}  // namespace BL_LANES
}  // namespace bl
