// encode_lattice.h: iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s: groups of values snapped to the points of a codebook.
//
// The search over a neighbour list is the whole cost. The error of a point is a sum of one term per dimension, and a term depends on
// the level alone: so the terms of all levels are computed once per group (one vector a dimension), and eight neighbours at a time
// look their terms up and add them in the scalar order.
#pragma once

#include "encode_search.h"
#include "encode_simple.h"
#include "lattice.h"

namespace bl {
namespace BL_LANES {

// --- keys and levels ----------------------------------------------------------------------------------------------------------------

// Key of eight levels of two bits. The product moves byte i of a word to bit 24 + 2 i; the other partial products stay apart.
BL_INLINE uint32_t key8(I8 levels) {
  const uint64_t b = low_bytes(levels);
  return (uint32_t(b) * 0x01041040u) >> 24 | ((uint32_t(b >> 32) * 0x01041040u) >> 24) << 8;
}

// Key of four levels of three bits, one a byte.
BL_INLINE uint32_t key4(uint32_t b) {
  b |= b >> 5;
  return (b & 0x3F) | ((b >> 10) & 0xFC0);
}

// Levels of eight values: the point of one 8-dimensional key, or of two 4-dimensional ones.
BL_INLINE I8 levels_of(const uint32_t *key, int dim) {
  if (dim == 8) return (splat_i(int32_t(key[0])) >> I8{0, 2, 4, 6, 8, 10, 12, 14}) & splat_i(3);
  const int32_t a = int32_t(key[0]), b = int32_t(key[1]);
  return (I8{a, a, a, a, b, b, b, b} >> I8{0, 3, 6, 9, 0, 3, 6, 9}) & splat_i(7);
}

constexpr uint32_t NO_POINT = 0xFFFFFFFFu;

// Key of the neighbour with the smallest sum of term[i][level i] (first of equals in list order); NO_POINT when no sum is a number
// below the largest float.
template <int DIM>
BL_INLINE uint32_t nearest(const Lattice &lattice, int32_t slot, const F8 *term) {
  constexpr int BITS = DIM == 8 ? 2 : 3;
  const uint16_t *list = lattice.list(slot);
  const int32_t batches = int32_t(Lattice::batches(slot));
  F8 best = splat(F32_LARGEST);
  I8 best_key = splat_i(-1), best_batch = splat_i(0);
  for (int32_t b = 0; b < batches; b++) {
    const I8 key = load_u16x8(list + 8 * b);
    F8 sum = lookup(term[0], key);
    for (int i = 1; i < DIM; i++) sum += lookup(term[i], (I8)((U8)key >> (BITS * i)));
    const I8 nearer = sum < best;
    best = select(nearer, sum, best);
    best_key = select(nearer, key, best_key);
    best_batch = select(nearer, splat_i(b), best_batch);
  }
  // the smallest of the lanes; among equals the smallest place in the list
  uint32_t lanes = lane_bits(best == least(best));
  int at = lowest_bit(lanes);
  for (lanes &= lanes - 1; lanes; lanes &= lanes - 1) {
    const int lane = lowest_bit(lanes);
    if (best_batch[lane] < best_batch[at]) at = lane;
  }
  return uint32_t(best_key[at]);
}

// Terms w (value(level) - x)^2 of DIM dimensions; lane l of `value` is what level l stands for (8 dimensions: twice, as a lookup
// sees the next level's low bit above the two of its own).
template <int DIM>
BL_INLINE void level_terms(F8 value, const float *x, const float *w, F8 *term) {
  for (int i = 0; i < DIM; i++) {
    const F8 e = value - splat(x[i]);
    term[i] = splat(w[i]) * e * e;
  }
}

// --- one sub-block ------------------------------------------------------------------------------------------------------------------

// N values made non-negative, in groups of DIM, with what their search needs.
template <int DIM, int N>
struct SubBlock {
  static constexpr int GROUPS = N / DIM;
  static constexpr int PER_VECTOR = 8 / DIM;
  Scratch<N, 0> v;       // magnitudes
  Scratch<N, N> w;       // weights
  Scratch<N, 2 * N> wa;  // square roots of weights
  uint8_t signs[N / 8];
  uint32_t key[GROUPS];     // the points chosen so far
};

template <int DIM, int N>
BL_INLINE uint32_t snap(const Lattice &lattice, const SubBlock<DIM, N> &b, int group, uint32_t key, float scale) {
  const int32_t slot = lattice.slots[key];
  if (slot >= 0) return key;
  F8 term[DIM];
  const F8 odd = DIM == 8 ? F8{1, 3, 5, 7, 1, 3, 5, 7} : F8{1, 3, 5, 7, 9, 11, 13, 15};
  level_terms<DIM>(splat(scale) * odd, b.v + DIM * group, b.wa + DIM * group, term);
  return nearest<DIM>(lattice, slot, term);
}

// Keys of the levels nearest to the values at inverse scale r, before snapping.
template <int DIM, int N>
BL_INLINE void round_keys(const SubBlock<DIM, N> &b, float r, uint32_t *key) {
  for (int i = 0; i < N / 8; i++) {
    const F8 v = load8(b.v + 8 * i);
    const I8 levels = clamp(rnd(splat(0.5f) * (splat(r) * v - splat(1.0f))), 0, DIM == 8 ? 2 : 7);
    if (DIM == 8) {
      key[i] = key8(levels);
    } else {
      const uint64_t bytes = low_bytes(levels);
      key[2 * i] = key4(uint32_t(bytes));
      key[2 * i + 1] = key4(uint32_t(bytes >> 32));
    }
  }
}

// A = sum w v q, B = sum w q^2 over the sub-block, first to last.
template <int DIM, int N>
BL_INLINE void fit(const SubBlock<DIM, N> &b, const uint32_t *key, float *a_out, float *b_out) {
  Scratch<N, 3 * N> pa;
  Scratch<N, 4 * N> pb;
  for (int i = 0; i < N / 8; i++) {
    const I8 l = levels_of(key + i * SubBlock<DIM, N>::PER_VECTOR, DIM);
    const F8 q = to_f(l + l + splat_i(1)), w = load8(b.w + 8 * i);
    pa.store(8 * i, w * load8(b.v + 8 * i) * q);
    pb.store(8 * i, w * q * q);
  }
  float sa = 0.0f, sb = 0.0f;
  for (int i = 0; i < N; i++) {
    sa += pa[i];
    sb += pb[i];
  }
  *a_out = sa;
  *b_out = sb;
}

// Signs of x to b.signs, magnitudes to b.v. EVEN: an odd number of minus signs is repaired at the value that matters least.
template <bool EVEN, int DIM, int N>
BL_INLINE void split_signs(const float *x, SubBlock<DIM, N> *b) {
  for (int k = 0; k < N / 8; k++) {
    const F8 v = load8(x + 8 * k);
    F8 magnitude = abs8(v);
    uint32_t s = lane_bits(~(v >= splat(0.0f)));
    if (EVEN) {
      if (count_bits(s) % 2) {
        float cost[8];
        store8(cost, load8(b->w + 8 * k) * v * v);
        int at = 0;
        for (int i = 1; i < 8; i++)
          if (cost[i] < cost[at]) at = i;
        magnitude = select(I8{0, 1, 2, 3, 4, 5, 6, 7} == splat_i(at), -magnitude, magnitude);
        s ^= 1u << at;
      }
      s &= 127;
    }
    b->v.store(8 * k, magnitude);
    b->signs[k] = uint8_t(s);
  }
}

template <int DIM, int N>
BL_INLINE float largest_value(const SubBlock<DIM, N> &b) {
  F8 m = load8(b.v);
  for (int i = 8; i < N; i += 8) m = max2(load8(b.v + i), m);
  float best = m[0];
  for (int i = 1; i < LANES; i++) best = m[i] > best ? m[i] : best;
  return best;
}

template <int DIM, int N>
BL_INLINE void weight_roots(SubBlock<DIM, N> *b) {
  for (int i = 0; i < N; i += 8) b->wa.store(i, sqrt8(load8(b->w + i)));
}

// A negative scale turns every sign around.
template <int DIM, int N>
BL_INLINE float make_positive(SubBlock<DIM, N> *b, float scale, uint8_t mask) {
  if (!(scale < 0)) return scale;
  for (uint8_t &s : b->signs) s = uint8_t(~s) & mask;
  return -scale;
}

struct LatticeScan {
  float base, step;  // candidates (base + t step) / largest value
  int reach;         // t = -reach .. reach
  bool all_again;    // after the scan: snap every group again, not only those that were off the grid
  bool start_on;     // whether groups count as on the grid before any candidate was accepted
};

// Scale and points of a sub-block whose largest value is mx.   returns false when a group has no nearest point
template <int DIM, int N>
BL_INLINE bool scan_scales(const Lattice &lattice, SubBlock<DIM, N> *b, float mx, const LatticeScan scan, float *scale_out) {
  constexpr int GROUPS = N / DIM;
  float best = 0.0f, scale = mx / scan.base;
  uint32_t off = scan.start_on ? 0 : (1u << GROUPS) - 1;
  for (int g = 0; g < GROUPS; g++) b->key[g] = 0;
  for (int t = -scan.reach; t <= scan.reach; t++) {
    const float r = (scan.base + float(t) * scan.step) / mx, ts = 1.0f / r;
    uint32_t key[GROUPS], missed = 0;
    round_keys(*b, r, key);
    for (int g = 0; g < GROUPS; g++) {
      const uint32_t point = snap(lattice, *b, g, key[g], ts);
      if (point == NO_POINT) return false;
      missed |= uint32_t(lattice.slots[key[g]] < 0) << g;
      key[g] = point;
    }
    float sa, sb;
    fit(*b, key, &sa, &sb);
    if (sb > 0 && sa * sa > best * sb) {
      scale = sa / sb;
      best = scale * sa;
      off = missed;
      memcpy(b->key, key, sizeof(key));
    }
  }
  if (off && scale > 0) {
    uint32_t key[GROUPS];
    round_keys(*b, 1.0f / scale, key);
    for (int g = 0; g < GROUPS; g++) {
      if (!scan.all_again && !((off >> g) & 1)) continue;
      b->key[g] = snap(lattice, *b, g, key[g], scale);
      if (b->key[g] == NO_POINT) return false;
    }
    float sa, sb;
    fit(*b, b->key, &sa, &sb);
    if (sb > 0) scale = sa / sb;
  }
  *scale_out = scale;
  return true;
}

// The 4-bit code of a sub-block's scale.
BL_INLINE uint32_t scale_code(float r, float scale, int top) {
  const int u = rnd1(0.5f * (r * scale - 1.0f));
  return uint32_t(u < 0 ? 0 : u > top ? top : u);
}

// --- iq2_xxs ------------------------------------------------------------------------------------------------------------------------

// Made twice from a superblock's values: all of them at once to find where to start, and one by one: a sub-block is much memory.
BL_INLINE void iq2_xxs_sub_block(const float *x, const float *qw, F8 g, SubBlock<8, 32> *b) {
  for (int i = 0; i < 32; i += 8) b->w.store(i, importance(load8(qw + i), g, load8(x + i)));
  weight_roots(b);
  split_signs<true>(x, b);
}

BL_ENCODER bool encode_iq2_xxs(const Lattice &lattice, const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ2_XXS *y = static_cast<BlockIQ2_XXS *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, qw += 256, y++) {
    const F8 g = splat(sum_of_squares(x, 256) / 256.0f);
    float v[256], w[256];
    for (int k = 0; k < 8; k++) {
      SubBlock<8, 32> b;
      iq2_xxs_sub_block(x + 32 * k, qw + 32 * k, g, &b);
      memcpy(v + 32 * k, b.v, 128);
      memcpy(w + 32 * k, b.w, 128);
    }
    F8 v8[32], w8[32];
    I8 unused[32];
    load_groups<32>(v, 8, v8);
    load_groups<32>(w, 8, w8);
    const F8 start = positive<32>(v8, w8, 4, unused);
    uint32_t word[16] = {0};
    float scales[8];
    for (int k = 0; k < 8; k++) {
      SubBlock<8, 32> b;
      iq2_xxs_sub_block(x + 32 * k, qw + 32 * k, g, &b);
      float scale = start[k], sa, sb;
      const float eff = scale * 3.0f;
      scales[k] = 0.0f;
      if (largest_value(b) < EPS15 || eff <= 0) continue;
      float best = 0.0f;
      uint32_t key[4];
      for (int t = -6; t <= 6; t++) {
        const float r = (5.0f + float(t) * 0.1f) / eff, ts = 1.0f / r;
        round_keys(b, r, key);
        for (int i = 0; i < 4; i++)
          if ((key[i] = snap(lattice, b, i, key[i], ts)) == NO_POINT) return false;
        fit(b, key, &sa, &sb);
        if (sb > 0 && sa * sa > best * sb) {
          scale = sa / sb;
          best = scale * sa;
          memcpy(b.key, key, sizeof(key));
        }
      }
      if (scale > 0) {
        round_keys(b, 1.0f / scale, b.key);
        for (int i = 0; i < 4; i++)
          if ((b.key[i] = snap(lattice, b, i, b.key[i], scale)) == NO_POINT) return false;
        fit(b, b.key, &sa, &sb);
        if (sb > 0) scale = sa / sb;
      }
      scales[k] = make_positive(&b, scale, 127);
      for (int i = 0; i < 4; i++) {
        word[2 * k] |= uint32_t(lattice.slots[b.key[i]]) << (8 * i);
        word[2 * k + 1] |= uint32_t(b.signs[i]) << (7 * i);
      }
    }
    const float ms = largest_of(scales, 8);
    if (ms == 0) {
      memset(y, 0, sizeof(*y));
      continue;
    }
    const float d = ms / 31.0f, r = 1.0f / d;
    y->d = f32_to_f16(d);
    for (int k = 0; k < 8; k++) word[2 * k + 1] |= scale_code(r, scales[k], 15) << 28;
    memcpy(y->qs, word, 64);
  }
  return true;
}

// --- iq2_xs, iq2_s ------------------------------------------------------------------------------------------------------------------

BL_ENCODER bool encode_iq2_xs(const Lattice &lattice, const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ2_XS *y = static_cast<BlockIQ2_XS *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, qw += 256, y++) {
    memset(y, 0, sizeof(*y));
    const F8 g = splat(sum_of_squares(x, 256) / 256.0f);
    float scales[16];
    uint16_t out[32] = {0};
    for (int k = 0; k < 16; k++) {
      SubBlock<8, 16> b;
      for (int i = 0; i < 16; i += 8) b.w.store(i, importance(load8(qw + 16 * k + i), g, load8(x + 16 * k + i)));
      weight_roots(&b);
      split_signs<true>(x + 16 * k, &b);
      const float mx = largest_value(b);
      scales[k] = 0.0f;
      if (mx < EPS15) continue;
      float scale;
      if (!scan_scales(lattice, &b, mx, LatticeScan{5.0f, 0.1f, 9, false, true}, &scale)) return false;
      scales[k] = make_positive(&b, scale, 127);
      for (int i = 0; i < 2; i++) out[2 * k + i] = uint16_t(lattice.slots[b.key[i]] | b.signs[i] << 9);
    }
    const float ms = largest_of(scales, 16);
    if (ms == 0) continue;
    const float d = ms / 31.0f, r = 1.0f / d;
    y->d = f32_to_f16(d);
    memcpy(y->qs, out, 64);
    for (int k = 0; k < 16; k++) y->scales[k / 2] |= uint8_t(scale_code(r, scales[k], 15) << (4 * (k % 2)));
  }
  return true;
}

