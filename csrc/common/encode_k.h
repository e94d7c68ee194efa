// encode_k.h: the K types (superblocks of 256). One row a call, superblocks in batches (BATCH) so that the second-level search
// (POS and SYM over a superblock's own scales) fills its lanes too.
#pragma once

#include "encode_search.h"
#include "encode_simple.h"

namespace bl {
namespace BL_LANES {

// Weights of eight groups of N: importance raised by g, the same in every lane.
template <int N>
BL_INLINE void group_importance(const F8 *x, const float *qw, float g, F8 *w) {
  load_groups<N>(qw, 8, w);
  for (int i = 0; i < N; i++) w[i] = importance(w[i], splat(g), x[i]);
}

template <int N>
BL_INLINE F8 total(const F8 *w) {
  F8 sum = splat(0.0f);
  for (int i = 0; i < N; i++) sum += w[i];
  return sum;
}

BL_INLINE int batch_left(uint64_t n_super, uint64_t at) { return n_super - at < BATCH ? int(n_super - at) : BATCH; }

// --- the affine family: q2_K, q4_K, q5_K ---------------------------------------------------------------------------------------------

// What the first-level search found for the G groups of each superblock of a batch.
template <int G>
struct AffineBatch {
  float scale[BATCH * G], minimum[BATCH * G], weight[BATCH * G], r[BATCH * G], base[BATCH * G];
};

template <int G>
BL_INLINE void keep(AffineBatch<G> *batch, int at, const Affine &fit) {
  store8(batch->scale + at, fit.scale);
  store8(batch->minimum + at, fit.minimum);
  store8(batch->r + at, fit.r);
  store8(batch->base + at, fit.base);
}

// Codes of one group once its stored scale is known: round((x + b) / d), or the search's codes when the stored scale is zero.
template <int N>
BL_INLINE void recode_affine(const float *x, float d, float b, float r, float base, int max, uint8_t *code) {
  for (int i = 0; i < N; i += 8) {
    const F8 v = load8(x + i);
    store_bytes(code + i, d != 0 ? clamp(rnd((v + splat(b)) / splat(d)), 0, max) : affine_code(v, splat(r), splat(base), max));
  }
}

template <bool WEIGHTED>
BL_INLINE bool encode_q2_K_rows(const float *x, uint64_t n, const float *qw, BlockQ2_K *y) {
  const uint64_t n_super = n / 256;
  for (uint64_t at = 0; at < n_super; at += BATCH) {
    const int count = batch_left(n_super, at);
    AffineBatch<16> batch;
    for (int s = 0; s < count; s++) {
      const float *xs = x + 256 * (at + s);
      const float g = WEIGHTED ? sum_of_squares(xs, 256) / 256.0f : 0.0f;
      for (int h = 0; h < 2; h++) {
        F8 v[16], w[16];
        load_groups<16>(xs + 128 * h, 8, v);
        const int slot = 16 * s + 8 * h;
        if (WEIGHTED) {
          group_importance<16>(v, qw + 256 * (at + s) + 128 * h, g, w);
          store8(batch.weight + slot, total<16>(w));
          keep(&batch, slot, affine<16, false>(v, w, AffineGrid{3, -0.9f, 0.05f, 36}));
        } else {
          for (int i = 0; i < 16; i++) w[i] = abs8(v[i]);
          keep(&batch, slot, affine<16, true>(v, w, AffineGrid{3, -0.5f, 0.1f, 15}));
        }
      }
    }
    if (WEIGHTED) {
      F8 s[16], m[16], sw[16];
      I8 ls[16], lm[16];
      load_groups<16>(batch.scale, count, s);
      load_groups<16>(batch.minimum, count, m);
      load_groups<16>(batch.weight, count, sw);
      const F8 d = positive<16>(s, sw, 15, ls), dmin = positive<16>(m, sw, 15, lm);
      for (int k = 0; k < count; k++) {
        y[at + k].d = f32_to_f16(d[k]);
        y[at + k].dmin = f32_to_f16(dmin[k]);
        for (int j = 0; j < 16; j++) y[at + k].scales[j] = uint8_t(ls[j][k] | lm[j][k] << 4);
      }
    }
    for (int s = 0; s < count; s++) {
      BlockQ2_K *b = y + at + s;
      if (!WEIGHTED) {
        const float ms = largest_of(batch.scale + 16 * s, 16), mm = largest_of(batch.minimum + 16 * s, 16);
        const float rs = 15.0f / ms, rm = 15.0f / mm;
        for (int j = 0; j < 16; j++) {
          b->scales[j] = ms > 0 ? uint8_t(rnd1(rs * batch.scale[16 * s + j])) : 0;
          if (mm > 0) b->scales[j] |= uint8_t(uint32_t(rnd1(rm * batch.minimum[16 * s + j])) << 4);
        }
        b->d = f32_to_f16(ms > 0 ? ms / 15.0f : 0.0f);
        b->dmin = f32_to_f16(mm > 0 ? mm / 15.0f : 0.0f);
      }
      const float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
      uint8_t code[256];
      for (int j = 0; j < 16; j++)
        recode_affine<16>(x + 256 * (at + s) + 16 * j, d * float(b->scales[j] & 15), dmin * float(b->scales[j] >> 4),
                          batch.r[16 * s + j], batch.base[16 * s + j], 3, code + 16 * j);
      pack_planes2(code, b->qs);
    }
  }
  return true;
}

// Packs 6-bit scales and minimums into the 12 bytes of q4_K and q5_K.
BL_INLINE void pack_k4(const uint8_t *ls, const uint8_t *lm, uint8_t *sc) {
  for (int j = 0; j < 4; j++) {
    sc[j] = ls[j];
    sc[j + 4] = lm[j];
  }
  for (int j = 4; j < 8; j++) {
    sc[j + 4] = uint8_t((ls[j] & 15) | (lm[j] & 15) << 4);
    sc[j - 4] |= uint8_t((ls[j] >> 4) << 6);
    sc[j] |= uint8_t((lm[j] >> 4) << 6);
  }
}

BL_INLINE void put_codes(BlockQ4_K *y, const uint8_t *code) {
  for (int p = 0; p < 4; p++)
    for (int l = 0; l < 32; l++) y->qs[32 * p + l] = uint8_t(code[64 * p + l] | code[64 * p + 32 + l] << 4);
}

BL_INLINE void put_codes(BlockQ5_K *y, const uint8_t *code) {
  for (int p = 0; p < 4; p++)
    for (int l = 0; l < 32; l++)
      y->qs[32 * p + l] = uint8_t((code[64 * p + l] & 15) | (code[64 * p + 32 + l] & 15) << 4);
  for (int l = 0; l < 32; l++) {
    uint32_t high = 0;
    for (int j = 0; j < 8; j++) high |= uint32_t((code[32 * j + l] >> 4) & 1) << j;
    y->qh[l] = uint8_t(high);
  }
}

// The six-bit code of a scale: a byte of the rounded ratio, at most 63.
BL_INLINE uint8_t byte63(int32_t v) {
  const uint8_t b = uint8_t(v);
  return b > 63 ? 63 : b;
}

template <class Block, int MAX, bool WEIGHTED>
BL_INLINE bool encode_k4_rows(const float *x, uint64_t n, const float *qw, Block *y, const AffineGrid grid) {
  const uint64_t n_super = n / 256;
  for (uint64_t at = 0; at < n_super; at += BATCH) {
    const int count = batch_left(n_super, at);
    AffineBatch<8> batch;
    for (int s = 0; s < count; s++) {
      const float *xs = x + 256 * (at + s);
      F8 v[32], w[32];
      load_groups<32>(xs, 8, v);
      if (WEIGHTED) {
        group_importance<32>(v, qw + 256 * (at + s), 2.0f * sum_of_squares(xs, 256) / 256.0f, w);
        store8(batch.weight + 8 * s, total<32>(w));
      } else {
        F8 sum = splat(0.0f);
        for (int i = 0; i < 32; i++) sum += v[i] * v[i];
        const F8 average = sqrt8(sum / splat(32.0f));
        for (int i = 0; i < 32; i++) w[i] = average + abs8(v[i]);
      }
      keep(&batch, 8 * s, affine<32, false>(v, w, grid));
    }
    uint8_t ls[8 * BATCH], lm[8 * BATCH];
    if (WEIGHTED) {
      F8 s[8], m[8], sw[8];
      I8 code[8];
      load_groups<8>(batch.scale, count, s);
      load_groups<8>(batch.minimum, count, m);
      load_groups<8>(batch.weight, count, sw);
      const F8 d = positive<8>(s, sw, 63, code);
      store_groups<8>(ls, count, code);
      const F8 dmin = positive<8>(m, sw, 63, code);
      store_groups<8>(lm, count, code);
      for (int k = 0; k < count; k++) {
        y[at + k].d = f32_to_f16(d[k]);
        y[at + k].dmin = f32_to_f16(dmin[k]);
      }
      if (MAX == 31)
        for (int j = 0; j < 8 * count; j++) {
          ls[j] = byte63(ls[j]);
          lm[j] = byte63(lm[j]);
        }
    }
    for (int s = 0; s < count; s++) {
      Block *b = y + at + s;
      if (!WEIGHTED) {
        const float ms = largest_of(batch.scale + 8 * s, 8), mm = largest_of(batch.minimum + 8 * s, 8);
        const float rs = ms > 0 ? 63.0f / ms : 0.0f, rm = mm > 0 ? 63.0f / mm : 0.0f;
        for (int j = 0; j < 8; j++) {
          ls[8 * s + j] = byte63(rnd1(rs * batch.scale[8 * s + j]));
          lm[8 * s + j] = byte63(rnd1(rm * batch.minimum[8 * s + j]));
        }
        b->d = f32_to_f16(ms / 63.0f);
        b->dmin = f32_to_f16(mm / 63.0f);
      }
      pack_k4(ls + 8 * s, lm + 8 * s, b->scales);
      const float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
      uint8_t code[256];
      for (int j = 0; j < 8; j++) {
        uint8_t scale, min;
        unpack_k4(b->scales, j, &scale, &min);
        recode_affine<32>(x + 256 * (at + s) + 32 * j, d * float(scale), dmin * float(min), batch.r[8 * s + j],
                          batch.base[8 * s + j], MAX, code + 32 * j);
      }
      put_codes(b, code);
    }
  }
  return true;
}

BL_ENCODER bool encode_q2_K(const float *x, uint64_t n, const float *qw, void *dst) {
  BlockQ2_K *y = static_cast<BlockQ2_K *>(dst);
  return qw ? encode_q2_K_rows<true>(x, n, qw, y) : encode_q2_K_rows<false>(x, n, nullptr, y);
}
BL_ENCODER bool encode_q4_K(const float *x, uint64_t n, const float *qw, void *dst) {
  BlockQ4_K *y = static_cast<BlockQ4_K *>(dst);
  return qw ? encode_k4_rows<BlockQ4_K, 15, true>(x, n, qw, y, AffineGrid{15, -0.9f, 0.05f, 36})
            : encode_k4_rows<BlockQ4_K, 15, false>(x, n, nullptr, y, AffineGrid{15, -1.0f, 0.1f, 20});
}
BL_ENCODER bool encode_q5_K(const float *x, uint64_t n, const float *qw, void *dst) {
  BlockQ5_K *y = static_cast<BlockQ5_K *>(dst);
  return qw ? encode_k4_rows<BlockQ5_K, 31, true>(x, n, qw, y, AffineGrid{31, -0.9f, 0.05f, 36})
            : encode_k4_rows<BlockQ5_K, 31, false>(x, n, nullptr, y, AffineGrid{31, -0.5f, 0.1f, 15});
}

// --- the symmetric family: q3_K, q6_K -------------------------------------------------------------------------------------------------

// Codes of 16 values once the stored scale is known; the search's own stay where it is zero.
BL_INLINE void recode_symmetric(const float *x, float d, int half, uint8_t *code) {
  if (d == 0) return;
  for (int i = 0; i < 16; i += 8)
    store_bytes(code + i, clamp(rnd(load8(x + i) / splat(d)), -half, half - 1) + splat_i(half));
}

BL_INLINE void pack_k3(const uint8_t *u, uint8_t *scales) {
  memset(scales, 0, 12);
  for (int j = 0; j < 16; j++) {
    scales[j % 8] |= uint8_t(j < 8 ? u[j] & 15 : (u[j] & 15) << 4);
    scales[8 + j % 4] |= uint8_t((u[j] >> 4) << (2 * (j / 4)));
  }
}

template <bool WEIGHTED>
BL_INLINE bool encode_q3_K_rows(const float *x, uint64_t n, const float *qw, BlockQ3_K *y) {
  const uint64_t n_super = n / 256;
  for (uint64_t at = 0; at < n_super; at += BATCH) {
    const int count = batch_left(n_super, at);
    float scale[16 * BATCH], weight[16 * BATCH];
    uint8_t code[256 * BATCH], u[16 * BATCH];
    for (int s = 0; s < count; s++) {
      const float *xs = x + 256 * (at + s);
      const float g = WEIGHTED ? 2.0f * sum_of_squares(xs, 256) / 256.0f : 0.0f;
      for (int h = 0; h < 2; h++) {
        F8 v[16], w[16];
        I8 c[16];
        load_groups<16>(xs + 128 * h, 8, v);
        F8 found;
        if (WEIGHTED) {
          group_importance<16>(v, qw + 256 * (at + s) + 128 * h, g, w);
          store8(weight + 16 * s + 8 * h, total<16>(w));
          const Symmetric fit = symmetric<16>(v, w, 4);
          for (int i = 0; i < 16; i++) c[i] = symmetric_code(v[i], fit.r, fit.zero, 4);
          found = fit.scale;
        } else {
          found = refine3<16>(v, c);
        }
        store8(scale + 16 * s + 8 * h, found);
        store_groups<16>(code + 256 * s + 128 * h, 8, c);
      }
    }
    if (WEIGHTED) {
      F8 s[16], sw[16];
      I8 c[16];
      load_groups<16>(scale, count, s);
      load_groups<16>(weight, count, sw);
      const Symmetric fit = symmetric<16>(s, sw, 32);
      for (int i = 0; i < 16; i++) c[i] = symmetric_code(s[i], fit.r, fit.zero, 32);
      store_groups<16>(u, count, c);
      for (int k = 0; k < count; k++) y[at + k].d = f32_to_f16(fit.scale[k]);
    }
    for (int s = 0; s < count; s++) {
      BlockQ3_K *b = y + at + s;
      if (WEIGHTED) {
        pack_k3(u + 16 * s, b->scales);
      } else {
        const int largest = largest_magnitude(scale + 16 * s, 16);
        if (largest >= 0) {
          const float r = -32.0f / scale[16 * s + largest];
          for (int j = 0; j < 16; j++) {
            const int l = int8_t(rnd1(r * scale[16 * s + j]));
            u[16 * s + j] = uint8_t((l < -32 ? -32 : l > 31 ? 31 : l) + 32);
          }
          pack_k3(u + 16 * s, b->scales);
          b->d = f32_to_f16(1.0f / r);
        } else {
          memset(b->scales, 0, 12);
          b->d = f32_to_f16(0.0f);
        }
      }
      const float d = f16_to_f32(b->d);
      uint8_t *c = code + 256 * s;
      for (int j = 0; j < 16; j++)
        recode_symmetric(x + 256 * (at + s) + 16 * j, d * float(unpack_k3(b->scales, j) - 32), 4, c + 16 * j);
      for (int l = 0; l < 32; l++) {
        uint32_t high = 0;
        for (int k = 0; k < 8; k++) high |= uint32_t(c[32 * k + l] > 3) << k;
        b->hmask[l] = uint8_t(high);
      }
      pack_planes2(c, b->qs);  // the low two bits: a code above 3 minus 4
    }
  }
  return true;
}

BL_ENCODER bool encode_q3_K(const float *x, uint64_t n, const float *qw, void *dst) {
  BlockQ3_K *y = static_cast<BlockQ3_K *>(dst);
  return qw ? encode_q3_K_rows<true>(x, n, qw, y) : encode_q3_K_rows<false>(x, n, nullptr, y);
}

BL_ENCODER bool encode_q6_K(const float *x, uint64_t n, const float *qw, void *dst) {
  BlockQ6_K *y = static_cast<BlockQ6_K *>(dst);
  for (uint64_t s = 0; s < n / 256; s++, x += 256, y++) {
    float scale[16];
    uint8_t code[256];
    for (int h = 0; h < 2; h++) {
      F8 v[16], w[16];
      I8 c[16];
      load_groups<16>(x + 128 * h, 8, v);
      if (qw)
        load_groups<16>(qw + 256 * s + 128 * h, 8, w);
      else
        for (int i = 0; i < 16; i++) w[i] = v[i] * v[i];
      const Symmetric fit = symmetric<16>(v, w, 32);
      for (int i = 0; i < 16; i++) c[i] = symmetric_code(v[i], fit.r, fit.zero, 32);
      store8(scale + 8 * h, fit.scale);
      store_groups<16>(code + 128 * h, 8, c);
    }
    const int largest = largest_magnitude(scale, 16);
    if (largest < 0 || (scale[largest] < 0 ? -scale[largest] : scale[largest]) < EPS15) {
      memset(y, 0, sizeof(*y));
      continue;
    }
    const float r = -128.0f / scale[largest];
    y->d = f32_to_f16(1.0f / r);
    const float d = f16_to_f32(y->d);
    for (int j = 0; j < 16; j++) {
      const int l = rnd1(r * scale[j]);
      y->scales[j] = int8_t(l > 127 ? 127 : l);
      recode_symmetric(x + 16 * j, d * float(y->scales[j]), 32, code + 16 * j);
    }
    for (int h = 0; h < 2; h++)
      for (int l = 0; l < 32; l++) {
        const uint8_t *c = code + 128 * h + l;
        y->ql[64 * h + l] = uint8_t((c[0] & 15) | (c[64] & 15) << 4);
        y->ql[64 * h + 32 + l] = uint8_t((c[32] & 15) | (c[96] & 15) << 4);
        y->qh[32 * h + l] = uint8_t(c[0] >> 4 | (c[32] >> 4) << 2 | (c[64] >> 4) << 4 | (c[96] >> 4) << 6);
      }
  }
  return true;
}

}  // namespace BL_LANES
}  // namespace bl