BL_ENCODER bool encode_iq2_s(const Lattice &lattice, const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ2_S *y = static_cast<BlockIQ2_S *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, y++) {
    memset(y, 0, sizeof(*y));
    const float g = 2.0f * sum_of_squares(x, 256) / 256.0f;
    float scales[16];
    for (int k = 0; k < 16; k++) {
      SubBlock<8, 16> b;
      for (int i = 0; i < 16; i += 8) {
        const F8 v = load8(x + 16 * k + i);
        b.w.store(i, qw ? importance(load8(qw + 256 * s + 16 * k + i), splat(g), v) : splat(0.25f * g) + v * v);
      }
      weight_roots(&b);
      split_signs<false>(x + 16 * k, &b);
      const float mx = largest_value(b);
      scales[k] = 0.0f;
      if (mx < 1e-8f) continue;
      float scale;
      if (!scan_scales(lattice, &b, mx, LatticeScan{5.0f, 0.1f, 9, false, true}, &scale)) return false;
      scales[k] = make_positive(&b, scale, 255);
      for (int i = 0; i < 2; i++) {
        const int group = 2 * k + i;
        const int32_t index = lattice.slots[b.key[i]];
        y->qs[group] = uint8_t(index);
        y->qh[group / 4] |= uint8_t((index >> 8) << (2 * (group % 4)));
        y->signs[group] = b.signs[i];
      }
    }
    const float ms = largest_of(scales, 16);
    if (ms == 0) continue;
    const float d = ms / 31.0f, r = 1.0f / d;
    y->d = f32_to_f16(d * 0.9875f);
    for (int k = 0; k < 16; k++) y->scales[k / 2] |= uint8_t(scale_code(r, scales[k], 15) << (4 * (k % 2)));
  }
  return true;
}

// --- iq3_xxs, iq3_s -----------------------------------------------------------------------------------------------------------------

// Weights of 32 values of the iq3 types.
BL_INLINE void iq3_weights(const float *x, const float *qw, float g, SubBlock<4, 32> *b) {
  for (int i = 0; i < 32; i += 8) {
    const F8 v = load8(x + i);
    b->w.store(i, qw ? importance(load8(qw + i), splat(g), v) : v * v);
  }
}

BL_ENCODER bool encode_iq3_xxs(const Lattice &lattice, const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ3_XXS *y = static_cast<BlockIQ3_XXS *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, y++) {
    memset(y, 0, sizeof(*y));
    const float g = 2.0f * sum_of_squares(x, 256) / 256.0f;
    float scales[8];
    uint8_t index[64] = {0};
    uint32_t word[8] = {0};
    for (int k = 0; k < 8; k++) {
      SubBlock<4, 32> b;
      iq3_weights(x + 32 * k, qw ? qw + 256 * s + 32 * k : nullptr, g, &b);
      weight_roots(&b);
      split_signs<true>(x + 32 * k, &b);
      const float mx = largest_value(b);
      scales[k] = 0.0f;
      if (mx < 1e-8f) continue;
      float scale;
      if (!scan_scales(lattice, &b, mx, LatticeScan{15.0f, 0.2f, 15, false, true}, &scale)) return false;
      scales[k] = make_positive(&b, scale, 127);
      for (int i = 0; i < 8; i++) index[8 * k + i] = uint8_t(lattice.slots[b.key[i]]);
      for (int i = 0; i < 4; i++) word[k] |= uint32_t(b.signs[i]) << (7 * i);
    }
    const float ms = largest_of(scales, 8);
    if (ms == 0) continue;
    const float d = ms / 31.0f, r = 1.0f / d;
    y->d = f32_to_f16(d * 1.0125f);
    for (int k = 0; k < 8; k++) word[k] |= scale_code(r, scales[k], 15) << 28;
    memcpy(y->qs, index, 64);
    memcpy(y->sas, word, 32);
  }
  return true;
}

BL_ENCODER bool encode_iq3_s(const Lattice &lattice, const float *x, uint64_t n, const float *qw, void *dst) {
  BlockIQ3_S *y = static_cast<BlockIQ3_S *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, y++) {
    memset(y, 0, sizeof(*y));
    const float g = 2.0f * sum_of_squares(x, 256) / 256.0f;
    float scales[8];
    // Index and sign bytes go to the next free place, which is not the sub-block's own after an all-zero one: the format's readers
    // are wrong about such blocks, and the reference's writer is what a file must equal.
    uint8_t *qs = y->qs, *signs = y->signs;
    for (int k = 0; k < 8; k++) {
      SubBlock<4, 32> b;
      iq3_weights(x + 32 * k, qw ? qw + 256 * s + 32 * k : nullptr, g, &b);
      weight_roots(&b);
      split_signs<false>(x + 32 * k, &b);
      const float mx = largest_value(b);
      scales[k] = 0.0f;
      if (mx == 0) continue;
      float scale;
      if (!scan_scales(lattice, &b, mx, LatticeScan{15.0f, 0.2f, 9, true, false}, &scale)) return false;
      scales[k] = make_positive(&b, scale, 255);
      for (int i = 0; i < 8; i++) {
        const int32_t index = lattice.slots[b.key[i]];
        *qs++ = uint8_t(index);
        y->qh[k] |= uint8_t((index >> 8) << i);
      }
      for (int i = 0; i < 4; i++) *signs++ = b.signs[i];
    }
    const float ms = largest_of(scales, 8);
    if (ms == 0) continue;
    const float d = ms / 31.0f, r = 1.0f / d;
    y->d = f32_to_f16(d * 1.033f);
    for (int k = 0; k < 8; k++) y->scales[k / 2] |= uint8_t(scale_code(r, scales[k], 15) << (4 * (k % 2)));
  }
  return true;
}

}  // namespace BL_LANES
}  // namespace bl
